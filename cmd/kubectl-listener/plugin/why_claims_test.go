package plugin_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// wrongClaims are mistakes whose first sign is a claim.
var wrongClaims = map[string]mistake{
	"the claim does not exist": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newPod("lonely", "absent")) },
		from:    "lonely", kind: "PersistentVolumeClaim", text: "does not exist",
	},
	"an annotation is misspelled": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, w.newClaim("other", map[string]string{"listener.stackable.tech/listener-class": "x"}))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidClaim, text: "did you mean " + names.AnnotationListenerClass,
	},
	"an annotation of a claim template is misspelled": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, w.newClaim("other", map[string]string{"listeners.stackable.tech/listener-clas": "x"}))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidClaim, text: "of the claim. You cannot change the claim template of a StatefulSet",
	},
	"an annotation of an ephemeral volume is misspelled": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", map[string]string{"listeners.stackable.tech/listener-clas": "x"})
			pvc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			w.create(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidClaim,
		text: "of the claim. Correct volumeClaimTemplate of the volume in what creates the Pod, and delete the Pod.",
	},
	"the StorageClass does not exist": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaimOf("absent", ofClass(w.class.Name))) },
		from:    "claim/other", kind: "PersistentVolumeClaim", text: "StorageClass absent does not exist",
	},
	"a claim names no StorageClass": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", map[string]string{})
			pvc.Annotations, pvc.Spec.StorageClassName = nil, nil
			pvc.Labels = ofClass(w.class.Name) // which shows what it is for
			w.create(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "names no StorageClass",
	},
	"the StorageClass is that of another driver": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Provisioner: "disks.example.com"})
			w.create(t, w.newClaimOf(w.namespace, ofClass(w.class.Name)))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "belongs to another driver, disks.example.com",
	},
	"a claim names a Listener without a class": {
		breakIt: func(t *testing.T, w *world) {
			listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "classless"}}
			w.create(t, listener)
			w.create(t, w.newClaim("other", ofListener(listener.Name)))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotSet, text: "classless",
	},
	"a claim names a Listener whose addresses outlive its class": {
		breakIt: func(t *testing.T, w *world) {
			w.remove(t, w.class)
			w.create(t, w.newClaim("other", ofListener(w.listener.Name)))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "kubectl listener doctor",
	},
	"a claim has lost its volume": {
		breakIt: func(t *testing.T, w *world) {
			w.claim.Status.Phase = corev1.ClaimLost
			w.updateStatus(t, w.claim)
		},
		kind: "PersistentVolumeClaim", reason: "ClaimLost", text: "was deleted",
	},
	"a claim from a backup names the volume of an earlier one": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", ofClass(w.class.Name))
			pvc.Spec.VolumeName = "pvc-eed95235-0120-4c93-8b30-ca0ec3adeab7"
			w.create(t, pvc)
			pvc.Status.Phase = corev1.ClaimLost
			w.updateStatus(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonVolumeNotRestored, text: "create it without this fieldDo what the message says.",
	},
	"a claim names a Listener as its class": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, w.newListener("shared", w.class.Name))
			w.create(t, w.newClaim("other", ofClass("shared")))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound,
		text: "/shared doesTo use this Listener, give the volume or the claim " + names.AnnotationListenerName,
	},
	"a claim names a class as its Listener": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofListener(w.class.Name))) },
		from:    "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonListenerNotFound,
		text: "doesFor a Listener of this class, give the volume or the claim " + names.AnnotationListenerClass,
	},
	"a claim is being deleted": {
		breakIt: func(t *testing.T, w *world) { w.beginToDelete(t, w.claim) },
		kind:    "PersistentVolumeClaim",
		text:    "kept by its finalizers: example.com/keep, with its Listener and its address, as soon as it is not mounted any more: web-0A deletion cannot be undone",
	},
	"a claim names a class that does not exist": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, w.newClaim("other", ofClass("absent")))
			w.create(t, w.newPod("other-0", "other"))
		},
		from: "other-0", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound, text: "the claims that are Pending, and their Pods. The other replicas keep their claims and addresses",
	},
	"a claim names a Listener that does not exist": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofListener("absent"))) },
		from:    "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonListenerNotFound, text: "absent",
	},
	"a claim names a class that nearly exists": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofClass("Class_"+w.namespace))) },
		from:    "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound, text: "does not exist; did you mean class-test-",
	},
	"a claim names a Listener that nearly exists": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofListener("wep"))) },
		from:    "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonListenerNotFound, text: "wep does not exist; did you mean web?",
	},
	"a Pod names a claim that nearly exists": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newPod("lonely", "weeb")) },
		from:    "lonely", kind: "PersistentVolumeClaim", text: "needs it; did you mean web?",
	},
	"a StorageClass that nearly exists": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver})
			w.create(t, w.newClaimOf("listener.stackable.tech", ofClass(w.class.Name)))
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "does not exist; did you mean listeners.stackable.tech?",
	},
	"a claim names a Listener of another namespace": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofListener("shop/web"))) },
		from:    "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidName, text: "namespace",
	},
	"the operator says why a claim waits": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", ofClass(w.class.Name))
			w.create(t, pvc)
			w.event(t, pvc, listenersv1alpha1.ReasonClassNotFound, "was true before")
			w.event(t, pvc, listenersv1alpha1.ReasonNoPorts, "no container has a port")
		},
		from: "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonNoPorts, text: "no container has a port",
	},
	"the operator says nothing": {
		breakIt: func(t *testing.T, w *world) { w.create(t, w.newClaim("other", ofClass(w.class.Name))) },
		from:    "pvc/other", kind: "PersistentVolumeClaim", text: "kubectl listener doctor",
	},
	"the claim that is to mount the Listener has a mistake": {
		breakIt: func(t *testing.T, w *world) {
			listener := w.newListener("shared", w.class.Name)
			w.create(t, listener)
			listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
				newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted),
				newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForPods),
			}}
			w.updateStatus(t, listener)
			w.create(t, w.newClaimOf("absent", ofListener("shared")))
			w.create(t, w.newPod("other-0", "other"))
		},
		from: "listener/shared", kind: "PersistentVolumeClaim", text: "StorageClass absent does not exist",
	},
	"the claim names another class, which does not exist": {
		breakIt: func(t *testing.T, w *world) { w.nameClass(t, w.class.Name+"x") },
		kind:    "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound, text: "did you mean class-",
	},
	"the claim names another class, which does not allow the namespace": {
		breakIt: func(t *testing.T, w *world) {
			other := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "other-" + w.namespace}, Spec: w.class.Spec}
			w.create(t, other)
			w.nameClass(t, other.Name)
			w.event(t, w.claim, listenersv1alpha1.ReasonNamespaceNotAllowed, "so Listener web keeps class X")
		},
		kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonNamespaceNotAllowed, text: "so Listener web keeps class X",
	},
	"a claim of a shared Listener is being deleted": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", ofListener("web"))
			w.create(t, pvc)
			w.create(t, w.newPod("other-0", "other"))
			w.beginToDelete(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "as soon as it is not mounted any more: other-0A deletion cannot be undone. Its Pods need another claim",
	},
	"a claim that no Pod mounts is being deleted": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", ofListener("web"))
			w.create(t, pvc)
			w.beginToDelete(t, pvc)
		},
		from: "claim/other", kind: "PersistentVolumeClaim", text: "kept by its finalizers: example.com/keepKubernetes deletes it within a moment",
	},
	"another claim of the Pod has no volume": {
		breakIt: func(t *testing.T, w *world) {
			data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "data"}, Spec: objects.ClaimSpec("")}
			data.Spec.StorageClassName = ptr.To("standard")
			w.create(t, data)
			pod := w.newPod("web-1", "web")
			pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume("data", "data"))
			w.create(t, pod)
			w.notScheduled(t, pod, corev1.PodReasonUnschedulable, "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
		},
		from: "web-1", kind: "PersistentVolumeClaim", text: "kubectl describe pvc data",
	},
	"the annotation was written as a label": {
		breakIt: func(t *testing.T, w *world) {
			pvc := w.newClaim("other", map[string]string{})
			pvc.Labels = ofClass(w.class.Name)
			w.create(t, pvc)
			w.create(t, w.newPod("other-0", "other"))
		},
		from: "other-0", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidClaim, text: "has no effect on a claim: it must be the annotation of a claim",
	},
	"a quota refuses the claim of an ephemeral volume": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("ephemeral", "")
			pod.Spec.Volumes = []corev1.Volume{objects.EphemeralVolume("listener", ofClass(w.class.Name))}
			w.create(t, pod)
			w.event(t, pod, "FailedBinding", `ephemeral volume controller: create PVC: persistentvolumeclaims "ephemeral-listener" is forbidden: exceeded quota`)
		},
		from: "ephemeral", kind: "PersistentVolumeClaim", reason: "FailedBinding", text: "exceeded quota",
	},
	"the Pod of a workload is broken": {
		breakIt: func(t *testing.T, w *world) {
			set := w.statefulSet()
			w.create(t, set)
			pod := w.newPod("db-0", "absent")
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
			w.create(t, pod)
		},
		from: "statefulset/db", kind: "PersistentVolumeClaim", text: "does not exist",
	},
}
