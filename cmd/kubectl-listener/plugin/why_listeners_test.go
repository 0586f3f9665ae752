package plugin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// waitForIngress gives the Listener a class of Ingresses, and an Ingress without an address.
func (w *world) waitForIngress(t *testing.T) {
	w.class.Spec = listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{
		ClassName: w.class.Name, HostTemplate: "{listener}.{namespace}.example",
	}}
	w.update(t, w.class)
	w.create(t, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.listener.Name + "-http", OwnerReferences: w.service.OwnerReferences},
		Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "web.example"}}},
	})
	w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForIngress))
}

// wrongListeners are mistakes whose first sign is a Listener, its class, and what exposes it.
var wrongListeners = map[string]mistake{
	"a Listener names a class that nearly exists": {
		breakIt: func(t *testing.T, w *world) {
			w.listener.Spec.ClassName = ptr.To("clas-" + w.namespace)
			w.updateObserved(t)
		},
		from: "listener/web", kind: "ListenerClass", reason: listenersv1alpha1.ReasonClassNotFound, text: "does not exist; did you mean class-test-",
	},
	"two ports of the Listener have the same name": {
		breakIt: func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonDuplicatePortName),
				newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned))
		},
		from: "listener/web", kind: "Listener", reason: listenersv1alpha1.ReasonDuplicatePortName, text: "message of DuplicatePortName",
	},
	"the Listener is not accepted": {
		breakIt: func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidPorts),
				newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonNotAccepted))
		},
		kind: "Listener", reason: listenersv1alpha1.ReasonInvalidPorts, text: "message of InvalidPorts",
	},
	"the Listener waits for a host that another one has": {
		breakIt: func(t *testing.T, w *world) {
			w.listener.Status.WaitingFor = &listenersv1alpha1.WaitingFor{
				Kind: listenersv1alpha1.WaitingKindHost, Value: "web.example.com", Holder: "shop/other", Since: metav1.Unix(0, 0),
			}
			w.notReady(t, newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidHost),
				newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonNotAccepted))
		},
		kind: "Listener", reason: listenersv1alpha1.ReasonInvalidHost,
		text: "message of InvalidHost; it has waited since 1970-01-01T00:00:00Z for Host web.example.com of Listener shop/other",
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
	"external-dns does not read where the name leads": {
		breakIt: func(t *testing.T, w *world) {
			waiting := newCondition(listenersv1alpha1.ListenerDNSReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForExternalDNS)
			w.listener.Status.Conditions = append(w.listener.Status.Conditions, waiting)
			w.updateStatus(t, w.listener)
		},
		kind: "DNSEndpoint", reason: listenersv1alpha1.ReasonWaitingForExternalDNS, text: "--source=crd",
	},
	"there is no load balancer": {
		breakIt: func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForLoadBalancer))
		},
		from: "listener/web", kind: "Service", reason: listenersv1alpha1.ReasonWaitingForLoadBalancer, text: "kubectl patch lsn web --namespace ",
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
	"no endpoint of Pods that share a Listener is ready, and the class decides": {
		breakIt: func(t *testing.T, w *world) {
			w.listener.OwnerReferences = nil
			w.update(t, w.listener)
			w.class.Spec.NotReadyAddressPolicy = listenersv1alpha1.NotReadyAddressPolicyPerPodOnly
			w.update(t, w.class)
			w.endpoints.Endpoints[0].Conditions.Ready = ptr.To(false)
			w.update(t, w.endpoints)
		},
		from: "listener/web", kind: "Endpoints", text: " has notReadyAddressPolicy: PerPodOnly",
	},
	"the only node of the addresses is not ready, says the operator": {
		breakIt: func(t *testing.T, w *world) {
			w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonNodesNotReady))
		},
		from: "listener/web", kind: "Listener", reason: listenersv1alpha1.ReasonNodesNotReady, text: "node",
	},
	"an inline volume names a Listener that does not exist": {
		breakIt: func(t *testing.T, w *world) {
			pod := w.newPod("inline", "")
			pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", ofListener("elsewhere"))}
			w.create(t, pod)
		},
		from: "inline", kind: "Listener", reason: listenersv1alpha1.ReasonListenerNotFound, text: "does not exist",
	},
	"a quota forbids the Listener of a claim": {
		breakIt: func(t *testing.T, w *world) {
			w.event(t, w.claim, listenersv1alpha1.ReasonQuotaExceeded, `a ResourceQuota does not permit Listener shop/web: exceeded quota: addresses`)
			w.remove(t, w.listener)
		},
		kind: "Listener", reason: listenersv1alpha1.ReasonQuotaExceeded, text: "exceeded quota: addresses",
	},
}
