package plugin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// wrongVolumes are mistakes whose first sign is a volume or what the agent writes into it.
var wrongVolumes = map[string]mistake{
	"a claim names the volume of another one": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", ofClass(w.class.Name))
			pvc.Spec.VolumeName = w.volume.Name
			w.create(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolume", text: "is not a listener volume of this claim",
	},
	"a volume is pinned to a node that does not exist": {
		breakIt: func(t *testing.T, w *world) { w.remove(t, w.node) },
		kind:    "PersistentVolume", reason: listenersv1alpha1.ReasonNodeLost, text: "kubectl listener release web --namespace",
	},
	"a volume is pinned to a node that works again, and is still out of service": {
		breakIt: func(t *testing.T, w *world) {
			w.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			w.update(t, w.node)
			w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			w.updateStatus(t, w.node)
		},
		kind: "PersistentVolume", reason: listenersv1alpha1.ReasonNodeLost, text: "although it is readyIf the machine works again, remove the taint",
	},
	"the operator announces the release of a lost volume": {
		breakIt: func(t *testing.T, w *world) {
			w.remove(t, w.node)
			w.event(t, w.claim, listenersv1alpha1.ReasonNodeLost, "the volume will be released at noon")
		},
		kind: "PersistentVolume", reason: listenersv1alpha1.ReasonNodeLost, text: "the volume will be released at noon",
	},
	"the Pod started with another address": {
		breakIt: func(t *testing.T, w *world) { w.outdated(t, false) },
		kind:    "PodListeners", reason: listenersv1alpha1.ReasonPodsOutdated, text: "If its program uses the address that it read at its start, restart the Pod",
	},
	"a volume is pinned to a node that is out of service": {
		breakIt: func(t *testing.T, w *world) {
			w.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
			w.update(t, w.node)
			w.volume.Annotations = map[string]string{names.AnnotationLostSince: "2026-01-02T03:04:05Z"}
			w.update(t, w.volume)
		},
		kind: "PersistentVolume", reason: listenersv1alpha1.ReasonNodeLost, text: "is out of service, since 2026-01-02T03:04:05Z",
	},
	"the same, from the Listener": {
		breakIt: func(t *testing.T, w *world) { w.remove(t, w.node) },
		from:    "listener/web", kind: "PersistentVolume", reason: listenersv1alpha1.ReasonNodeLost, text: "does not exist",
	},
	"a Pod waits for the node of its volume": {
		breakIt: func(t *testing.T, w *world) {
			w.event(t, w.claim, listenersv1alpha1.ReasonPinnedToNode, "Pod web-1 can only run on node X, which is cordoned")
			w.createUnschedulable(t, "web-1")
		},
		from: "web-1", kind: "PersistentVolume", reason: listenersv1alpha1.ReasonPinnedToNode, text: "which is cordoned",
	},
	"a Pod waits for the node of its volume, which the operator has not said yet": {
		breakIt: func(t *testing.T, w *world) { w.createUnschedulable(t, "web-1") },
		from:    "web-1", kind: "PersistentVolume", reason: listenersv1alpha1.ReasonPinnedToNode, text: "and Pod web-1 cannot be scheduled",
	},
	"the claim names a Listener instead of a class": {
		breakIt: func(t *testing.T, w *world) {
			delete(w.claim.Annotations, names.AnnotationListenerClass)
			w.claim.Annotations[names.AnnotationListenerName] = "another"
			w.update(t, w.claim)
		},
		kind: "PersistentVolume", reason: listenersv1alpha1.ReasonSelectorChanged, text: "Listener another",
	},
	"there are no PodListeners": {
		breakIt: func(t *testing.T, w *world) { w.remove(t, w.podListeners) },
		kind:    "PodListeners", text: "does not exist",
	},
	"PodListeners lack a volume of the Pod": {
		breakIt: func(t *testing.T, w *world) {
			w.podListeners.Spec.Listeners = map[string]listenersv1alpha1.PodListener{}
			w.update(t, w.podListeners)
		},
		kind: "PodListeners", text: "has no entry for volume",
	},
	"a volume has no address yet": {
		breakIt: func(t *testing.T, w *world) { w.publishToPod(t) },
		kind:    "PodListeners", reason: listenersv1alpha1.ReasonWaitingForAddress, text: "has no address yet",
	},
	"the mount fails": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.Phase = corev1.PodPending
			w.updateStatus(t, w.pod)
			w.event(t, w.pod, "FailedMount", `MountVolume.SetUp failed for volume "listener"`)
		},
		kind: "Volume", reason: "FailedMount", text: "MountVolume.SetUp failed",
	},
	"something keeps a Pod with another address than at its start from being restarted": {
		breakIt: func(t *testing.T, w *world) { w.outdated(t, true) },
		kind:    "PodListeners", reason: listenersv1alpha1.ReasonPodsOutdated, text: "the Pod started with 203.0.113.6:31337",
	},
	"a budget keeps such a Pod from being restarted": {
		breakIt: func(t *testing.T, w *world) {
			w.outdated(t, true)
			w.event(t, w.pod, listenersv1alpha1.ReasonEvictionRefused, "the disruption budget web needs 1 healthy pods")
		},
		kind: "PodListeners", reason: listenersv1alpha1.ReasonEvictionRefused, text: "the operator says: the disruption budget web needs 1 healthy pods",
	},
	"a quota forbids the PodListeners of a Pod": {
		breakIt: func(t *testing.T, w *world) {
			w.event(t, w.pod, listenersv1alpha1.ReasonQuotaExceeded, `a ResourceQuota does not permit the object with the addresses of the Pod: exceeded quota: addresses`)
			w.remove(t, w.podListeners)
		},
		kind: "PodListeners", reason: listenersv1alpha1.ReasonQuotaExceeded, text: "exceeded quota: addresses",
	},
}
