package main

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// When many Pods start at once, each write delays all of them. Only the number of writes of the status for a claim
// depends on timing: it is one if the Pod has its label before the Service has its node ports, as usual, or else two.
func TestAPodWithAFreshVolumeTakesFewWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		create            func(t *testing.T, c client.Client, namespace, name string) error
		statuses          int
		persistentVolumes int
	}{
		"ephemeral claim": {createPodWithFreshClaim, 2, 1},
		"inline volume":   {createPodWithInlineVolume, 1, 0},
	} {
		t.Run(name, func(t *testing.T) { testWrites(t, tc.create, tc.statuses, tc.persistentVolumes) })
	}
}

// testWrites counts the writes for Pods. statuses is how many of a status each may take at most.
func testWrites(t *testing.T, create func(t *testing.T, c client.Client, namespace, name string) error, statuses, persistentVolumes int) {
	t.Helper()
	const pods = 10
	g, m := NewWithT(t), newModel(t)
	c, namespace := m.Client, m.namespace
	m.create(&listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
	})
	m.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-1"}})
	cfg, counted := apiserver.Config(t), &writeCounter{namespace: namespace, byKind: map[string]int{}}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { counted.next = next; return counted })
	startOperator(t, cfg, namespace, settling.Period)
	for i := range pods {
		g.Expect(create(t, c, namespace, fmt.Sprintf("web-%d", i))).To(Succeed())
	}
	g.Eventually(func() (complete int) {
		var listeners listenersv1alpha1.ListenerList
		g.Expect(c.List(t.Context(), &listeners, client.InNamespace(namespace))).To(Succeed())
		for i := range listeners.Items {
			if s := listeners.Items[i].Status; s != nil && len(s.IngressAddresses) > 0 {
				complete++
			}
		}
		var published listenersv1alpha1.PodListenersList
		g.Expect(c.List(t.Context(), &published, client.InNamespace(namespace))).To(Succeed())
		return min(complete, len(published.Items))
	}).WithTimeout(apiserver.Timeout).Should(Equal(pods))
	got := counted.all()
	if count := got["PATCH listeners/status"]; count < pods || count > statuses*pods {
		t.Errorf("%d writes of a status", count)
	}
	maps.DeleteFunc(got, func(what string, _ int) bool {
		return what == "PATCH listeners/status" || strings.Contains(what, "admissionpolic") || what == "PATCH secrets" // at the start
	})
	want := map[string]int{"PATCH listeners": pods, "PATCH services": pods, "PATCH pods": pods, "POST podlisteners": pods}
	if persistentVolumes > 0 {
		want["POST persistentvolumes"] = persistentVolumes * pods
	}
	check.Equal(t, "writes", want, got)
}

// createPodWithFreshClaim creates a Pod with an ephemeral volume, and its claim, as Kubernetes does.
func createPodWithFreshClaim(t *testing.T, c client.Client, namespace, name string) error {
	t.Helper()
	annotations := map[string]string{names.AnnotationListenerClass: namespace}
	pod := newPod(namespace, name, objects.EphemeralVolume("listener", annotations))
	if err := c.Create(t.Context(), pod); err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: pod.UID, Controller: ptr.To(true)}
	return c.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name + "-listener", Annotations: annotations, OwnerReferences: []metav1.OwnerReference{owner},
	}, Spec: objects.ClaimSpec("")})
}

func createPodWithInlineVolume(t *testing.T, c client.Client, namespace, name string) error {
	t.Helper()
	return c.Create(t.Context(), newPod(namespace, name, objects.InlineVolume("listener", map[string]string{names.AnnotationListenerClass: namespace})))
}

func newPod(namespace, name string, volume corev1.Volume) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
		Volumes:    []corev1.Volume{volume},
	}}
}

// writeCounter counts the requests of a client that the API server has accepted and that are no reads, apart from those
// for other namespaces, where other tests leave objects.
type writeCounter struct {
	next      http.RoundTripper
	namespace string
	mu        sync.Mutex
	byKind    map[string]int
}

// RoundTrip implements http.RoundTripper.
func (w *writeCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	_, in, namespaced := strings.Cut(request.URL.Path, "/namespaces/")
	elsewhere := namespaced && !strings.HasPrefix(in, w.namespace+"/")
	if err != nil || elsewhere || request.Method == http.MethodGet || response.StatusCode >= http.StatusBadRequest {
		return response, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKind[request.Method+" "+resourceOf(request.URL.Path)]++
	return response, nil
}

// resourceOf returns the resource and the subresource of a path of the API server.
func resourceOf(path string) string {
	parts := strings.Split(path, "/")[3:] // without api and version
	if strings.HasPrefix(path, "/apis/") {
		parts = parts[1:] // without the group
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

func (w *writeCounter) all() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.byKind)
}
