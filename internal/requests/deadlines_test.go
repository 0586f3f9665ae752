package requests

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func TestAPassLooksAgainAtItsEarliestDeadline(t *testing.T) {
	type deadline struct {
		in     time.Duration
		reason string
	}
	for name, tc := range map[string]struct {
		deadlines []deadline
		want      deadline
	}{
		"none":                  {},
		"none that is positive": {[]deadline{{0, "a"}, {0, "b"}}, deadline{}},
		"the only one":          {[]deadline{{0, "a"}, {time.Second, "b"}, {0, "c"}}, deadline{time.Second, "b"}},
		"the first":             {[]deadline{{time.Second, "a"}, {time.Minute, "b"}}, deadline{time.Second, "a"}},
		"the last":              {[]deadline{{time.Minute, "a"}, {time.Second, "b"}}, deadline{time.Second, "b"}},
	} {
		var logged []string
		logger := funcr.New(func(_, text string) { logged = append(logged, text) }, funcr.Options{Verbosity: 1})
		var d Deadlines
		for _, each := range tc.deadlines {
			d.Add(each.in, each.reason)
		}
		if got := d.Result(log.IntoContext(t.Context(), logger)).RequeueAfter; got != tc.want.in {
			t.Errorf("%s: again in %s, want %s", name, got, tc.want.in)
		}
		text := strings.Join(logged, "")
		if (text != "") != (tc.want.in > 0) || tc.want.in > 0 && !strings.Contains(text, `"reason"="`+tc.want.reason+`"`) {
			t.Errorf("%s: logged %q, want the reason %q", name, text, tc.want.reason)
		}
	}
}
