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
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// wrongPods are mistakes whose first sign is a Pod, its workload, its namespace and its node.
var wrongPods = map[string]mistake{
	"no listener volume": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("plain", "web")
			pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
			w.create(t, pod)
		},
		from: "pod/plain", kind: "Pod", text: "mounts no listener volume",
	},
	"a signer is misspelt": {
		breakIt: func(t *testing.T, w *world) {
			w.createPending(t, corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: "listener-operator.dev/adress", KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem",
			}})
		},
		from: "pending", kind: "Pod", text: `volume "tls" names listener-operator.dev/adress; did you mean listener-operator.dev/address?`,
	},
	"a trust bundle is misspelt": {
		breakIt: func(t *testing.T, w *world) {
			w.createPending(t, corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
				Name: ptr.To("listener-operator.dev:adress:" + w.namespace), Path: "ca.crt",
			}})
		},
		from: "pending", kind: "Pod", text: "; did you mean listener-operator.dev:address:test-",
	},
	"an init container does not end": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("init-0", w.claim.Name)
			pod.Spec.NodeName, pod.Spec.InitContainers = w.node.Name, []corev1.Container{{Name: "wait", Image: "wait"}}
			w.create(t, pod)
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "wait", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}}
			w.updateStatus(t, pod)
			w.create(t, w.newPodListeners(pod, addresses()))
		},
		from: "init-0", kind: "Pod", text: "waits on node ",
	},
	"the node has no agent": {
		breakIt: func(t *testing.T, w *world) {
			w.csiNode.Spec.Drivers = nil
			w.update(t, w.csiNode)
		},
		kind: "Node", reason: "NoNodeAgent", text: "kubectl listener doctor",
	},
	"the node of a pinned volume has lost its label": {
		breakIt: func(t *testing.T, w *world) {
			delete(w.node.Labels, names.TopologyKey)
			w.update(t, w.node)
			w.createUnschedulable(t, "stuck")
		},
		from: "stuck", kind: "Node", reason: "NodeLabelMissing", text: "kubectl delete pods --all-namespaces",
	},
	"the node is not ready": {
		breakIt: func(t *testing.T, w *world) { w.stopNode(t) },
		kind:    "Node", reason: listenersv1alpha1.ReasonNodesNotReady, text: "docs/lost-nodes.md",
	},
	"the node of a Pod that has to end is not ready": {
		breakIt: func(t *testing.T, w *world) {
			w.stopNode(t)
			w.beginToDelete(t, w.pod)
		},
		kind: "Node", reason: listenersv1alpha1.ReasonNodesNotReady, text: "is not ready",
	},
	"the node of a Pod that has to end has no agent": {
		breakIt: func(t *testing.T, w *world) {
			w.csiNode.Spec.Drivers = []storagev1.CSINodeDriver{}
			w.update(t, w.csiNode)
			if err := w.Delete(t.Context(), w.pod); err != nil { // which the kubelet would confirm
				t.Fatal(err)
			}
			w.pod.Status.Phase, w.pod.ResourceVersion = corev1.PodSucceeded, "" // its containers have ended
			w.updateStatus(t, w.pod)
		},
		kind: "Node", reason: "NoNodeAgent", text: "so no Pod with a listener volume starts or ends there",
	},
	"the namespace is being deleted": {
		breakIt: func(t *testing.T, w *world) {
			check.Must(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
		},
		kind: "Namespace", text: "is being deleted, so nothing can be created in it",
	},
	"a container is killed again and again": {
		breakIt: func(t *testing.T, w *world) {
			w.restarted(t)
			w.event(t, w.pod, "Unhealthy", "Liveness probe failed: dial tcp 10.1.0.1:80: connect: connection refused")
		},
		kind: "Pod", reason: "Error", text: "Liveness probe failed: dial tcp 10.1.0.1:80: connect: connection refusedCorrect the probe",
	},
	"a container crashes again and again": {
		breakIt: func(t *testing.T, w *world) {
			w.waiting(t, "CrashLoopBackOff", "back-off 5m0s restarting failed container")
		},
		kind: "Pod", reason: "CrashLoopBackOff", text: " --container main --previous, and kubectl describe pod web-0 --namespace ",
	},
	"a container has ended, and starts again": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}, RestartCount: 4,
			}}
			w.updateStatus(t, w.pod)
		},
		kind: "Pod", reason: "Error", text: "ended with exit code 3 (restarts: 4)See why: kubectl logs web-0 --namespace ",
	},
	"an image cannot be pulled": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.Phase = corev1.PodPending
			w.waiting(t, "ImagePullBackOff", "not found")
		},
		kind: "Pod", reason: "ImagePullBackOff", text: "imagePullSecrets",
	},
	"no agent writes the other address": {
		breakIt: func(t *testing.T, w *world) {
			w.outdated(t, false)
			w.csiNode.Spec.Drivers = []storagev1.CSINodeDriver{}
			w.update(t, w.csiNode)
		},
		kind: "Node", reason: "NoNodeAgent", text: "kubectl listener doctor",
	},
	"the Pod runs and is not ready": {
		breakIt: func(t *testing.T, w *world) { w.unready(t) },
		kind:    "Pod", reason: "ContainersNotReady", text: "is not ready",
	},
	"the probe of a Pod fails": {
		breakIt: func(t *testing.T, w *world) {
			w.unready(t)
			w.event(t, w.pod, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
		},
		kind: "Pod", reason: "ContainersNotReady", text: "is not ready: Readiness probe failed: HTTP probe failed with statuscode: 503",
	},
	"two ports of the Pod have one name": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("web-1", "web")
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: "sidecar", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 81}},
			})
			w.createRunning(t, pod)
		},
		from: "web-1", kind: "Pod", reason: listenersv1alpha1.ReasonDuplicatePortName, text: "http",
	},
	"an inline volume": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("inline", "")
			pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", map[string]string{"listener-class": w.class.Name})}
			w.create(t, pod)
		},
		from: "inline", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: "did you mean " + names.AnnotationListenerClass,
	},
	"an inline volume names a Listener as its class": {
		breakIt: func(t *testing.T, w *world) {
			w.create(t, w.newListener("shared", w.class.Name))
			w.createInline(t, ofClass("shared"))
			listener := w.newListener("inline-listener", "shared")
			listener.Annotations = map[string]string{names.AnnotationClaim: listener.Name}
			w.create(t, listener)
			listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: listener.Generation, Conditions: []metav1.Condition{
				newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonClassNotFound),
				newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonNotAccepted),
			}}
			w.updateStatus(t, listener)
		},
		from: "inline", kind: "Listener", reason: listenersv1alpha1.ReasonClassNotFound,
		text: "/shared doesTo use this Listener, give the volume or the claim " + names.AnnotationListenerName + " in place of",
	},
	"an inline volume names a class as its Listener": {
		breakIt: func(t *testing.T, w *world) { w.createInline(t, ofListener(w.class.Name)) },
		from:    "inline", kind: "Listener", reason: listenersv1alpha1.ReasonListenerNotFound,
		text: "doesFor a Listener of this class, give the volume or the claim " + names.AnnotationListenerClass + " in place of",
	},
	"an inline volume lists a port that the Pod does not have": {
		breakIt: func(t *testing.T, w *world) {
			w.createInline(t, map[string]string{names.AnnotationListenerClass: w.class.Name, names.AnnotationPorts: "http,htpp"})
		},
		from: "inline", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: `lists "htpp", but the containers of Pod inline have only the ports http`,
	},
	"a signer has another domain": {
		breakIt: func(t *testing.T, w *world) {
			w.createPending(t, corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: "listeners.stackable.tech/address", KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem",
			}})
		},
		from: "pending", kind: "Pod", text: `volume "tls" names listeners.stackable.tech/address; did you mean listener-operator.dev/address?`,
	},
	"an inline volume of a pinned class": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("inline", "")
			pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", ofClass(w.class.Name))}
			w.create(t, pod)
			w.event(t, pod, listenersv1alpha1.ReasonInvalidVolume, `Volume "listener" is not mounted: ListenerClass x pins volumes to nodes, which needs a claim`)
		},
		from: "inline", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: "which needs a claim",
	},
	"an inline volume that the StatefulSet has corrected by now": {
		breakIt: func(t *testing.T, w *world) {
			w.createReplica(t, map[string]string{"listeners.stackable.tech/listener-clas": w.class.Name}, ofClass(w.class.Name))
		},
		from: "db-0", kind: "Pod", text: "The template is correct already, but the StatefulSet does not replace this Pod. Delete it: kubectl delete pod db-0",
	},
	"an inline volume that the StatefulSet has changed, but not corrected": {
		breakIt: func(t *testing.T, w *world) {
			w.createReplica(t, map[string]string{"listeners.stackable.tech/listener-clas": w.class.Name}, map[string]string{"listeners.stackable.tech/listener-clss": w.class.Name})
		},
		from: "db-0", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: "Correct the volume in what creates the Pod",
	},
	"a workload has no Pod, because each is refused": {
		breakIt: func(t *testing.T, w *world) {
			set := w.statefulSet()
			w.create(t, set)
			w.event(t, set, "FailedCreate", `create Pod db-0 failed: pods "db-0" is forbidden: unable to validate against any security context constraint`)
		},
		from: "sts/db", kind: "StatefulSet", reason: "FailedCreate", text: "security context constraint",
	},
	"a workload lacks a Pod, because further ones are refused": {
		breakIt: func(t *testing.T, w *world) {
			set := w.statefulSet()
			w.create(t, set)
			pod := w.newPod("db-0", "web")
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
			w.createRunning(t, pod)
			w.event(t, set, "FailedCreate", "exceeded quota")
		},
		from: "sts/db", kind: "StatefulSet", reason: "FailedCreate", text: "exceeded quota",
	},
	"a Deployment has no Pod, because each is refused": {
		breakIt: func(t *testing.T, w *world) {
			spec := w.statefulSet().Spec
			meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "db"}
			deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: spec.Selector, Template: spec.Template}}
			w.create(t, deployment)
			set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: spec.Selector, Template: spec.Template}}
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
			w.create(t, set)
			w.event(t, set, "FailedCreate", "exceeded quota")
		},
		from: "deploy/db", kind: "Deployment", reason: "FailedCreate", text: "exceeded quota",
	},
	"the Pod does not start for another reason": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.Phase = corev1.PodPending
			w.updateStatus(t, w.pod)
		},
		kind: "Pod", text: "kubectl describe pod",
	},
	"a ConfigMap that the Pod mounts does not exist": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.Phase = corev1.PodPending
			w.updateStatus(t, w.pod)
			w.event(t, w.pod, "FailedMount", `MountVolume.SetUp failed for volume "configuration" : configmap "kafka" not found`)
		},
		kind: "Pod", text: `: MountVolume.SetUp failed for volume "configuration" : configmap "kafka" not found`,
	},
	"the Pod has failed": {
		breakIt: func(t *testing.T, w *world) {
			w.pod.Status.Phase, w.pod.Status.Reason, w.pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
			w.updateStatus(t, w.pod)
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForPods))
		},
		kind: "Pod", reason: "Evicted", text: "mounts nothing any more: The node was low on resource: memory.",
	},
}
