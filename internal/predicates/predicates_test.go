package predicates_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
)

func TestOnlyTheInitialListIsDropped(t *testing.T) {
	p, service := predicates.NotInInitialList(), &corev1.Service{}
	if p.Create(event.CreateEvent{Object: service, IsInInitialList: true}) {
		t.Error("an object of the initial list is passed")
	}
	if !p.Create(event.CreateEvent{Object: service}) || !p.Update(event.UpdateEvent{ObjectOld: service, ObjectNew: service}) ||
		!p.Delete(event.DeleteEvent{Object: service}) || !p.Generic(event.GenericEvent{Object: service}) {
		t.Error("a later event is dropped")
	}
}

func TestNodesPassWhenTheirAddressesChange(t *testing.T) {
	p, before := predicates.NodeAddressesChanged(), &corev1.Node{}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":          {func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		"another annotation": {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"address":            {func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} }, true},
		"advertised address": {func(n *corev1.Node) {
			n.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "192.0.2.1"}
		}, true},
	} {
		after := before.DeepCopy()
		tc.change(after)
		if got := p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s passes: %t", name, got)
		}
	}
}

func TestNodesPassWhenTheyAreNoLongerReady(t *testing.T) {
	p := predicates.NodeReadinessChanged()
	node := func(status corev1.ConditionStatus, reason string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}}}
	}
	for name, tc := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"a heartbeat":                 {node(corev1.ConditionTrue, "a"), node(corev1.ConditionTrue, "b"), false},
		"the kubelet is silent":       {node(corev1.ConditionTrue, ""), node(corev1.ConditionUnknown, ""), true},
		"the kubelet reports a fault": {node(corev1.ConditionUnknown, ""), node(corev1.ConditionFalse, ""), false},
		"the node is back":            {node(corev1.ConditionFalse, ""), node(corev1.ConditionTrue, ""), true},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s passes: %t", name, got)
		}
	}
}

func TestNodesPassWhenTheyMayTakeOtherPods(t *testing.T) {
	p, before := predicates.NodeSchedulingChanged(), &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}}}}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat":  {func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }, false},
		"address":    {func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} }, false},
		"cordoned":   {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"label":      {func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }, true},
		"taint":      {func(n *corev1.Node) { n.Spec.Taints[0].Key = "b" }, true},
		"taint ends": {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			tc.change(after)
			if got := p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %t", got)
			}
		})
	}
	if !p.Create(event.CreateEvent{Object: before}) || !p.Delete(event.DeleteEvent{Object: before}) {
		t.Error("a Node that is created or deleted does not pass")
	}
}

func TestVolumesAndClaimsPassUnlessOnlyTheirStatusChanges(t *testing.T) {
	p := predicates.StatusIgnored()
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim)
		want   bool
	}{
		"status": {func(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) {
			pv.Status.Phase, pvc.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
			pv.ManagedFields, pvc.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a"}}, []metav1.ManagedFieldsEntry{{Manager: "a"}}
		}, false},
		"spec": {func(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) {
			pv.Spec.StorageClassName, pvc.Spec.VolumeName = "a", "a"
		}, true},
		"label": {func(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) {
			pv.Labels, pvc.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		}, true},
		"deletion": {func(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) {
			pv.DeletionTimestamp, pvc.DeletionTimestamp = ptr.To(metav1.Now()), ptr.To(metav1.Now())
		}, true},
	} {
		pv, pvc := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}
		pv.ResourceVersion, pvc.ResourceVersion = "2", "2"
		tc.change(pv, pvc)
		ofVolume := p.Update(event.UpdateEvent{ObjectOld: &corev1.PersistentVolume{}, ObjectNew: pv})
		ofClaim := p.Update(event.UpdateEvent{ObjectOld: &corev1.PersistentVolumeClaim{}, ObjectNew: pvc})
		if ofVolume != tc.want || ofClaim != tc.want {
			t.Errorf("%s: that of a volume passes: %t; that of a claim passes: %t", name, ofVolume, ofClaim)
		}
	}
	same := &corev1.PersistentVolume{}
	if !p.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: same}) || !p.Create(event.CreateEvent{Object: same}) || !p.Delete(event.DeleteEvent{Object: same}) {
		t.Error("a volume that is repeated, created or deleted does not pass")
	}
}
