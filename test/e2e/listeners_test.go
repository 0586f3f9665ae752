//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Service, addresses and files stay, a condition of the Listener reports the missing class, and a Pod that starts again
// gets the address of its node.
func TestListenersKeepTheirAddressesWhenTheClassIsDeleted(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(statefulSet("web", 1, byClass(class.Name)))
	first, own := s.awaitReachable("web-0")
	s.remove(class)
	message := s.awaitCondition("listener-web-0", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonClassNotFound)
	t.Logf("condition: %s", message)
	l := s.awaitListener("listener-web-0", 1)
	if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{own}, l.Status.IngressAddresses); diff != "" {
		t.Errorf("addresses (-before +after):\n%s", diff)
	}
	s.awaitAnswer(own, "web-0")
	s.checkFilesAt(own)
	s.remove(first)
	again := s.awaitPodListener(s.awaitReady("web-0", first), "listener").IngressAddresses[0]
	s.awaitAnswer(again, "web-0")
	if again.Ports["http"] != own.Ports["http"] {
		t.Errorf("the node port is %d, and was %d", again.Ports["http"], own.Ports["http"])
	}
}

// A class for another namespace gives a Pod no Service until the namespace is allowed, and a Listener that overrides
// more than the class allows keeps what it has.
func TestTheClassLimitsWhoUsesItAndHow(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	spec := unpinned()
	spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"scenario": s.namespace}}}
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonNamespaceNotAllowed, "does not allow namespace "+s.namespace)
	var services corev1.ServiceList
	if err := api.List(s.ctx, &services, client.InNamespace(s.namespace)); err != nil || len(services.Items) > 0 {
		t.Errorf("there are %d Services (%v)", len(services.Items), err)
	}
	namespace := mustGet(s, &corev1.Namespace{}, client.ObjectKey{Name: s.namespace})
	s.patch(namespace, func() {
		namespace.Labels = maps.Clone(namespace.Labels)
		namespace.Labels["scenario"] = s.namespace
	})
	_, own := s.awaitReachable("web")

	l := mustGet(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	s.patch(l, func() {
		l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web-listener","namespace":%q},"spec":{"type":"LoadBalancer","externalIPs":["192.0.2.1"]}}`, s.namespace)}}
	})
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidOverrides)
	if !strings.Contains(message, "spec.externalIPs") {
		t.Errorf("the condition does not name the field: %s", message)
	}
	s.awaitAnswer(own, "web")
}

// A Service with the Listener's name that the operator has not created is not changed. Once it is deleted, the operator
// creates its own.
func TestForeignServiceIsNeverModified(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web-listener", Labels: map[string]string{"owner": "user"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	}
	s.create(foreign)
	s.create(pod("web", byClass(class.Name)))
	t.Logf("condition: %s", s.awaitCondition("web-listener",
		listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonForeignService))
	after := mustGet(s, &corev1.Service{}, client.ObjectKeyFromObject(foreign))
	if after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the Service was changed: %+v", after)
	}
	s.remove(foreign)
	s.awaitReachable("web")
}

// An administrator deletes the Listener of a running Pod. The operator creates it again, and a Service for it as soon
// as Kubernetes has deleted the earlier one, and nobody has to do anything.
func TestADeletedListenerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, _ := s.createReachablePod()
	deleted := s.awaitListener("web-listener", 1)
	s.remove(deleted)
	again := mustAwait(s, &listenersv1alpha1.Listener{}, s.key("web-listener"), func(l *listenersv1alpha1.Listener) bool {
		return l.UID != deleted.UID && l.Status != nil && len(l.Status.IngressAddresses) == 1
	})
	s.awaitAnswer(again.Status.IngressAddresses[0], "web")
	s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
		return cmp.Equal(entry.IngressAddresses, again.Status.IngressAddresses)
	})
	var events eventsv1.EventList
	s.must(api.List(s.ctx, &events, client.InNamespace(s.namespace)))
	for i := range events.Items {
		e := &events.Items[i]
		// Its Pod started with the node ports of the deleted one.
		expected := e.Type == corev1.EventTypeNormal || e.Reason == listenersv1alpha1.ReasonPodsOutdated
		if e.Regarding.Name == "web-listener" && e.Regarding.Kind == "Listener" && !expected {
			t.Errorf("event %s: %s", e.Reason, e.Note)
		}
	}
}

// Clients reach the Pod at the same address and port when an administrator has deleted its Service, and neither the
// status of the Listener nor the files of the Pod change.
func TestADeletedServiceGetsItsNodePortsAgain(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	_, p, own := s.createReachablePod()
	before := s.awaitListener("web-listener", 1)
	deleted := mustGet(s, &corev1.Service{}, s.key("web-listener"))
	if out, err := kubectl(s.timeoutContext(), "--namespace", s.namespace, "delete", "service", deleted.Name); err != nil {
		t.Fatalf("deleting the Service: %v\n%s", err, out)
	}
	again := mustAwait(s, &corev1.Service{}, s.key(deleted.Name), func(service *corev1.Service) bool { return service.UID != deleted.UID })
	for _, port := range deleted.Spec.Ports {
		if got := nodePort(again, port.Name); got != port.NodePort {
			t.Errorf("the node port of %s is %d, want %d", port.Name, got, port.NodePort)
		}
	}
	s.awaitAnswer(own, "web")
	s.awaitFilesAt(own, own) // kube-proxy may not have followed the deletion yet when the Pod answers
	if diff := cmp.Diff(before.Status, s.awaitListener("web-listener", 1).Status); diff != "" {
		t.Errorf("status of the Listener (-before +after):\n%s", diff)
	}
	s.checkNotRestarted(p)
}
