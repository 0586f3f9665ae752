package plugin_test

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// discovery are the paths of the requests for what the cluster serves.
var discovery = regexp.MustCompile(`^/(api|apis)(/[^/]+){0,2}$|^/api/v1$`)

// failing returns the configuration of a client whose n-th request for objects fails, and the number of such requests.
func failing(t *testing.T, n int64) (*rest.Config, *atomic.Int64) {
	t.Helper()
	seen := &atomic.Int64{}
	return via(t, apiserver.Config(t), func(w http.ResponseWriter, r *http.Request) bool {
		fails := !discovery.MatchString(r.URL.Path) && seen.Add(1) == n
		if fails {
			http.Error(w, "the storage has failed", http.StatusInternalServerError)
		}
		return fails
	}), seen
}

// What a command could not read must not look like what does not exist.
func TestCommandsEndWithTheFirstError(t *testing.T) {
	w := newWorld(t)
	for _, command := range [][]string{
		{"why", w.pod.Name}, {"why", "claim/" + w.claim.Name}, {"why", "listener/" + w.listener.Name}, {"doctor"}, {"migrate"}, {"connect", w.pod.Name},
	} {
		args := append(command, "--namespace", w.namespace)
		config, requests := failing(t, 0)
		undisturbed, _ := run(t, config, args...)
		if undisturbed == "" || requests.Load() == 0 {
			t.Fatalf("%v writes nothing after %d requests", command, requests.Load())
		}
		for n := int64(1); n <= requests.Load(); n++ {
			config, seen := failing(t, n)
			out, err := run(t, config, args...)
			if seen.Load() < n {
				break // an object of another test, which is deleted now, needed one more
			}
			if err == nil || !strings.Contains(err.Error(), "the server") || out != "" {
				t.Errorf("%v, request %d fails: error %v, output %q", command, n, err, out)
			}
			if after := seen.Load() - n; after > 0 {
				t.Errorf("%v, request %d fails: %d more requests", command, n, after)
			}
		}
	}
}
