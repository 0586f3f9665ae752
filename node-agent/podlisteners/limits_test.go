package podlisteners_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
)

// large returns an object with everything that others may write, and what the cache keeps of it.
func large() (object, kept *listenersv1alpha1.PodListeners) {
	object = listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: "shop", Name: "web-0"}, "uid", "node-1")
	object.ResourceVersion, object.Annotations, object.Finalizers = "7", map[string]string{"a": "b"}, []string{"example.com/f"}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	for i := range 200 {
		object.Spec.Listeners[fmt.Sprintf("v%03d", i)] = entry(fmt.Sprintf("pvc-%d", i), "192.0.2.1")
	}
	object.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"v000": addresses("192.0.2.1")}
	object.Spec.Summary, object.Spec.RestartOnChange = "v000=192.0.2.1", []string{"v000"}

	kept = &listenersv1alpha1.PodListeners{
		TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-uid", ResourceVersion: "7"},
		Spec: listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{}},
	}
	for i := range 16 {
		kept.Spec.Listeners[fmt.Sprintf("v%03d", i)] = object.Spec.Listeners[fmt.Sprintf("v%03d", i)]
	}
	return object, kept
}

func TestTheCacheKeepsWhatMountsNeed(t *testing.T) {
	watch, err := podlisteners.NewWatch(&rest.Config{}, "node-1")
	check.Must(t, err)
	object, kept := large()
	check.Must(t, watch.Receive(object))
	if diff := cmp.Diff(kept, object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A list that ends early must not be taken for the whole.
func TestAListIsReadObjectByObject(t *testing.T) {
	object, kept := large()
	raw, err := json.Marshal(listenersv1alpha1.PodListenersList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []listenersv1alpha1.PodListeners{*object, *object}})
	check.Must(t, err)
	var size atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("fieldSelector"); got != "spec.nodeName=node-1" {
			t.Errorf("objects of %q are listed", got)
		}
		_, _ = w.Write(raw[:size.Load()])
	}))
	defer server.Close()
	watch, err := podlisteners.NewWatch(&rest.Config{Host: server.URL, QPS: -1}, "node-1")
	check.Must(t, err)
	for cut := 0; cut < len(raw); cut += max(1, min(len(raw)-cut-20, 997)) { // also the last bytes one by one
		size.Store(int64(cut))
		if list, err := watch.List(t.Context()); err == nil {
			t.Fatalf("%d of %d bytes are taken for a list of %d objects", cut, len(raw), len(list.Items))
		}
	}
	size.Store(int64(len(raw)))
	list, err := watch.List(t.Context())
	check.Must(t, err)
	want := &listenersv1alpha1.PodListenersList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []listenersv1alpha1.PodListeners{*kept, *kept}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFewMountsOfAPodWait(t *testing.T) {
	watch, err := podlisteners.NewWatch(&rest.Config{}, "node-1")
	check.Must(t, err)
	object, _ := large()
	object.Spec.Listeners["v000"] = entry("pvc-0", "")
	check.Must(t, watch.Receive(object))
	pod := podlisteners.Pod{Namespace: "shop", Name: "web-0", UID: "uid"}
	results := make(chan error)
	for range 5 {
		go func() {
			_, err := watch.Addresses(t.Context(), pod, "pvc-0")
			results <- err
		}()
	}
	if err := <-results; !errors.Is(err, podlisteners.ErrNoAddress) || !strings.Contains(err.Error(), "4 other volumes") {
		t.Errorf("one of five mounts ended with %v", err)
	}
	// Known addresses are not waited for.
	if got, err := watch.Addresses(t.Context(), pod, "pvc-1"); err != nil || len(got) != 1 {
		t.Errorf("another volume has addresses %v, %v", got, err)
	}
	object = object.DeepCopy()
	object.Spec.Listeners["v000"] = entry("pvc-0", "192.0.2.1")
	check.Must(t, watch.Receive(object))
	for range 4 {
		if err := <-results; err != nil {
			t.Errorf("a mount that waited ended with %v", err)
		}
	}
}
