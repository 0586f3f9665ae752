package listener_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// statuses records the statuses that a client applies.
type statuses struct {
	next    http.RoundTripper
	mu      sync.Mutex
	applied []string
}

func (s *statuses) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/listeners/web/status") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		s.applied = append(s.applied, r.URL.Path+" "+string(body))
		s.mu.Unlock()
	}
	return s.next.RoundTrip(r)
}

// of returns the statuses in a namespace.
func (s *statuses) of(namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for _, status := range s.applied {
		if strings.Contains(status, "/namespaces/"+namespace+"/") {
			found = append(found, status)
		}
	}
	return found
}

// A Pod whose volume is not pinned runs when the operator takes over from Stackable's. Its PodListeners does not name
// its node, and no status ever lacks the address.
func TestAddressesStayUntilPodListenersAreWrittenAgain(t *testing.T) {
	stopProcess(t)
	g, c, namespace := NewWithT(t), apiserver.Client(t), apiserver.Namespace(t)
	node := objects.Node("node-" + namespace)
	g.Expect(c.Create(t.Context(), node)).To(Succeed())
	node.Status.Addresses = []corev1.NodeAddress{objects.InternalIP("10.77.0.1")}
	g.Expect(c.Status().Update(t.Context(), node)).To(Succeed())
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "unpinned-" + namespace}, Spec: ofType(nodePort),
	}
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class.Name, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	g.Expect(c.Create(t.Context(), class)).To(Succeed())
	g.Expect(c.Create(t.Context(), l)).To(Succeed())
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + namespace, Labels: map[string]string{names.LabelListenerNamespace: namespace, names.LabelListenerName: "web"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			ClaimRef:    &corev1.ObjectReference{Namespace: namespace, Name: "listener-web-0", UID: "claim-uid"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeHandle: "handle"},
			},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0", Labels: map[string]string{names.PodMountLabel(l.UID): "web"}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "web", Image: "web"}},
			Volumes: []corev1.Volume{objects.ClaimVolume("listener", "listener-web-0")},
		},
	}
	g.Expect(c.Create(t.Context(), volume)).To(Succeed())
	g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	g.Expect(c.Create(t.Context(), &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "pod-" + string(pod.UID),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{"listener": {
			Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: []listenersv1alpha1.IngressAddress{{
				Address: "10.77.0.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 30080},
			}},
		}}},
	})).To(Succeed())

	cfg, recorded := apiserver.Config(t), &statuses{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { recorded.next = next; return recorded })
	f := newFixtureWith(t, settings{config: cfg}, ofType(clusterIP))
	f.key = client.ObjectKeyFromObject(l)
	f.eventuallyAddresses("10.77.0.1")
	applied := recorded.of(namespace)
	f.Expect(applied).NotTo(BeEmpty())
	for _, status := range applied {
		if strings.Contains(status, `"nodePorts":{`) { // the Service has its node ports
			f.Expect(status).To(ContainSubstring(`"10.77.0.1"`))
		}
	}
}
