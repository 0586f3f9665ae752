package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Fault is what happens to a write.
type Fault string

// The faults.
const (
	// None is no fault.
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

// Writes counts the writes of a process, and makes the n-th one have a fault.
type Writes struct {
	n     int
	fault Fault
	about string

	mu    sync.Mutex
	count int
	ended bool
	what  string // the write that had the fault
}

// Intercept makes the n-th write of the clients of cfg have a fault, counted from 1. about is part of the path or the
// body of the writes that count.
func Intercept(cfg *rest.Config, n int, fault Fault, about string) *Writes {
	w := &Writes{n: n, fault: fault, about: about}
	cfg.Wrap(w.wrap)
	return w
}

// Seen returns how many writes there were.
func (w *Writes) Seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Happened returns the write that had the fault, or "".
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
		w.mu.Lock() // not before the write is done: the process is stopped then, and the API server would give up the write
		w.what = r.Method + " " + r.URL.Path
		w.mu.Unlock()
		if w.fault.ends() {
			return nil, errEnded
		}
		return w.response(r)
	})
}

// observe counts a write of the scenario, and reports whether it is to have the fault. Events and reviews are not part
// of its state.
func (w *Writes) observe(r *http.Request) (faulty bool, _ error) {
	counts := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "reviews")
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

// response returns the response of the API server for the fault.
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
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
