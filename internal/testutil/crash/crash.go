// Package crash tests that controllers reach the same end state whatever happens to a single one of their writes: for
// each n, the n-th write fails, conflicts, or is done without a response, and the process goes on, or ends there. Then
// another process takes over, which knows only what the API server has. The faults are those of HTTP, for any client.
//
// Only tests may import it.
package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
)

type Scenario struct {
	Setup func(t *testing.T, mgr ctrl.Manager, namespace string) error
	// Begin creates the objects that the controllers work for. It is called before they start, with a new namespace for
	// each run, to which cluster-scoped objects must belong, see Kinds.
	Begin func(t *testing.T, c client.Client, namespace string)
	// Kinds are lists of the kinds whose objects are the end state. Of cluster-scoped kinds, these are the objects that
	// contain the name of the namespace, unless ClusterScoped is set.
	Kinds []client.ObjectList
	Done  func(ctx context.Context, c client.Client, namespace string) bool
	// ClusterScoped means that the work is about the whole cluster: all writes belong to the run, and all objects that
	// are in no other namespace. Otherwise they do if they contain the name of the namespace.
	ClusterScoped bool
	Faults        []Fault
}

// Run runs the scenario without a fault, then with each fault of each write, and compares the end states.
func Run(t *testing.T, s Scenario) {
	apiserver.Config(t) // or skip
	var want string
	var writes int
	var reconciles bool
	if !t.Run("undisturbed", func(t *testing.T) {
		r := s.begin(t)
		stop := r.start(r.intercepted(0, None))
		r.await("the work to be done", func() bool { return s.Done(t.Context(), r.client, r.namespace) && r.idle() })
		stop()
		want, writes, reconciles = r.snapshot(), r.writes.Seen(), r.reconciled()
		r.start(apiserver.Config(t))
		r.await("the next process to do its work", func() bool { return r.reconciled() == reconciles && r.idle() })
		if diff := cmp.Diff(want, r.snapshot()); diff != "" {
			t.Errorf("another process changed the end state (-before +after):\n%s", diff)
		}
		if writes == 0 {
			t.Error("the controllers wrote nothing")
		}
	}) {
		return
	}
	selected := s.Faults
	if selected == nil {
		selected = faults
	}
	for n := 1; n <= writes; n++ {
		for _, fault := range selected {
			name := fmt.Sprintf("write %d %s", n, fault)
			if !t.Run(name, func(t *testing.T) { s.runWith(t, n, fault, want, reconciles) }) {
				return // others probably fail in the same way, and slowly
			}
		}
	}
}

func (s Scenario) runWith(t *testing.T, n int, fault Fault, want string, reconciles bool) {
	r := s.begin(t)
	stop := r.start(r.intercepted(n, fault))
	// The order of concurrent writes varies, and with it what is written at all.
	r.await("the fault", func() bool { return r.writes.Happened() != "" || r.snapshot() == want && r.idle() })
	if !fault.ends() {
		r.awaitState("the process that had the fault", want)
	}
	stop()
	r.start(apiserver.Config(t))
	r.await("the next process to do its work", func() bool { return r.reconciled() == reconciles && r.idle() })
	r.awaitState("the next process", want)
}

type run struct {
	Scenario
	t         *testing.T
	client    client.Client
	namespace string
	writes    *Writes
	// reconciliations and abandoned are the metrics of reconciliations and of queued requests before the last process.
	reconciliations, abandoned float64
}

func (s Scenario) begin(t *testing.T) *run {
	t.Helper()
	r := &run{Scenario: s, t: t, client: apiserver.Client(t), namespace: apiserver.Namespace(t)}
	s.Begin(t, r.client, r.namespace)
	return r
}

func (r *run) intercepted(n int, fault Fault) *rest.Config {
	about := r.namespace
	if r.ClusterScoped {
		about = ""
	}
	cfg := apiserver.Config(r.t)
	r.writes = Intercept(cfg, n, fault, about)
	return cfg
}

func (r *run) start(cfg *rest.Config) (stop func()) {
	r.t.Helper()
	r.reconciliations, r.abandoned = metric.Value(r.t, "controller_runtime_reconcile_total"),
		metric.Value(r.t, "workqueue_depth")
	_, stop = apiserver.RunManager(r.t, cfg, r.namespace,
		func(mgr ctrl.Manager) error { return r.Setup(r.t, mgr, r.namespace) })
	return stop
}

func (r *run) reconciled() bool {
	return metric.Value(r.t, "controller_runtime_reconcile_total") > r.reconciliations
}

func (r *run) idle() bool {
	return metric.Value(r.t, "controller_runtime_active_workers") == 0 &&
		metric.Value(r.t, "workqueue_depth") <= r.abandoned
}

func (r *run) await(what string, done func() bool) {
	r.t.Helper()
	r.eventually(done).Should(gomega.BeTrue(), func() string {
		return fmt.Sprintf("waiting for %s; the fault was %q; the state is\n%s", what, r.writes.Happened(),
			r.snapshot())
	})
}

// awaitState waits until a process has reached the state of the undisturbed run. It compares text, because the
// description of a difference takes longer than a poll.
func (r *run) awaitState(process, want string) {
	r.t.Helper()
	var got string
	r.eventually(func() bool { got = r.snapshot(); return got == want }).Should(gomega.BeTrue(), func() string {
		return fmt.Sprintf("%s does not reach the end state after a fault of %q (-want +got):\n%s", process,
			r.writes.Happened(), cmp.Diff(want, got))
	})
}

func (r *run) eventually(actual any) gomega.AsyncAssertion {
	return gomega.NewWithT(r.t).Eventually(actual).WithTimeout(apiserver.Timeout).WithPolling(20 * time.Millisecond)
}

// volatile are the fields that differ between two equal runs and that nothing refers to.
var volatile = map[string]bool{
	"resourceVersion": true, "creationTimestamp": true, "generation": true, "managedFields": true,
	"lastTransitionTime": true, "lastPhaseTransitionTime": true,
	"observedGeneration": true,
}

var uid = regexp.MustCompile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

// snapshot returns the state: the objects of the run, without volatile fields, and with a description in place of each
// identity that the API server has assigned. An error is part of it, because it may pass.
func (r *run) snapshot() string {
	r.t.Helper()
	objects, err := r.objects()
	if err != nil {
		return "error: " + err.Error()
	}
	identities := map[string]string{r.namespace: "<namespace>"}
	for key, content := range objects {
		assigned(key, content, identities)
		strip(content)
	}
	maps.DeleteFunc(objects, func(key string, content map[string]any) bool {
		return !r.ClusterScoped && !strings.Contains(key+encode(content), r.namespace)
	})
	text := uid.ReplaceAllString(replacer(identities).Replace(encode(objects)), "<uid of another object>")
	var described any
	if err := yaml.Unmarshal([]byte(text), &described); err != nil {
		return "error: " + err.Error()
	}
	return encode(described) // with its keys sorted again
}

// objects returns the contents of all objects by kind and name, without those in other namespaces.
func (r *run) objects() (map[string]map[string]any, error) {
	objects := map[string]map[string]any{}
	for _, kind := range r.Kinds {
		list := kind.DeepCopyObject().(client.ObjectList)
		if err := r.client.List(r.t.Context(), list); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			if object.GetNamespace() != "" && object.GetNamespace() != r.namespace {
				return nil
			}
			gvk, err := r.client.GroupVersionKindFor(o)
			if err != nil {
				return err
			}
			key := gvk.Kind + " " + strings.Trim(object.GetNamespace()+"/"+object.GetName(), "/")
			objects[key], err = runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func encode(content any) string {
	raw, err := yaml.Marshal(content)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(raw)
}

// replacer replaces identities, also in their descriptions, where names may contain them.
func replacer(identities map[string]string) *strings.Replacer {
	// The first pair that matches is used, so identities that begin like others come first.
	keys := slices.SortedFunc(maps.Keys(identities), func(a, b string) int { return len(b) - len(a) })
	short := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		short = append(short, key, "<…>")
	}
	inDescriptions := strings.NewReplacer(short...)
	pairs := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, key, inDescriptions.Replace(identities[key]))
	}
	return strings.NewReplacer(pairs...)
}

// assigned adds what the API server has assigned to an object, with a description.
func assigned(key string, content map[string]any, identities map[string]string) {
	metadata, _ := content["metadata"].(map[string]any)
	if uid, ok := metadata["uid"].(string); ok {
		identities[uid] = "<uid of " + key + ">"
		identities[strings.ReplaceAll(uid, "-", "")] = "<uid of " + key + " in a label>"
	}
	spec, _ := content["spec"].(map[string]any)
	if ip, ok := spec["clusterIP"].(string); ok && ip != "" && ip != "None" {
		identities[ip] = "<IP of " + key + ">"
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		port, _ := p.(map[string]any)
		if number, ok := port["nodePort"]; ok {
			identities[fmt.Sprint(number)] = fmt.Sprintf("<node port %v of %s>", port["name"], key)
		}
	}
}

func strip(content any) {
	switch content := content.(type) {
	case map[string]any:
		maps.DeleteFunc(content, func(key string, _ any) bool { return volatile[key] })
		for _, value := range content {
			strip(value)
		}
	case []any:
		for _, value := range content {
			strip(value)
		}
	}
}

type Fault string

const (
	None Fault = "succeeds"
	// Failed: the write is not done, and the API server reports an internal error.
	Failed Fault = "fails"
	// Conflicting: the write is not done, and the API server reports a conflict.
	Conflicting Fault = "conflicts"
	// TimedOut: the write is done, but the API server reports a timeout.
	TimedOut Fault = "times out"
	// NotAnswered: the write is done, and the process ends before the response. A process that ends before a write
	// leaves what one leaves that ends after the write before it.
	NotAnswered Fault = "is not answered"
)

var faults = []Fault{Failed, Conflicting, TimedOut, NotAnswered}

func (f Fault) ends() bool { return f == NotAnswered }

// errEnded is the error of all requests of a process that has ended.
var errEnded = errors.New("the process has ended")

type Writes struct {
	n     int
	fault Fault
	about string

	mu    sync.Mutex
	count int
	ended bool
	what  string // the write that had the fault
}

// Intercept makes the n-th write of the clients of cfg, from 1, have a fault. Writes with about in path or body count.
func Intercept(cfg *rest.Config, n int, fault Fault, about string) *Writes {
	w := &Writes{n: n, fault: fault, about: about}
	cfg.Wrap(w.wrap)
	return w
}

func (w *Writes) Seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

func (w *Writes) Happened() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.what
}

func (w *Writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		faulty, err := w.observe(r)
		switch {
		case err != nil:
			return nil, err
		case !faulty:
			return next.RoundTrip(r)
		case w.fault == TimedOut || w.fault == NotAnswered: // the write is done
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_ = response.Body.Close()
		}
		// Not before the write is done: the process is stopped then, and the API server would give up the write.
		w.mu.Lock()
		w.what = r.Method + " " + r.URL.Path
		w.mu.Unlock()
		if w.fault.ends() {
			return nil, errEnded
		}
		return w.response(r)
	})
}

// observe counts a write of the scenario, except events and reviews, and reports whether it is to have the fault.
func (w *Writes) observe(r *http.Request) (faulty bool, _ error) {
	counts := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") &&
		!strings.Contains(r.URL.Path, "reviews")
	var body []byte
	if counts && r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return false, fmt.Errorf("reading the body of a request: %w", err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	counts = counts && (strings.Contains(r.URL.Path, w.about) || bytes.Contains(body, []byte(w.about)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false, errEnded
	}
	if counts {
		w.count++
		faulty = w.count == w.n && w.fault != None
		w.ended = faulty && w.fault.ends()
	}
	return faulty, nil
}

func (w *Writes) response(r *http.Request) (*http.Response, error) {
	resource := schema.GroupResource{Resource: r.URL.Path}
	status := map[Fault]metav1.Status{
		Failed:      apierrors.NewInternalError(errors.New("fault of a test")).Status(),
		Conflicting: apierrors.NewConflict(resource, "", errors.New("fault of a test")).Status(),
		TimedOut:    apierrors.NewTimeoutError("fault of a test", 0).Status(),
	}[w.fault]
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		Request: r,
	}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
