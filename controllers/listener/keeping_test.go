package listener

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}
	owned := func(annotated bool, owners ...metav1.OwnerReference) func(*state) {
		return func(s *state) {
			if s.listener.OwnerReferences = owners; !annotated {
				delete(s.listener.Annotations, names.AnnotationKeptFor)
			}
		}
	}
	keepFor := func(d time.Duration) func(*state) {
		return func(s *state) { s.class.Spec.KeepFor = &metav1.Duration{Duration: d} }
	}
	ofAStatefulSet := func(s *state) {
		owned(true, set)(s)
		keepFor(decide.OrphanedPeriod)(s)
	}
	restored := func(s *state) { s.listener.Labels = map[string]string{names.LabelRestore: "nightly"} }
	pod, volume := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "gone"}, metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "pv", UID: "pv"}
	const waiting, notAccepted = listenersv1alpha1.ReasonWaitingForPods, listenersv1alpha1.ReasonNotAccepted
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		change      func(*state)
		reason      string
		kept        bool
	}{
		"node ports":           {nodePort, func(*state) {}, waiting, false},
		"a StatefulSet exists": {nodePort, owned(true, set), waiting, true},
		"a StatefulSet exists, of an earlier version":               {nodePort, owned(false, set, pod), waiting, true},
		"a StatefulSet exists, and the class keeps for ten minutes": {nodePort, ofAStatefulSet, waiting, false},
		"the class keeps for a day":                                 {nodePort, keepFor(24 * time.Hour), waiting, true},
		"a backup has no owners":                                    {nodePort, restored, waiting, true},
		"a load balancer":                                           {loadBalancer, func(*state) {}, listenersv1alpha1.ReasonReserved, false},
		"not accepted":                                              {nodePort, func(s *state) { s.listener.Spec.ClassName = nil }, notAccepted, false},
		"without a class":                                           {nodePort, func(s *state) { s.class = nil }, notAccepted, false},
		"the claim exists":                                          {nodePort, func(s *state) { s.with(newClaim(key.Name, "web-0")) }, waiting, true},
		"of a user":                                                 {nodePort, func(s *state) { s.listener.Annotations = nil }, waiting, true},
		"of a claim alone":                                          {nodePort, owned(false, volume), waiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := keptState(tc.serviceType).change(tc.change).replicas(t)
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
			check.Equal(t, "the Listener is kept after ten minutes", tc.kept, find[listenersv1alpha1.Listener](r, key.Name) != nil)
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

func TestListenerOfAFinishedPodIsDeleted(t *testing.T) {
	type of = func(*state, *corev1.Pod, *corev1.PersistentVolumeClaim)
	rejected := func(s *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) {
		pod.Status, s.service = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}, nil
	}
	inline := func(s *state, pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) {
		pvc.OwnerReferences = nil
		s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
		s.listener.Annotations = map[string]string{names.AnnotationClaim: key.Name}
	}
	another := newLabelledPod("other", "node-1", key.Name, corev1.PodRunning)
	for name, tc := range map[string]struct {
		change of
		kept   bool
	}{
		"that has succeeded": {func(*state, *corev1.Pod, *corev1.PersistentVolumeClaim) {}, false},
		"that its node has rejected, while the Listener was created": {rejected, false},
		"that runs": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) { pod.Status.Phase = corev1.PodRunning }, true},
		"that is being deleted, and maybe replaced": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) { terminating(pod) }, true},
		"of a StatefulSet, which replaces it": {func(_ *state, pod *corev1.Pod, _ *corev1.PersistentVolumeClaim) {
			pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
		}, true},
		"with a claim that other Pods may mount": {func(_ *state, _ *corev1.Pod, pvc *corev1.PersistentVolumeClaim) { pvc.OwnerReferences = nil }, true},
		"while another one mounts the claim":     {func(s *state, _ *corev1.Pod, _ *corev1.PersistentVolumeClaim) { s.with(another) }, true},
		"which a user has created":               {func(s *state, _ *corev1.Pod, _ *corev1.PersistentVolumeClaim) { s.listener.OwnerReferences = nil }, true},
		"with an inline volume":                  {inline, false},
		"of an earlier claim":                    {func(_ *state, _ *corev1.Pod, pvc *corev1.PersistentVolumeClaim) { pvc.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, pvc := newState(nodePort), newClaim(key.Name, "job")
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: pvc.Name, UID: pvc.UID}}
			pod := newLabelledPod("job", "node-1", key.Name, corev1.PodSucceeded)
			tc.change(s, pod, pvc)
			o := s.with(pod, pvc).operator(t, interceptor.Funcs{})
			o.reconcileAfter(0)
			check.Equal(t, "the Listener is kept", tc.kept, find[listenersv1alpha1.Listener](o, key.Name) != nil)
			if s.service == nil && find[corev1.Service](o, key.Name) != nil {
				t.Error("a Service was created")
			}
		})
	}
}
