package listener

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// keptState is the Listener of an ephemeral claim between two Pods of a StatefulSet.
func keptState(serviceType listenersv1alpha1.ServiceType) *state {
	return newState(serviceType).change(func(s *state) {
		s.listener.Annotations = map[string]string{names.AnnotationClaim: key.Name}
		s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}}
		if serviceType == listenersv1alpha1.ServiceTypeLoadBalancer {
			s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}
	})
}

// A Listener that is kept for a Pod is deleted after ten minutes, with or without addresses, also if the operator
// restarts, or cannot expose the Listener.
func TestAListenerThatIsKeptForAPodIsDeletedIfThatDoesNotCome(t *testing.T) {
	const nodePort, loadBalancer = listenersv1alpha1.ServiceTypeNodePort, listenersv1alpha1.ServiceTypeLoadBalancer
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		change      func(*state)
		reason      string
		kept        bool
	}{
		"node ports": {serviceType: nodePort, reason: listenersv1alpha1.ReasonWaitingForPods},
		"an inline volume": {serviceType: nodePort, change: func(s *state) {
			s.listener.OwnerReferences = append(s.listener.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "gone"})
		}, reason: listenersv1alpha1.ReasonWaitingForPods},
		"a load balancer":  {serviceType: loadBalancer, reason: listenersv1alpha1.ReasonReserved},
		"not accepted":     {serviceType: nodePort, change: func(s *state) { s.listener.Spec.ClassName = nil }, reason: listenersv1alpha1.ReasonNotAccepted},
		"without a class":  {serviceType: nodePort, change: func(s *state) { s.class = nil }, reason: listenersv1alpha1.ReasonNotAccepted},
		"the claim exists": {serviceType: nodePort, change: func(s *state) { s.with(newClaim(key.Name, "web-0")) }, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"of a user":        {serviceType: nodePort, change: func(s *state) { s.listener.Annotations = nil }, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
		"of a claim alone": {serviceType: nodePort, change: func(s *state) {
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: "pv", UID: "pv"}}
		}, reason: listenersv1alpha1.ReasonWaitingForPods, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := keptState(tc.serviceType)
			if tc.change != nil {
				tc.change(s)
			}
			r := s.replicas(t)
			r.settler.idle = idlePeriod
			r.reconcileAfter(0)
			r.reconcileAfter(idlePeriod)
			ready := condition(r.listener(), listenersv1alpha1.ListenerReady)
			if ready.Reason != tc.reason || strings.Contains(ready.Message, "deleted if there is none for 10 minutes") == tc.kept {
				t.Errorf("condition Ready: %s: %s", ready.Reason, ready.Message)
			}
			r.reconcileAfter(keptPeriod - 2*idlePeriod)
			r.restart()
			again, _ := r.reconcileAfter(0)
			r.listener()
			if !tc.kept && (again <= 0 || again > 2*idlePeriod) {
				t.Errorf("looks again after %s", again)
			}
			r.now.SetTime(r.now.Now().Add(2 * idlePeriod))
			if _, err := r.Reconcile(t.Context(), r.listener()); err != nil {
				t.Fatal(err)
			}
			if err := r.Client.Get(t.Context(), key, &listenersv1alpha1.Listener{}); (err == nil) != tc.kept {
				t.Errorf("after ten minutes, the Listener is kept: %v", err == nil)
			}
		})
	}
}

// The next claim may just have become an owner of the Listener, which the cache does not have yet.
func TestAListenerThatHasChangedIsNotDeleted(t *testing.T) {
	r := keptState(listenersv1alpha1.ServiceTypeNodePort).replicas(t)
	r.reconcileAfter(0)
	stale := r.listener()
	changed := stale.DeepCopy()
	changed.Labels = map[string]string{"changed": "true"}
	if err := r.Client.Patch(t.Context(), changed, client.MergeFrom(stale)); err != nil {
		t.Fatal(err)
	}
	r.now.SetTime(r.now.Now().Add(time.Hour))
	if _, err := r.Reconcile(t.Context(), stale); err == nil {
		t.Error("the Listener was deleted")
	}
	r.listener()
}
