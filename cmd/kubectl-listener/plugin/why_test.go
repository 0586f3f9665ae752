package plugin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestWhyFollowsTheWholePathIfNothingIsWrong(t *testing.T) {
	w := newWorld(t)
	for argument, want := range map[string][]string{
		"web-0": {"Pod", "Node", "Node", "PersistentVolumeClaim", "PersistentVolume", "Listener", "ListenerClass", "Service", "Endpoints", "PodListeners", "Volume"},
		"claim/web": {
			"PersistentVolumeClaim", "PersistentVolume", "Listener", "ListenerClass", "Service", "Endpoints", "Pod", "Node", "Node", "PodListeners", "Volume",
		},
		"lsn/web": {"Listener", "ListenerClass", "Service", "Endpoints", "PersistentVolume", "Pod", "Node", "Node", "PodListeners", "Volume"},
	} {
		t.Run(argument, func(t *testing.T) {
			out, err := run(t, apiserver.Config(t), "why", argument, "-n", w.namespace, "-o", "json")
			r := decode(t, out, err)
			var kinds []string
			for _, f := range r.Findings {
				kinds = append(kinds, f.Kind)
				if f.State != "OK" {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(kinds, want) {
				t.Errorf("steps %q, want %q", kinds, want)
			}
		})
	}
	out, err := run(t, apiserver.Config(t), "why", "pod", "web-0", "-n", w.namespace)
	if err != nil || !strings.Contains(out, "✓ Pod "+w.namespace+"/web-0") || !strings.Contains(out, "203.0.113.7:31337") || !strings.Contains(out, allRight) {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestWhyNamesTheFirstThingThatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(*testing.T, *world)
		from    string // defaults to the Pod
		kind    string
		reason  string
		text    string // in message or remedy
	}{
		"no listener volume": {
			breakIt: func(t *testing.T, w *world) {
				pod := w.newPod("plain", "web")
				pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
				w.create(t, pod)
			},
			from: "pod/plain", kind: "Pod", text: "mounts no listener volume",
		},
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
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name})
				delete(pvc.Annotations, names.AnnotationProvisioner)
				pvc.Spec.StorageClassName = ptr.To("absent")
				w.create(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "StorageClass absent does not exist",
		},
		"a claim names no StorageClass": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{})
				pvc.Annotations, pvc.Spec.StorageClassName = nil, nil
				pvc.Labels = map[string]string{names.AnnotationListenerClass: w.class.Name} // which shows what it is for
				w.create(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "names no StorageClass",
		},
		"the StorageClass is that of another driver": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Provisioner: "disks.example.com"})
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name})
				delete(pvc.Annotations, names.AnnotationProvisioner)
				pvc.Spec.StorageClassName = &w.namespace
				w.create(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "belongs to another driver, disks.example.com",
		},
		"a claim names a Listener without a class": {
			breakIt: func(t *testing.T, w *world) {
				listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "classless"}}
				w.create(t, listener)
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerName: listener.Name}))
			},
			from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotSet, text: "classless",
		},
		"a claim names a Listener whose addresses outlive its class": {
			breakIt: func(t *testing.T, w *world) {
				w.remove(t, w.class)
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerName: w.listener.Name}))
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
		"a claim is being deleted": {
			breakIt: func(t *testing.T, w *world) { w.beginToDelete(t, w.claim) },
			kind:    "PersistentVolumeClaim",
			text:    "kept by its finalizers: example.com/keep, with its Listener and its address, as soon as it is not mounted any more: web-0A deletion cannot be undone",
		},
		"a claim names the volume of another one": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name})
				pvc.Spec.VolumeName = w.volume.Name
				w.create(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolume", text: "is not a listener volume of this claim",
		},
		"a claim names a class that does not exist": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerClass: "absent"}))
				w.create(t, w.newPod("other-0", "other"))
			},
			from: "other-0", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound, text: "the claims that are Pending, and their Pods. The other replicas keep their claims and addresses",
		},
		"a claim names a Listener that does not exist": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerName: "absent"}))
			},
			from: "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonListenerNotFound, text: "absent",
		},
		"a claim names a class that nearly exists": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerClass: "Class_" + w.namespace}))
			},
			from: "claim/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonClassNotFound, text: "does not exist; did you mean class-test-",
		},
		"a Listener names a class that nearly exists": {
			breakIt: func(t *testing.T, w *world) {
				w.listener.Spec.ClassName = ptr.To("clas-" + w.namespace)
				w.update(t, w.listener)
				w.listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: w.listener.Generation, Conditions: []metav1.Condition{
					newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted),
					newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned),
				}}
				w.updateStatus(t, w.listener)
			},
			from: "listener/web", kind: "ListenerClass", reason: listenersv1alpha1.ReasonClassNotFound, text: "does not exist; did you mean class-test-",
		},
		"a claim names a Listener that nearly exists": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerName: "wep"}))
			},
			from: "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonListenerNotFound, text: "wep does not exist; did you mean web?",
		},
		"a Pod names a claim that nearly exists": {
			breakIt: func(t *testing.T, w *world) { w.create(t, w.newPod("lonely", "weeb")) },
			from:    "lonely", kind: "PersistentVolumeClaim", text: "needs it; did you mean web?",
		},
		"a StorageClass that nearly exists": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver})
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name})
				delete(pvc.Annotations, names.AnnotationProvisioner)
				pvc.Spec.StorageClassName = ptr.To("listener.stackable.tech")
				w.create(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "does not exist; did you mean listeners.stackable.tech?",
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
		"a claim names a Listener of another namespace": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerName: "shop/web"}))
			},
			from: "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidName, text: "namespace",
		},
		"the operator says why a claim waits": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name})
				w.create(t, pvc)
				w.event(t, pvc, listenersv1alpha1.ReasonClassNotFound, "was true before")
				w.event(t, pvc, listenersv1alpha1.ReasonNoPorts, "no container has a port")
			},
			from: "pvc/other", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonNoPorts, text: "no container has a port",
		},
		"the operator says nothing": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, w.newClaim("other", map[string]string{names.AnnotationListenerClass: w.class.Name}))
			},
			from: "pvc/other", kind: "PersistentVolumeClaim", text: "kubectl listener doctor",
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
		"two ports of the Listener have the same name": {
			breakIt: func(t *testing.T, w *world) {
				w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonDuplicatePortName),
					newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned))
			},
			from: "listener/web", kind: "Listener", reason: listenersv1alpha1.ReasonDuplicatePortName, text: "message of DuplicatePortName",
		},
		"the claim that is to mount the Listener has a mistake": {
			breakIt: func(t *testing.T, w *world) {
				listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shared"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &w.class.Name}}
				w.create(t, listener)
				listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
					newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted),
					newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForPods),
				}}
				w.updateStatus(t, listener)
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerName: "shared"})
				delete(pvc.Annotations, names.AnnotationProvisioner)
				pvc.Spec.StorageClassName = ptr.To("absent")
				w.create(t, pvc)
				w.create(t, w.newPod("other-0", "other"))
			},
			from: "listener/shared", kind: "PersistentVolumeClaim", text: "StorageClass absent does not exist",
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
				addresses := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, w.node.Name)
				addresses.Spec = w.podListeners.Spec
				w.create(t, addresses)
			},
			from: "init-0", kind: "Pod", text: "waits on node ",
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
		"the Listener is not accepted": {
			breakIt: func(t *testing.T, w *world) {
				w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidPorts),
					newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonNotAccepted))
			},
			kind: "Listener", reason: listenersv1alpha1.ReasonInvalidPorts, text: "message of InvalidPorts",
		},
		"the Listener is being deleted": {
			breakIt: func(t *testing.T, w *world) { w.beginToDelete(t, w.listener) },
			kind:    "Listener", reason: listenersv1alpha1.ReasonListenerTerminating, text: "kept by its finalizers: example.com/keep; its Service and its address go with it",
		},
		"the operator does not run": {
			breakIt: func(t *testing.T, w *world) {
				w.listener.Spec.Ports = append(w.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "admin", Port: 81})
				w.update(t, w.listener)
			},
			kind: "Listener", text: "the operator has not looked at it",
		},
		"the class was deleted": {
			breakIt: func(t *testing.T, w *world) { w.remove(t, w.class) },
			kind:    "ListenerClass", reason: listenersv1alpha1.ReasonClassNotFound, text: "does not exist",
		},
		"the class does not allow the namespace": {
			breakIt: func(t *testing.T, w *world) {
				w.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"elsewhere"}}
				w.update(t, w.class)
			},
			kind: "ListenerClass", reason: listenersv1alpha1.ReasonNamespaceNotAllowed, text: "does not allow namespace",
		},
		"the load balancer does not serve a port": {
			breakIt: func(t *testing.T, w *world) {
				ready := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonLoadBalancerPortsError)
				ready.Message = "reachable at 203.0.113.1; left out: ports that the load balancer does not serve; its controller says: port 53/UDP: NoUDP"
				w.setConditions(t, ready)
			},
			from: "listener/web", kind: "Listener", reason: listenersv1alpha1.ReasonLoadBalancerPortsError, text: "port 53/UDP: NoUDP",
		},
		"the load balancer has no address because of its ports": {
			breakIt: func(t *testing.T, w *world) {
				w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonLoadBalancerPortsError))
			},
			from: "listener/web", kind: "Service", reason: listenersv1alpha1.ReasonLoadBalancerPortsError, text: "create a Listener for each protocol",
		},
		"there is no load balancer": {
			breakIt: func(t *testing.T, w *world) {
				w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer))
			},
			from: "listener/web", kind: "Service", reason: listenersv1alpha1.ReasonWaitingForLoadBalancer, text: "kubectl patch listener web --namespace ",
		},
		"an Ingress is not served": {
			breakIt: func(t *testing.T, w *world) {
				w.create(t, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: w.class.Name}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/nginx"}})
				w.waitForIngress(t)
			},
			from: "listener/web", kind: "Ingress", reason: listenersv1alpha1.ReasonWaitingForIngress, text: "Ingress controller",
		},
		"an Ingress is not served, because its class does not exist": {
			breakIt: func(t *testing.T, w *world) { w.waitForIngress(t) },
			from:    "listener/web", kind: "IngressClass", text: "does not exist",
		},
		"there is no Ingress": {
			breakIt: func(t *testing.T, w *world) {
				w.class.Spec = listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{
					ClassName: "nginx", HostTemplate: "{listener}.{namespace}.example",
				}}
				w.update(t, w.class)
			},
			kind: "Ingress", text: "none belongs to Listener web",
		},
		"another owner has the Service of a derived name": {
			breakIt: func(t *testing.T, w *world) {
				status := w.listener.Status
				w.listener = &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "7days-data"}, Spec: w.listener.Spec}
				w.create(t, w.listener)
				w.listener.Status = status
				w.updateStatus(t, w.listener)
				w.create(t, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: names.Service(w.listener.Name)},
					Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				})
			},
			from: "listener/7days-data", kind: "Service", reason: listenersv1alpha1.ReasonForeignService, text: "belongs to another owner than the Listener",
		},
		"another owner has the Service": {
			breakIt: func(t *testing.T, w *world) {
				w.service.OwnerReferences = nil
				w.update(t, w.service)
			},
			kind: "Service", reason: listenersv1alpha1.ReasonForeignService, text: "belongs to another owner than the Listener",
		},
		"the Pod is no endpoint": {
			breakIt: func(t *testing.T, w *world) {
				w.endpoints.Endpoints[0].TargetRef.UID = "another"
				w.update(t, w.endpoints)
			},
			kind: "Endpoints", text: "not among themKubernetes adds it within a moment",
		},
		"the Pod lacks labels that the Listener demands": {
			breakIt: func(t *testing.T, w *world) {
				w.demand(t, map[string]string{"role": "leader"})
				w.endpoints.Endpoints[0].TargetRef.UID = "another"
				w.update(t, w.endpoints)
			},
			kind: "Endpoints", reason: listenersv1alpha1.ReasonNoMatchingPods, text: "not among themCorrect spec.extraPodSelectorLabels",
		},
		"the Service has no endpoint": {
			breakIt: func(t *testing.T, w *world) { w.withoutEndpoints(t) },
			kind:    "Endpoints", text: "kubectl get service web --namespace",
		},
		"the Service has no endpoint, and the Pod lacks labels that the Listener demands": {
			breakIt: func(t *testing.T, w *world) {
				w.demand(t, map[string]string{"role": "leader"})
				w.withoutEndpoints(t)
			},
			kind: "Endpoints", reason: listenersv1alpha1.ReasonNoMatchingPods, text: "Correct spec.extraPodSelectorLabels",
		},
		"the Service has no endpoint, because its Pod does not run": {
			breakIt: func(t *testing.T, w *world) {
				w.withoutEndpoints(t)
				w.pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
				w.updateStatus(t, w.pod)
			},
			from: "listener/web", kind: "Endpoints", text: "because Pod web-0 does not runSee why: kubectl describe pod web-0 --namespace",
		},
		"no Pod mounts the Listener": {
			breakIt: func(t *testing.T, w *world) {
				w.withoutEndpoints(t)
				w.remove(t, w.pod)
			},
			from: "listener/web", kind: "Endpoints", text: "Start a Pod",
		},
		"no endpoint is ready": {
			breakIt: func(t *testing.T, w *world) {
				w.endpoints.Endpoints[0].Conditions.Ready = ptr.To(false)
				w.update(t, w.endpoints)
			},
			kind: "Endpoints", text: "none of 1 Pods is ready",
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
			breakIt: func(t *testing.T, w *world) {
				entry := w.podListeners.Spec.Listeners["listener"]
				entry.IngressAddresses = nil
				w.podListeners.Spec.Listeners["listener"] = entry
				w.update(t, w.podListeners)
			},
			kind: "PodListeners", reason: listenersv1alpha1.ReasonWaitingForAddress, text: "has no address yet",
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
				pod := w.newPod("stuck", w.claim.Name)
				w.create(t, pod)
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: pinned}}
				w.updateStatus(t, pod)
			},
			from: "stuck", kind: "Node", reason: "NodeLabelMissing", text: "kubectl delete pods --all-namespaces",
		},
		"the mount fails": {
			breakIt: func(t *testing.T, w *world) {
				w.pod.Status.Phase = corev1.PodPending
				w.updateStatus(t, w.pod)
				w.event(t, w.pod, "FailedMount", `MountVolume.SetUp failed for volume "listener"`)
			},
			kind: "Volume", reason: "FailedMount", text: "MountVolume.SetUp failed",
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
		"a claim of a shared Listener is being deleted": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerName: "web"})
				w.create(t, pvc)
				w.create(t, w.newPod("other-0", "other"))
				w.beginToDelete(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "as soon as it is not mounted any more: other-0A deletion cannot be undone. Its Pods need another claim",
		},
		"a claim that no Pod mounts is being deleted": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{names.AnnotationListenerName: "web"})
				w.create(t, pvc)
				w.beginToDelete(t, pvc)
			},
			from: "claim/other", kind: "PersistentVolumeClaim", text: "kept by its finalizers: example.com/keepKubernetes deletes it within a moment",
		},
		"the namespace is being deleted": {
			breakIt: func(t *testing.T, w *world) {
				if err := w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}); err != nil {
					t.Fatal(err)
				}
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
		"the only node of the addresses is not ready, says the operator": {
			breakIt: func(t *testing.T, w *world) {
				w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonNodesNotReady))
			},
			from: "listener/web", kind: "Listener", reason: listenersv1alpha1.ReasonNodesNotReady, text: "node",
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
		"something keeps a Pod with another address than at its start from being restarted": {
			breakIt: func(t *testing.T, w *world) { w.outdated(t, true) },
			kind:    "PodListeners", reason: listenersv1alpha1.ReasonPodsOutdated, text: "the Pod started with 203.0.113.6:31337",
		},
		"no agent writes the other address": {
			breakIt: func(t *testing.T, w *world) {
				w.outdated(t, false)
				w.csiNode.Spec.Drivers = []storagev1.CSINodeDriver{}
				w.update(t, w.csiNode)
			},
			kind: "Node", reason: "NoNodeAgent", text: "kubectl listener doctor",
		},
		"another claim of the Pod has no volume": {
			breakIt: func(t *testing.T, w *world) {
				data := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "data"}, Spec: objects.ClaimSpec("")}
				data.Spec.StorageClassName = ptr.To("standard")
				w.create(t, data)
				pod := w.newPod("web-1", "web")
				pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume("data", "data"))
				w.create(t, pod)
				pod.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
					Message: "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
				}}
				w.updateStatus(t, pod)
			},
			from: "web-1", kind: "PersistentVolumeClaim", text: "kubectl describe pvc data",
		},
		"a budget keeps such a Pod from being restarted": {
			breakIt: func(t *testing.T, w *world) {
				w.outdated(t, true)
				w.event(t, w.pod, listenersv1alpha1.ReasonEvictionRefused, "the disruption budget web needs 1 healthy pods")
			},
			kind: "PodListeners", reason: listenersv1alpha1.ReasonEvictionRefused, text: "the operator says: the disruption budget web needs 1 healthy pods",
		},
		"the Pod runs and is not ready": {
			breakIt: func(t *testing.T, w *world) {
				w.unready(t)
			},
			kind: "Pod", reason: "ContainersNotReady", text: "is not ready",
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
				pod.Labels, pod.Spec.NodeName = w.pod.Labels, w.node.Name
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
					Name: "sidecar", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 81}},
				})
				w.createRunning(t, pod)
			},
			from: "web-1", kind: "Pod", reason: listenersv1alpha1.ReasonDuplicatePortName, text: "http",
		},
		"the annotation was written as a label": {
			breakIt: func(t *testing.T, w *world) {
				pvc := w.newClaim("other", map[string]string{})
				pvc.Labels = map[string]string{names.AnnotationListenerClass: w.class.Name}
				w.create(t, pvc)
				w.create(t, w.newPod("other-0", "other"))
			},
			from: "other-0", kind: "PersistentVolumeClaim", reason: listenersv1alpha1.ReasonInvalidClaim, text: "which must be an annotation",
		},
		"an inline volume": {
			breakIt: func(t *testing.T, w *world) {
				pod := w.newPod("inline", "")
				pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", map[string]string{"listener-class": w.class.Name})}
				w.create(t, pod)
			},
			from: "inline", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: "did you mean " + names.AnnotationListenerClass,
		},
		"an inline volume of a pinned class": {
			breakIt: func(t *testing.T, w *world) {
				pod := w.newPod("inline", "")
				pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", map[string]string{names.AnnotationListenerClass: w.class.Name})}
				w.create(t, pod)
				w.event(t, pod, listenersv1alpha1.ReasonInvalidVolume, `Volume "listener" is not mounted: ListenerClass x pins volumes to nodes, which needs a claim`)
			},
			from: "inline", kind: "Pod", reason: listenersv1alpha1.ReasonInvalidVolume, text: "which needs a claim",
		},
		"an inline volume names a Listener that does not exist": {
			breakIt: func(t *testing.T, w *world) {
				pod := w.newPod("inline", "")
				pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", map[string]string{names.AnnotationListenerName: "elsewhere"})}
				w.create(t, pod)
			},
			from: "inline", kind: "Listener", reason: listenersv1alpha1.ReasonListenerNotFound, text: "does not exist",
		},
		"a quota refuses the claim of an ephemeral volume": {
			breakIt: func(t *testing.T, w *world) {
				pod := w.newPod("ephemeral", "")
				pod.Spec.Volumes = []corev1.Volume{objects.EphemeralVolume("listener", map[string]string{names.AnnotationListenerClass: w.class.Name})}
				w.create(t, pod)
				w.event(t, pod, "FailedBinding", `ephemeral volume controller: create PVC: persistentvolumeclaims "ephemeral-listener" is forbidden: exceeded quota`)
			},
			from: "ephemeral", kind: "PersistentVolumeClaim", reason: "FailedBinding", text: "exceeded quota",
		},
		"a quota forbids the Listener of a claim": {
			breakIt: func(t *testing.T, w *world) {
				w.event(t, w.claim, listenersv1alpha1.ReasonQuotaExceeded, `a ResourceQuota does not permit Listener shop/web: exceeded quota: addresses`)
				w.remove(t, w.listener)
			},
			kind: "Listener", reason: listenersv1alpha1.ReasonQuotaExceeded, text: "exceeded quota: addresses",
		},
		"a quota forbids the PodListeners of a Pod": {
			breakIt: func(t *testing.T, w *world) {
				w.event(t, w.pod, listenersv1alpha1.ReasonQuotaExceeded, `a ResourceQuota does not permit the object with the addresses of the Pod: exceeded quota: addresses`)
				w.remove(t, w.podListeners)
			},
			kind: "PodListeners", reason: listenersv1alpha1.ReasonQuotaExceeded, text: "exceeded quota: addresses",
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
				pod.Labels, pod.Spec.NodeName = w.pod.Labels, w.node.Name
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
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.breakIt(t, w)
			from := tc.from
			if from == "" {
				from = "web-0"
			}
			out, err := run(t, apiserver.Config(t), "why", from, "-n", w.namespace, "-o", "json")
			p := decode(t, out, err).Problem
			if p == nil || p.Kind != tc.kind || p.Reason != tc.reason || p.Remedy == "" || !strings.Contains(p.Message+p.Remedy, tc.text) {
				t.Errorf("problem %+v in\n%s", p, out)
			}
		})
	}
}

// The operator creates the Listener of a claim when the Pod is bound to a node, so a missing one is not the cause, and
// neither is an annotation that was changed.
func TestWhyNamesWhyAPodIsPending(t *testing.T) {
	w := newWorld(t)
	w.remove(t, w.listener)
	w.claim.Annotations[names.AnnotationListenerClass] = "another"
	w.update(t, w.claim)
	for _, tc := range []struct{ reason, message, kind string }{
		{"Unschedulable", "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: 0/3 nodes are available.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 Insufficient memory.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) had untolerated taint(s).", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) were unschedulable.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 Too many pods.", "Pod"},
		{"Unschedulable", "0/3 nodes are available: 3 listeners.stackable.tech CSI driver is not installed on the node.", "Pod"},
		{"SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "Pod"},
		{"SchedulerError", "running PreBind plugin: timed out", "Pod"},
		{"Unschedulable", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "PersistentVolumeClaim"},
		{"Unschedulable", `0/3 nodes are available: persistentvolumeclaim "waiting" not found.`, "PersistentVolumeClaim"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "PersistentVolumeClaim"},
		{"Unschedulable", "0/3 nodes are available: 3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).", "PersistentVolumeClaim"},
	} {
		t.Run(tc.message, func(t *testing.T) {
			claimName := w.claim.Name
			if tc.kind != "Pod" {
				claimName = "waiting"
			}
			pod := w.newPod("", claimName)
			pod.GenerateName = "pending-"
			w.create(t, pod)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: tc.reason, Message: tc.message}}
			w.updateStatus(t, pod)
			out, err := run(t, apiserver.Config(t), "why", pod.Name, "-n", w.namespace, "-o", "json")
			r := decode(t, out, err)
			if slices.ContainsFunc(r.Findings, func(f found) bool { return f.Kind == "Listener" && f.State == "Failed" }) {
				t.Errorf("the Listener is wrong in\n%s", out)
			}
			p := r.Problem
			if p == nil || p.Kind != tc.kind || tc.kind == "Pod" && (p.Reason != tc.reason || p.Message != tc.message) {
				t.Errorf("problem %+v in\n%s", p, out)
			}
		})
	}
}

// allRight is the end of what why says if it has seen every step, and each is right. It cannot see programs.
const allRight = "\nNo step is wrong. This command does not test whether the program responds. Run, from where the clients are: kubectl listener connect pod/web-0 --namespace "

func TestWhySaysThatNoStepIsWrongOnlyIfEverythingWasSeenAndIsRight(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*testing.T, *world)
		want   string
	}{
		"everything is right":                    {func(*testing.T, *world) {}, allRight},
		"a container was restarted a moment ago": {func(t *testing.T, w *world) { w.restarted(t) }, "See what is marked with ! at Pod"},
		"a shared Listener whose port leads elsewhere than the Pod's own": {func(t *testing.T, w *world) {
			w.sameTarget(t)
			other := addresses()
			other[0].Ports = map[string]int32{"http": 31338}
			w.podListeners.Spec.Listeners["shared"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: other, ListenerName: "shared"}
			w.update(t, w.podListeners)
		}, "and clients of Listener shared at another port: the program has to listen on both"},
		"node ports that the program listens on": {func(t *testing.T, w *world) { w.sameTarget(t) }, allRight},
		"a port that no container declares": {func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonPortNotDeclared))
		}, "See what is marked with ! at Listener"},
		"a Listener without Pods": {func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonReserved))
			w.endpoints.Endpoints = []discoveryv1.Endpoint{}
			w.update(t, w.endpoints)
		}, "there are none, because no Pod mounts the Listener"},
		"a class that no longer allows the namespace": {func(t *testing.T, w *world) {
			w.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"elsewhere"}}
			w.update(t, w.class)
			w.listener.Status.KeptClassName = w.class.Name
			w.updateStatus(t, w.listener)
		}, "See what is marked with ! at ListenerClass"},
		"a NetworkPolicy that may deny clients": {func(t *testing.T, w *world) {
			w.create(t, w.policy("deny", networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}))
		}, "See what is marked with ! at NetworkPolicy"},
		"a NetworkPolicy that admits every client": {func(t *testing.T, w *world) {
			w.create(t, w.policy("clients", networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromString("http"))}}}))
			w.create(t, w.policy("deny"))
		}, allRight},
		"a NetworkPolicy of allowed clients": {func(t *testing.T, w *world) {
			w.create(t, w.clientPolicy())
		}, allRight},
		"a NetworkPolicy of allowed clients, and one that admits every client": {func(t *testing.T, w *world) {
			w.create(t, w.clientPolicy())
			w.create(t, w.policy("clients", networkingv1.NetworkPolicyIngressRule{}))
		}, "has no effect, because other policies admit every client"},
		"a NetworkPolicy for other Pods": {func(t *testing.T, w *world) {
			policy := w.policy("others")
			policy.Spec.PodSelector.MatchLabels = map[string]string{"app": "other"}
			w.create(t, policy)
		}, allRight},
		"a NetworkPolicy for requests of the Pod": {func(t *testing.T, w *world) {
			policy := w.policy("egress")
			policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
			w.create(t, policy)
		}, allRight},
		"the only Pod is being deleted": {func(t *testing.T, w *world) {
			w.withoutEndpoints(t)
			w.beginToDelete(t, w.pod)
		}, "no Pod belongs to the Service, because Pod web-0 is being deleted"},
		"a Pod is no endpoint, because it is being deleted": {func(t *testing.T, w *world) {
			w.endpoints.Endpoints[0].TargetRef.UID = "another"
			w.update(t, w.endpoints)
			w.beginToDelete(t, w.pod)
		}, "Pod web-0 is not among them, because it is being deleted"},
		"endpoints that are also published while they are not ready": {func(t *testing.T, w *world) {
			w.publishNotReady(t)
		}, allRight},
		"two Pods mount the claim": {func(t *testing.T, w *world) {
			pod := w.newPod("web-1", "web")
			pod.Labels, pod.Spec.NodeName = w.pod.Labels, w.node.Name
			w.createRunning(t, pod)
		}, "its address leads to each of the Pods that mount it, web-0,web-1"},
		"two Pods mount the claim, and one is about to end": {func(t *testing.T, w *world) {
			pod := w.newPod("web-1", "web")
			pod.Labels, pod.Spec.NodeName = w.pod.Labels, w.node.Name
			w.createRunning(t, pod)
			w.beginToDelete(t, pod)
		}, allRight},
		"the class is being deleted": {func(t *testing.T, w *world) { w.beginToDelete(t, w.class) }, "is being deleted, and kept by its finalizers: example.com/keep"},
		"the Service is being deleted": {func(t *testing.T, w *world) {
			w.beginToDelete(t, w.service)
		}, "See what is marked with ! at Service"},
		"a Pod that is not ready gets requests": {func(t *testing.T, w *world) {
			w.publishNotReady(t)
			w.endpoints.Endpoints = append(w.endpoints.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)},
			})
			w.update(t, w.endpoints)
		}, "See what is marked with ! at Endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(t, w)
			out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
			if err != nil || !strings.Contains(out, tc.want) || strings.Contains(out, allRight) != (tc.want == allRight) || strings.Contains(out, "Nothing is wrong") {
				t.Errorf("error %v, output:\n%s", err, out)
			}
		})
	}
}

// An endpoint is always ready if the Service publishes those that are not.
func TestWhyCountsThePodsThatAreReady(t *testing.T) {
	w := newWorld(t)
	w.publishNotReady(t)
	w.unready(t)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) || !strings.Contains(out, "1 of 1 published, 0 of 1 Pods ready") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// Neither its agent nor the files can be seen.
func TestWhySaysNothingAboutWhatIsOnANodeThatDoesNotRespond(t *testing.T) {
	w := newWorld(t)
	w.stopNode(t)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) || strings.Contains(out, "has its files") || strings.Contains(out, "has a node agent") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// The class may decide for Listeners that several Pods share.
func TestWhyNamesWhatDecidesAboutPodsThatAreNotReady(t *testing.T) {
	w := newWorld(t)
	w.listener.OwnerReferences = nil
	w.update(t, w.listener)
	w.publishNotReady(t)
	w.endpoints.Endpoints = append(w.endpoints.Endpoints, discoveryv1.Endpoint{
		Addresses: []string{"10.1.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)},
	})
	w.update(t, w.endpoints)
	says := func(want string) {
		t.Helper()
		out, _ := run(t, apiserver.Config(t), "why", "listener/"+w.listener.Name, "-n", w.namespace)
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	says("notReadyAddressPolicy: PerPodOnly in ListenerClass " + w.class.Name)

	w.class.Spec.NotReadyAddressPolicy = listenersv1alpha1.NotReadyAddressPolicyPerPodOnly
	w.update(t, w.class)
	says("from serviceOverrides of ListenerClass " + w.class.Name)
	for i := range w.endpoints.Endpoints {
		w.endpoints.Endpoints[i].Conditions.Ready = ptr.To(false)
	}
	w.update(t, w.endpoints)
	says("ListenerClass " + w.class.Name + " has notReadyAddressPolicy: PerPodOnly")
}

func TestWhyPrintsTheProblemAndItsRemedy(t *testing.T) {
	w := newWorld(t)
	w.remove(t, w.class)
	out, err := run(t, apiserver.Config(t), "why", "web-0", "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		"✗ ListenerClass " + w.class.Name + " ", "\n✗ ListenerClass " + w.class.Name + "\n  ClassNotFound: does not exist\n  What to do: Name one of the classes",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestWhySaysWhatTheUserMayNotRead(t *testing.T) {
	w := newWorld(t)
	w.create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims"}, Verbs: []string{"get"}},
			{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners"}, Verbs: []string{"get"}},
		},
	})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "user"}},
	})
	config := apiserver.WithToken(t, apiserver.Config(t), w.namespace, "user")
	out, err := run(t, config, "why", "web-0", "-n", w.namespace, "-o", "json")
	var unknown []string
	for _, f := range decode(t, out, err).Findings {
		if f.State == "Unknown" {
			unknown = append(unknown, f.Kind)
		}
	}
	if want := []string{"Node", "CSINode", "PersistentVolume", "ListenerClass", "Service", "PodListeners"}; err != nil || !slices.Equal(unknown, want) {
		t.Errorf("error %v, unknown %q, want %q", err, unknown, want)
	}
	out, err = run(t, config, "why", "web-0", "-n", w.namespace)
	if err != nil || strings.Contains(out, "is wrong") || !strings.Contains(out, "You may not read Node "+w.node.Name) {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// One of them may deny clients.
func TestWhySaysThatTheUserMayNotListNetworkPolicies(t *testing.T) {
	w := newWorld(t)
	const name = "reader-of-all-but-policies"
	w.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", listenersv1alpha1.GroupVersion.Group, "storage.k8s.io", "discovery.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		},
	})
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "user"}},
	})
	out, err := run(t, apiserver.WithToken(t, apiserver.Config(t), w.namespace, "user"), "why", "web-0", "-n", w.namespace)
	if err != nil || strings.Contains(out, "is wrong") || !strings.Contains(out, "\nYou may not read NetworkPolicy, so ") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestWhyRefusesArgumentsThatNameNothing(t *testing.T) {
	namespace := apiserver.Namespace(t)
	for argument, want := range map[string]string{
		"absent":             "has no pod, claim, listener, statefulset, deployment, daemonset, replicaset, job \"absent\"",
		"listener/absent":    "has no listener \"absent\"",
		"deploy/absent":      "has no deployment \"absent\"",
		"configmap/absent":   "but for: pod, claim, listener",
		"gizmo/absent":       "this command is not for the kind",
		"web --output=table": "--output is \"table\"",
	} {
		_, err := run(t, apiserver.Config(t), append([]string{"why", "-n", namespace}, strings.Fields(argument)...)...)
		if err == nil || errors.Is(err, command.ErrProblem) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", argument, err, want)
		}
	}
}

func TestNamesAreCompleted(t *testing.T) {
	w := newWorld(t)
	for begin, want := range map[string][]string{
		"":         {"pod/web-0", "claim/web", "listener/web"},
		"listener": {"listener/web"},
		"we":       {"web-0", "web"},
		"x":        nil,
	} {
		out, err := run(t, apiserver.Config(t), "__complete", "why", "-n", w.namespace, begin)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := lines[:len(lines)-1]; err != nil || !slices.Equal(got, want) && len(got)+len(want) > 0 { // the last line is a directive
			t.Errorf("%q: error %v, completions %q, want %q", begin, err, got, want)
		}
	}
}
