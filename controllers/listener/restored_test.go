package listener

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
)

// A backup keeps labels and, if told so, node ports of a Service, but no owners, and no status of the Listener.
func TestAServiceFromABackupIsAdopted(t *testing.T) {
	labels := func() map[string]string {
		return map[string]string{
			"app.kubernetes.io/name": "listener", "app.kubernetes.io/instance": key.Name, "app.kubernetes.io/managed-by": "listeners.stackable.tech_listener",
			"velero.io/restore-name": "monday",
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Service)
		want   bool
	}{
		"restored":                     {func(*corev1.Service) {}, true},
		"written by a user":            {func(s *corev1.Service) { s.Labels = nil }, false},
		"of another Listener":          {func(s *corev1.Service) { s.Labels["app.kubernetes.io/instance"] = "other" }, false},
		"of another operator":          {func(s *corev1.Service) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" }, false},
		"of a Listener's copy by hand": {func(s *corev1.Service) { s.Labels["app.kubernetes.io/name"] = "web" }, false},
		"with another owner": {func(s *corev1.Service) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(nodePort).with(newNode("node-1", "10.0.0.1"), newVolume("pv-1", lastMountedOn("node-1")))
			s.service.OwnerReferences, s.service.Labels = nil, labels()
			tc.change(s.service)
			o := s.operator(t, interceptor.Funcs{})
			listener, service := o.reconcile(key.Name), get[corev1.Service](o, key.Name)
			if got := observe.Controls(listener, service); got != tc.want || service.UID != "service-uid" || service.Spec.Ports[0].NodePort != 30080 {
				t.Errorf("controlled by the Listener: %v, want %v; the Service is %+v", got, tc.want, service)
			}
			accepted := observe.Condition(listener, listenersv1alpha1.ListenerAccepted)
			if foreign := accepted.Reason == listenersv1alpha1.ReasonForeignService; foreign == tc.want {
				t.Errorf("condition Accepted: %s: %s", accepted.Reason, accepted.Message)
			}
			if tc.want && ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).NodePorts["http"] != 30080 {
				t.Errorf("the status is %+v", listener.Status)
			}
		})
	}
}
