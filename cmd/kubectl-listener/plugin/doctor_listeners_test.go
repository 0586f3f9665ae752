package plugin_test

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// listenerFaults are faults of Pods, their volumes and their Listeners.
var listenerFaults = map[string]fault{
	"an annotated Pod has no volume": {
		breakIt: func(t *testing.T, i *installed) { i.create(t, annotatedPod(i.world)) },
		kind:    "Pod", name: "annotated", text: "the namespace does not opt in",
	},
	"a claim is being deleted while a Pod mounts it": {
		breakIt: func(t *testing.T, i *installed) {
			pvc, pod := i.newClaim("leaving", ofClass(i.class.Name)), i.newPod("leaving", "leaving")
			i.create(t, pvc)
			i.create(t, pod)
			i.beginToDelete(t, pvc)
		},
		kind: "PersistentVolumeClaim", name: "leaving", text: "with its Listener and its address, as soon as it is not mounted any more: leaving",
	},
	"two ports of a Listener have the same name": {
		breakIt: func(t *testing.T, i *installed) {
			i.says(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonDuplicatePortName))
		},
		kind: "Listener", name: "web", text: "message of DuplicatePortName",
	},
	"no Pod has the labels that a Listener selects": {
		breakIt: func(t *testing.T, i *installed) {
			i.says(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonNoMatchingPods))
		},
		kind: "Listener", name: "web", text: "message of NoMatchingPods",
	},
	"two containers of a Pod have a port of the same name": {
		breakIt: func(t *testing.T, i *installed) {
			pod := i.newPod("twice", i.claim.Name)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: "sidecar", Image: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 81}},
			})
			i.pending(t, pod, "")
		},
		kind: "Pod", name: "twice", text: "http",
	},
	"a request for a certificate was denied": {
		breakIt: func(t *testing.T, i *installed) {
			denied := newCondition(certificatesv1.PodCertificateRequestConditionTypeDenied, metav1.ConditionTrue, "InvalidUserConfig")
			i.secured(t).request(t, certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{denied}})
		},
		kind: "PodCertificateRequest", text: "denied: message of InvalidUserConfig",
	},
	"a class needs Routes": {
		breakIt: func(t *testing.T, i *installed) {
			class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "routed"}, Spec: listenersv1alpha1.ListenerClassSpec{
				ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Route: &listenersv1alpha1.RouteExposure{},
			}}
			i.create(t, class)
		},
		kind: "ListenerClass", name: "routed", text: "does not serve route.openshift.io/v1",
	},
	"a claim is stuck": {
		breakIt: func(t *testing.T, i *installed) { i.create(t, i.newClaim("stuck", ofClass("absent"))) },
		kind:    "PersistentVolumeClaim", name: "stuck", text: `ListenerClass "absent" does not exist`,
	},
	"no port is left for a Listener": {
		breakIt: func(t *testing.T, i *installed) {
			class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Spec: listenersv1alpha1.ListenerClassSpec{
				ServiceType: listenersv1alpha1.ServiceTypeNodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "30070-30071"},
			}}
			i.create(t, class)
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "foreign"}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30070}, {Name: "b", Port: 81, NodePort: 30071}},
			}}
			i.create(t, service)
			waiting := i.newListener("waiting", class.Name)
			i.create(t, waiting)
			waiting.Status = &listenersv1alpha1.ListenerStatus{
				IngressAddresses: []listenersv1alpha1.IngressAddress{}, Summary: listenersv1alpha1.ListenerSummary{Reason: listenersv1alpha1.ReasonNodePortsExhausted},
			}
			i.updateStatus(t, waiting)
		},
		kind: "ListenerClass", name: "narrow", text: "0 of 2 ports are left in spec.nodePorts.range (30070-30071); Listeners that wait for one: 1",
	},
	"a quota forbids the PodListeners of a Pod": {
		breakIt: func(t *testing.T, i *installed) {
			pod := i.newPod("refused", i.claim.Name)
			pod.Spec.NodeName = i.node.Name
			i.pending(t, pod, "")
			i.eventOf(t, "Pod", pod, listenersv1alpha1.ReasonQuotaExceeded, "exceeded quota: addresses")
		},
		kind: "PodListeners", text: "exceeded quota: addresses",
	},
	"a Pod started with another address": {
		breakIt: func(t *testing.T, i *installed) {
			operator := i.operator(t)
			patch := func(start string) {
				t.Helper()
				check.Must(t, operator.Patch(lasting(t), i.podListeners, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"startAddresses":`+start+`}}`))))
			}
			patch(`{"listener":[{"address":"203.0.113.6","addressType":"IP","ports":{"http":31337}}]}`)
			t.Cleanup(func() { patch("null") })
		},
		kind: "PodListeners", text: "the Pod started with 203.0.113.6:31337",
	},
	"a quota forbids the Service of a Listener": {
		breakIt: func(t *testing.T, i *installed) {
			i.says(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonQuotaExceeded))
		},
		kind: "Listener", name: "web", text: "message of QuotaExceeded",
	},
	"a Listener waits for a load balancer": {
		breakIt: func(t *testing.T, i *installed) {
			waiting := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer)
			waiting.LastTransitionTime = longAgo()
			i.says(t, waiting)
		},
		kind: "Service", name: "web", text: "message of WaitingForLoadBalancer",
	},
	"the class of a Listener was deleted": {
		breakIt: func(t *testing.T, i *installed) { i.without(t, i.class) },
		kind:    "ListenerClass", name: "class-shop", text: "does not exist",
	},
	"a Pod waits for the node of its volume": {
		breakIt: func(t *testing.T, i *installed) { i.pending(t, i.newPod("stuck", i.claim.Name), pinned) },
		kind:    "PersistentVolume", text: "is pinned to node node-shop, and Pod stuck cannot be scheduled: 0/2 nodes are available",
	},
	"a Pod waits for the node of its volume, and the operator says so": {
		breakIt: func(t *testing.T, i *installed) {
			i.pending(t, i.newPod("stuck", i.claim.Name), pinned)
			i.eventOf(t, "PersistentVolumeClaim", i.claim, listenersv1alpha1.ReasonPinnedToNode, "node node-shop is cordoned")
		},
		kind: "PersistentVolume", text: "node node-shop is cordoned",
	},
	"a Pod cannot be scheduled": {
		breakIt: func(t *testing.T, i *installed) {
			i.pending(t, i.newEphemeral("large"), "0/2 nodes are available: 2 Insufficient cpu.")
		},
		kind: "Pod", name: "large", text: "2 Insufficient cpu",
	},
	"a Pod waits for the agent of a node": {
		breakIt: func(t *testing.T, i *installed) {
			i.pending(t, i.newPod("early", i.claim.Name), "0/1 nodes are available: 1 listeners.stackable.tech CSI driver is not installed on the node.")
		},
		kind: "Pod", name: "early", text: "1 listeners.stackable.tech CSI driver is not installed on the node",
	},
	"a quota forbids the claim of an ephemeral volume": {
		breakIt: func(t *testing.T, i *installed) {
			pod := i.newEphemeral("refused")
			i.pending(t, pod, "waiting for ephemeral volume controller to create the persistentvolumeclaim")
			i.kubernetesSays(t, pod, "FailedBinding", "ephemeral_volume", "exceeded quota: addresses")
		},
		kind: "PersistentVolumeClaim", name: "refused-listener", text: "exceeded quota: addresses",
	},
	"a Pod waits for the operator": {
		breakIt: func(t *testing.T, i *installed) {
			pod := i.newPod("bound", i.claim.Name)
			pod.Spec.NodeName = i.node.Name
			i.pending(t, pod, "")
		},
		kind: "PodListeners", text: "does not exist, although Pod bound is bound to node",
	},
	"a policy rejects what the operator writes for a Pod": {
		breakIt: func(t *testing.T, i *installed) {
			pod := i.newPod("rejected", i.claim.Name)
			pod.Spec.NodeName = i.node.Name
			i.pending(t, pod, "")
			i.kubernetesSays(t, pod, listenersv1alpha1.ReasonRequestRejected, names.EventReporter, "no labels here")
		},
		kind: "PodListeners", text: "no labels here",
	},
	"a Pod waits for an address": {
		breakIt: func(t *testing.T, i *installed) {
			i.starting(t, nil, listenersv1alpha1.ReasonWaitingForAddress, names.EventReporter, "no Pod of the Listener has a host port")
		},
		kind: "PodListeners", text: "no Pod of the Listener has a host port",
	},
	"a volume cannot be mounted": {
		breakIt: func(t *testing.T, i *installed) {
			i.starting(t, addresses(), "FailedMount", "kubelet", `MountVolume.SetUp failed for volume "listener" : disk full`)
		},
		kind: "Volume", name: "listener", text: "disk full",
	},
	"a volume is pinned to a node that is out of service": {
		breakIt: func(t *testing.T, i *installed) {
			i.read(t, i.node)
			restoring(t, i.node, i.update)
			i.node.Spec.Taints = append(i.node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
			i.update(t, i.node)
		},
		kind: "PersistentVolume", text: "of claim shop/web is pinned to node node-shop, which is out of service",
	},
}
