package listener

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/names"
)

// keptState is the Listener of an ephemeral claim between two Pods of a StatefulSet that was deleted without its Pods.
func keptState(serviceType listenersv1alpha1.ServiceType) *state {
	return newState(serviceType).change(func(s *state) {
		s.listener.Annotations = map[string]string{names.AnnotationClaim: key.Name, names.AnnotationKeptFor: "web-0"}
		if serviceType == loadBalancer {
			s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}
	})
}

// A Listener that is kept for a Pod is deleted after ten minutes if nothing owns it, with or without addresses, also if
// the operator cannot expose it. While the StatefulSet or what controls that exists, it stays, unless its class
// differs.
func TestAListenerThatIsKeptForAPodIsDeletedIfThatDoesNotCome(t *testing.T) {
	set := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}}
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		change      func(*state)
		reason      string
		kept        bool
	}{
		"node ports": {serviceType: nodePort, reason: listenersv1alpha1.ReasonWaitingForPods},
		"a StatefulSet exists": {serviceType: nodePort, change: func(s *state) {
			s.listener.OwnerReferences = set
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"a StatefulSet exists, of an earlier version": {serviceType: nodePort, change: func(s *state) {
			s.listener.OwnerReferences = append(set, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "gone"})
			delete(s.listener.Annotations, names.AnnotationKeptFor)
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"a StatefulSet exists, and the class keeps for ten minutes": {serviceType: nodePort, change: func(s *state) {
			s.listener.OwnerReferences, s.class.Spec.KeepFor = set, &metav1.Duration{Duration: decide.OrphanedPeriod}
		}, reason: listenersv1alpha1.ReasonWaitingForPods},
		"the class keeps for a day": {serviceType: nodePort, change: func(s *state) {
			s.class.Spec.KeepFor = &metav1.Duration{Duration: 24 * time.Hour}
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"a backup has no owners": {serviceType: nodePort, change: func(s *state) {
			s.listener.Labels = map[string]string{names.LabelRestore: "nightly"}
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"a load balancer":  {serviceType: loadBalancer, reason: listenersv1alpha1.ReasonReserved},
		"not accepted":     {serviceType: nodePort, change: func(s *state) { s.listener.Spec.ClassName = nil }, reason: listenersv1alpha1.ReasonNotAccepted},
		"without a class":  {serviceType: nodePort, change: func(s *state) { s.class = nil }, reason: listenersv1alpha1.ReasonNotAccepted},
		"the claim exists": {serviceType: nodePort, change: func(s *state) { s.with(newClaim(key.Name, "web-0")) }, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"of a user":        {serviceType: nodePort, change: func(s *state) { s.listener.Annotations = nil }, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"of a claim alone": {serviceType: nodePort, change: func(s *state) {
			delete(s.listener.Annotations, names.AnnotationKeptFor)
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: "pv", UID: "pv"}}
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := keptState(tc.serviceType)
			if tc.change != nil {
				tc.change(s)
			}
			r := s.replicas(t)
			r.settler.Idle = settle.IdlePeriod
			r.reconcileAfter(0)
			r.reconcileAfter(settle.IdlePeriod)
			ready := observe.Condition(r.listener(), listenersv1alpha1.ListenerReady)
			if ready.Reason != tc.reason || strings.Contains(ready.Message, "deleted if there is none for 10m") == tc.kept {
				t.Errorf("condition Ready: %s: %s", ready.Reason, ready.Message)
			}
			r.reconcileAfter(decide.OrphanedPeriod - 2*settle.IdlePeriod)
			again, _ := r.reconcileAfter(0)
			if !tc.kept && (again <= 0 || again > 2*settle.IdlePeriod) {
				t.Errorf("looks again after %s", again)
			}
			r.reconcileAfter(2 * settle.IdlePeriod)
			if kept := find[listenersv1alpha1.Listener](r, key.Name) != nil; kept != tc.kept {
				t.Errorf("after ten minutes, the Listener is kept: %v", kept)
			}
		})
	}
}

// The next claim may just have become an owner of the Listener, which the cache does not have yet.
func TestAListenerThatHasChangedIsNotDeleted(t *testing.T) {
	r := keptState(nodePort).replicas(t)
	r.reconcileAfter(0)
	r.reconcileAfter(0)
	stale := r.listener()
	change(r, key.Name, func(l *listenersv1alpha1.Listener) { l.Labels = map[string]string{"changed": "true"} })
	r.now.SetTime(r.now.Now().Add(time.Hour))
	if _, err := r.Reconcile(t.Context(), stale); err == nil {
		t.Error("the Listener was deleted")
	}
	r.listener()
}

// The StatefulSet may have no replicas for days. It is deleted without its Pods, to be created again, and the operator
// may restart then.
func TestAListenerThatWasKeptForDaysStaysForTenMinutesWhenItsStatefulSetIsCreatedAgain(t *testing.T) {
	s := keptState(nodePort)
	s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}}
	r := s.replicas(t)
	r.reconcileAfter(0)
	r.reconcileAfter(48 * time.Hour)
	change(r, key.Name, func(l *listenersv1alpha1.Listener) { l.OwnerReferences = nil })
	r.reconcileAfter(0)
	r.restart()
	if again, _ := r.reconcileAfter(0); again <= 0 || again > decide.OrphanedPeriod {
		t.Errorf("looks again after %s", again)
	}
	r.reconcileAfter(decide.OrphanedPeriod - time.Second)
	r.reconcileAfter(time.Second)
	if find[listenersv1alpha1.Listener](r, key.Name) != nil {
		t.Error("the Listener is kept after ten minutes")
	}
}
