package plugin_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// hostileText changes the title of a terminal, clears it, reverses the direction of writing, and forges a line.
const hostileText = "\x1b]0;title\x07\x1b[2J\u202e\u009b31m\xff\r\nforged ✓ line\t"

// hostileAPI adds hostileText to strings of the objects in responses of an API server.
type hostileAPI struct {
	http.RoundTripper
	// mu is locked while the other fields are used: commands send several requests at a time, and some outlive them.
	mu sync.Mutex
	// adds reports whether the text is added to the field of a kind at a path.
	adds func(kind, path string) bool
	// fields are the kinds and paths of all strings that were seen.
	fields sets.Set[string]
	// watched is called when a client begins to watch, which it cannot.
	watched func()
	// text is added instead of hostileText, unless it is empty.
	text string
}

// identities are what the API server validates, and by which objects are found.
var identities = sets.New("apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "eventTime", "time", "continue")

func (a *hostileAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watched()
		return nil, errors.New("there are no watches")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Del("Accept-Encoding")
	response, err := a.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK || strings.HasPrefix(r.URL.Path, "/openapi") {
		return response, err
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if json.Unmarshal(content, &object) == nil && object["metadata"] != nil {
		kind, _ := object["kind"].(string)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.change(strings.TrimSuffix(kind, "List"), "", object)
		// A byte that is no UTF-8 cannot be in JSON, but in what is decoded from it.
		if content, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	response.Header.Set("Content-Length", strconv.Itoa(len(content)))
	return response, nil
}

func (a *hostileAPI) change(kind, path string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if !identities.Has(key) && key != "managedFields" {
				v[key] = a.change(kind, path+"."+key, inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = a.change(kind, path+"[]", v[i])
		}
	case string:
		a.fields.Insert(kind + path)
		if a.adds(kind, path) {
			return v + cmp.Or(a.text, hostileText)
		}
	}
	return value
}

// serve returns the configuration of clients.
func (a *hostileAPI) serve(t *testing.T) *rest.Config {
	t.Helper()
	config := apiserver.Config(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { a.RoundTripper = next; return a })
	return via(t, config, func(http.ResponseWriter, *http.Request) bool { return false })
}

// unprintable returns the first line with a character that is not printed as such, or a forged one, or "".
func unprintable(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(line, "forged") {
			return line
		}
	}
	return ""
}

// TestTextsOfObjectsCannotControlTheTerminal has every field of every kind that a command reads contain control
// sequences: all fields of one kind at a time, and each field of a Listener alone, because the value of one decides
// which others are shown.
func TestTextsOfObjectsCannotControlTheTerminal(t *testing.T) {
	w := newWorld(t)
	w.pod.Status.Phase = corev1.PodPending // so that its events are read
	w.updateStatus(t, w.pod)
	w.event(t, w.pod, "FailedMount", "the message of an event")
	commands := [][]string{
		{"get", "--namespace", w.namespace}, {"get", "--namespace", w.namespace, "--endpoints", "http"}, {"why", "web-0", "--namespace", w.namespace},
		{"why", "claim/web", "--namespace", w.namespace}, {"why", "listener/web", "--namespace", w.namespace}, {"doctor"}, {"migrate"},
		{"release", "web", "--namespace", w.namespace},
		{"get", "--namespace", w.namespace, "--watch"}, {"get", "--namespace", w.namespace, "--watch", "--output", "yaml"},
		{"map", "--namespace", w.namespace, "--output", "svg"},
		{"connect", "web-0", "--namespace", w.namespace, "--timeout", "1ms"}, {"connect", "listener/web", "--namespace", w.namespace, "--timeout", "1ms"},
	}
	ofListeners := slices.Concat(commands[:5], commands[8:])
	api := &hostileAPI{fields: sets.New[string](), adds: func(string, string) bool { return false }}
	config := api.serve(t)
	runAll := func(t *testing.T, commands [][]string) {
		t.Helper()
		for _, arguments := range commands {
			var written bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			api.mu.Lock()
			api.watched = cancel
			api.mu.Unlock()
			_, err := runUntil(ctx, t, config, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &written, ErrOut: &written}, &written, arguments...)
			cancel()
			if err != nil && !errors.Is(err, command.ErrProblem) {
				command.WriteError(&written, err)
			}
			if line := unprintable(written.String()); line != "" {
				t.Errorf("%v writes %q", arguments, line)
			}
		}
	}
	add := func(adds func(kind, path string) bool) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.adds = adds
	}
	readers := map[string][][]string{} // the commands that read a kind; nothing changes for the others
	ofListener := sets.New[string]()
	for _, c := range commands {
		runAll(t, [][]string{c}) // as it is
		api.mu.Lock()
		kinds := sets.New[string]()
		for field := range api.fields {
			kind, path, _ := strings.Cut(field, ".")
			if kinds.Insert(kind); kind == "Listener" {
				ofListener.Insert(path)
			}
		}
		clear(api.fields)
		api.mu.Unlock()
		for kind := range kinds {
			readers[kind] = append(readers[kind], c)
		}
	}
	for _, path := range sets.List(ofListener) {
		add(func(k, p string) bool { return k == "Listener" && p == "."+path })
		t.Run("Listener."+path, func(t *testing.T) { runAll(t, ofListeners) })
	}
	kinds := sets.KeySet(readers)
	if len(kinds) < 10 || !kinds.HasAll("Listener", "PodListeners", "Pod", "PersistentVolumeClaim", "Event") {
		t.Errorf("the commands read only %v", sets.List(kinds))
	}
	for _, kind := range sets.List(kinds) {
		add(func(k, _ string) bool { return k == kind })
		t.Run(kind, func(t *testing.T) { runAll(t, readers[kind]) })
	}
}

func TestErrorsOfSeveralLinesStayReadable(t *testing.T) {
	var out bytes.Buffer
	command.WriteError(&out, errors.New("unknown command \"wyh\"\n\nDid you mean this?\n\twhy\x1b[2J"))
	if want := "error: unknown command \"wyh\"\n\nDid you mean this?\n  why\\x1b[2J\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}
