package listener

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/names"
)

// A Listener has reservations on the nodes of its volumes and of the Pods that mount them.
func TestReservedNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		state *state
		want  []string
	}{
		"nodes that volumes are pinned to or were mounted on": {
			newState(nodePort).with(newVolume("pv-1", lastMountedOn("b")), newVolume("pv-2", pinnedTo("a"))),
			[]string{"a", "b"},
		},
		"current mount takes precedence over the last mount": {
			newState(nodePort).with(newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1"), newPod("1", corev1.PodPending)),
			[]string{"b"},
		},
		"Pod that was deleted does not mount, although its PodListeners exists": {
			newState(nodePort).with(newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1")),
			[]string{"a"},
		},
		"copy of a Pod with a controller does not count": {
			newState(nodePort).with(newClaim(key.Name, ""), newVolume("pv-1", boundTo(key.Name, func(*corev1.PersistentVolume) {}))).change(func(s *state) {
				ofClaim(s.listener, "")
				original := newLabelledPod("1", "a", key.Name, corev1.PodRunning)
				original.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true)}}
				s.with(newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), original, newLabelledPod("2", "b", key.Name, corev1.PodRunning))
			}),
			[]string{"a"},
		},
		"copy of a Pod of a StatefulSet does not count, even while that does not exist": {
			newState(nodePort).with(newClaim(key.Name, ""), newVolume("pv-1", boundTo(key.Name, lastMountedOn("a")))).change(func(s *state) {
				ofClaim(s.listener, "web-0")
				s.with(newMount("2", "b", "pv-1"), newLabelledPod("2", "b", key.Name, corev1.PodRunning))
			}),
			[]string{"a"},
		},
		"Pods without a controller all count": {
			newState(nodePort).with(newClaim(key.Name, ""), newVolume("pv-1", boundTo(key.Name, func(*corev1.PersistentVolume) {}))).change(func(s *state) {
				ofClaim(s.listener, "")
				s.with(newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), newLabelledPod("1", "a", key.Name, corev1.PodRunning), newLabelledPod("2", "b", key.Name, corev1.PodRunning))
			}),
			[]string{"a", "b"},
		},
		"pinned node takes precedence over mounts": {
			newState(nodePort).with(newVolume("pv-1", pinnedTo("a")), newMount("1", "b", "pv-1"), newPod("1", corev1.PodRunning), newVolume("pv-2", func(pv *corev1.PersistentVolume) {
				pinnedTo("a")(pv)
				lastMountedOn("c")(pv)
			})),
			[]string{"a"},
		},
		"volume mounted by several Pods": {
			newState(nodePort).with(newVolume("pv-1", nil), newMount("1", "b", "pv-1"), newMount("2", "a", "pv-1"), newPod("1", corev1.PodRunning), newPod("2", corev1.PodRunning)),
			[]string{"a", "b"},
		},
		"Pod that mounts a volume which does not exist any more": {
			newState(nodePort).with(newMount("1", "a", "pv-1"), newPod("1", corev1.PodRunning)).
				change(func(s *state) {
					another := newMount("2", "b", "pv-2") // a Pod with a volume of this Listener and one of another one
					another.Spec.Listeners["another"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: "pv-3", ListenerName: "another"}
					s.others = append(s.others, another, newPod("2", corev1.PodRunning), newVolume("pv-2", pinnedTo("a")))
				}),
			[]string{"a"},
		},
		"Pods with the label of the Listener, before the PodListeners of Stackable's operator are written again": {
			newState(nodePort).with(newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", func(*corev1.PersistentVolume) {})),
				newMount("1", "", ""), newLabelledPod("1", "a", "pvc-1", corev1.PodRunning),
				newMount("2", "b", "pv-1"), newLabelledPod("2", "b", "pvc-1", corev1.PodRunning),
				newLabelledPod("3", "c", "pvc-1", corev1.PodSucceeded), newLabelledPod("4", "d", "another", corev1.PodRunning), newLabelledPod("5", "", "pvc-1", corev1.PodPending)),
			[]string{"a", "b"},
		},
		"Pod with the label of another Listener, or without one, before its PodListeners are written": {
			newState(nodePort).with(newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", func(*corev1.PersistentVolume) {}))).change(func(s *state) {
				other := newLabelledPod("1", "a", "pvc-1", corev1.PodRunning)
				other.Labels = map[string]string{names.PodMountLabel("another-uid"): "another"}
				s.others = append(s.others, other)
			}),
			[]string{},
		},
		"finished Pod does not mount": {
			newState(nodePort).with(newVolume("pv-1", lastMountedOn("a")), newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), newPod("1", corev1.PodFailed), newPod("2", corev1.PodRunning)),
			[]string{"b"},
		},
		"volume of a finished Pod stays reserved for the next Pod": {
			newState(nodePort).with(newClaim("pvc-1", ""),
				newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodFailed)),
			[]string{"a"},
		},
		"ephemeral volume of a finished Pod": {
			newState(nodePort).with(newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodSucceeded),
				newClaim("pvc-2", "2"), newVolume("pv-2", boundTo("pvc-2", lastMountedOn("b"))), newMount("2", "b", "pv-2"), newPod("2", corev1.PodRunning)),
			[]string{"b"},
		},
		"ephemeral volume of a deleted Pod": {
			newState(nodePort).with(newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a")))),
			[]string{},
		},
		"volume of a deleted claim": {
			newState(nodePort).with(newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))),
				newClaim("pvc-2", ""), newVolume("pv-2", boundTo("pvc-2", func(pv *corev1.PersistentVolume) {
					lastMountedOn("b")(pv)
					pv.Spec.ClaimRef.UID = "deleted-claim-of-this-name"
				}))),
			[]string{},
		},
		"pinned volume of a finished Pod": {
			newState(nodePort).with(newClaim("pvc-1", "1"),
				newVolume("pv-1", boundTo("pvc-1", pinnedTo("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodSucceeded)),
			[]string{"a"},
		},
		"volume of another driver with our labels": {
			newState(nodePort).with(newVolume("pv-1", func(pv *corev1.PersistentVolume) {
				lastMountedOn("a")(pv)
				pv.Spec.CSI.Driver = "other.example.com"
			}), newMount("1", "a", "pv-1"), newPod("1", corev1.PodRunning)),
			[]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := reservation.Placement(t.Context(), tc.state.newClient(t), tc.state.listener, true)
			if diff := cmp.Diff(tc.want, got.MissingNodes, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%v, nodes (-want +got):\n%s", err, diff)
			}
		})
	}
}

// ofClaim has the claim with the name of the Listener own it and, if pod is not empty, this Pod of a StatefulSet.
func ofClaim(listener *listenersv1alpha1.Listener, pod string) {
	listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: key.Name, UID: types.UID(key.Name)}}
	if pod != "" {
		listener.Labels = map[string]string{appsv1.StatefulSetPodNameLabel: pod}
	}
}
