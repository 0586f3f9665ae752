package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// listener follows a Listener, its class, and the objects that expose it. pod is the Pod that it was reached from, or
// nil.
func (w *walk) listener(ctx context.Context, listener *listenersv1alpha1.Listener, pod *corev1.Pod) {
	w.Add(listenerFinding(listener))
	class := w.class(ctx, listener)
	service := w.service(ctx, listener)
	w.advertised(listener)
	if class != nil {
		w.exposures(ctx, listener, class)
	}
	if service != nil {
		w.endpoints(ctx, listener, class, service, pod)
	}
	w.certManager(ctx, listener)
}

// condition returns a condition of a Listener, or an empty one.
func condition(listener *listenersv1alpha1.Listener, kind string) metav1.Condition {
	return check.Condition(ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Conditions, kind)
}

// elsewhere has the kinds of the object that a reason of the condition Ready is about, if its cause may be elsewhere
// than in the Listener.
var elsewhere = map[string][]string{
	listenersv1alpha1.ReasonWaitingForPods:         nil, // the Listener may be what they wait for
	listenersv1alpha1.ReasonWaitingForLoadBalancer: {"Service"},
	listenersv1alpha1.ReasonWaitingForNodePorts:    {"Service"},
	listenersv1alpha1.ReasonWaitingForClusterIP:    {"Service"},
	listenersv1alpha1.ReasonServiceTerminating:     {"Service"},
	listenersv1alpha1.ReasonWaitingForRouter:       {"Route"},
	listenersv1alpha1.ReasonRouteNotAdmitted:       {"Route"},
	listenersv1alpha1.ReasonWaitingForIngress:      {"Ingress"},
	listenersv1alpha1.ReasonWaitingForGateway:      {"Gateway"},
	listenersv1alpha1.ReasonGatewayRouteNotAccepted: {
		string(listenersv1alpha1.GatewayRouteKindTLS), string(listenersv1alpha1.GatewayRouteKindTCP),
		string(listenersv1alpha1.GatewayRouteKindUDP), string(listenersv1alpha1.GatewayRouteKindHTTP),
	},
}

// unanswered are the reasons of a Listener that is ready, although nothing responds because something is wrong.
var unanswered = []string{listenersv1alpha1.ReasonNoMatchingPods, listenersv1alpha1.ReasonNodesNotReady}

// listenerFinding returns what the operator says about a Listener.
func listenerFinding(listener *listenersv1alpha1.Listener) check.Finding {
	f := check.Finding{Kind: "Listener", Namespace: listener.Namespace, Name: listener.Name}
	accepted, ready := condition(listener, listenersv1alpha1.ListenerAccepted), condition(listener, listenersv1alpha1.ListenerReady)
	_, symptom := elsewhere[ready.Reason]
	switch {
	case listener.DeletionTimestamp != nil:
		return f.FailedBy(listenersv1alpha1.ReasonListenerTerminating, "is being deleted")
	case listener.Status == nil || listener.Status.ObservedGeneration < listener.Generation || accepted.Type == "" || ready.Type == "":
		return f.Failed("", "the operator has not looked at it since it was changed", check.RemedyOperator)
	case accepted.Status != metav1.ConditionTrue:
		return f.FailedBy(accepted.Reason, accepted.Message)
	case ready.Status != metav1.ConditionTrue && symptom:
		return f.FailedBy(ready.Reason, ready.Message).Because()
	case ready.Status != metav1.ConditionTrue || slices.Contains(unanswered, ready.Reason):
		return f.FailedBy(ready.Reason, ready.Message)
	default:
		return readyFinding(f, listener, accepted, ready)
	}
}

// readyFinding returns what the operator says about a Listener that is ready.
func readyFinding(f check.Finding, listener *listenersv1alpha1.Listener, accepted, ready metav1.Condition) check.Finding {
	switch {
	case accepted.Reason == listenersv1alpha1.ReasonDuplicatePortName:
		return f.FailedBy(accepted.Reason, accepted.Message)
	case ready.Reason != listenersv1alpha1.ReasonAddressesAssigned:
		return f.Warning(ready.Reason, ready.Message)
	case accepted.Reason != listenersv1alpha1.ReasonAccepted:
		return f.Warning(accepted.Reason, accepted.Message)
	default:
		return f.OK("%s", columns.Address(listener.Status.IngressAddresses))
	}
}

// class follows the class of a Listener, and returns it, or nil.
func (w *walk) class(ctx context.Context, listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerClass {
	f := check.Finding{Kind: "ListenerClass", Name: listener.Class()}
	if f.Name == "" {
		return nil // the operator says so
	}
	class := &listenersv1alpha1.ListenerClass{}
	if !w.Require(ctx, class, f.FailedBy(listenersv1alpha1.ReasonClassNotFound, "does not exist")) {
		return nil
	}
	var problem string
	w.Request("reading a namespace", func() (err error) {
		problem, err = tenancy.Check(ctx, w.Client, class, listener.Namespace)
		return err
	})
	switch {
	case problem != "" && listener.Status != nil && listener.Status.KeptClassName == f.Name:
		w.Add(f.Warning(listenersv1alpha1.ReasonNamespaceNotAllowed, problem+", and the Listener keeps it"))
	case problem != "":
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNamespaceNotAllowed, problem))
	default:
		w.Add(f.Described(class))
	}
	return class
}

// service follows the Service of a Listener, and returns it, or nil.
func (w *walk) service(ctx context.Context, listener *listenersv1alpha1.Listener) *corev1.Service {
	service := &corev1.Service{}
	f := check.Finding{Kind: "Service", Namespace: listener.Namespace, Name: listener.Name}
	if !w.Require(ctx, service, f.Failed("", "does not exist", check.RemedyOperator).Because()) {
		return nil
	}
	if !metav1.IsControlledBy(service, listener) {
		w.Add(f.FailedBy(listenersv1alpha1.ReasonForeignService, "is not that of the Listener"))
		return nil
	}
	kind := string(service.Spec.Type)
	if exposure.IsHeadless(service) {
		kind += ", headless"
	}
	w.Add(okUnless(f, listener, "%s, %s", kind, portsOf(service)))
	return service
}

// advertised names the addresses that are advertised for a Listener, and where they have to lead. Nothing shows whether
// they do.
func (w *walk) advertised(listener *listenersv1alpha1.Listener) {
	for _, f := range advertise.Forwards(listener) {
		var targets []string
		for _, t := range f.Targets {
			targets = append(targets, t.String())
		}
		w.Add(check.Finding{Kind: "Address", Name: f.HostPort()}.Warning("", fmt.Sprintf("is advertised for port %s: what is there, which the operator does not know, "+
			"has to forward to %s", f.Name, columns.Names(targets))))
	}
}

// okUnless returns that an object is as it should be, unless the Listener says that it waits for it.
func okUnless(f check.Finding, listener *listenersv1alpha1.Listener, format string, args ...any) check.Finding {
	if ready := condition(listener, listenersv1alpha1.ListenerReady); ready.Status == metav1.ConditionFalse && slices.Contains(elsewhere[ready.Reason], f.Kind) {
		f = f.FailedBy(ready.Reason, ready.Message)
		if ready.Reason == listenersv1alpha1.ReasonWaitingForLoadBalancer {
			f.Remedy += fmt.Sprintf(` kubectl patch listener %s --namespace %s --type merge --patch '{"spec": {"className": "CLASS"}}'`, listener.Name, listener.Namespace)
		}
		return f
	}
	return f.OK(format, args...)
}

// exposures follows the objects that expose a Listener beside its Service: its Routes, its Ingresses, or its routes of
// the Gateway API, and their Gateways.
func (w *walk) exposures(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) {
	backend := backends.All().Of(class)
	w.ingressClass(ctx, listener, class)
	for _, kind := range backend.KindsFor(class) {
		if kind != backend.Reads {
			w.generated(ctx, listener, kind)
		}
	}
	if backend.Reads == nil {
		return
	}
	for _, reference := range backend.References(class, nil) {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(backend.Reads.GroupVersionKind)
		f := check.Finding{Kind: backend.Reads.Kind, Namespace: reference.Namespace, Name: reference.Name}
		if w.Require(ctx, object, f.Failed("", "does not exist, and class "+class.Name+" names it", "Create it, or name another one in the class.")) {
			w.Add(okUnless(f, listener, "exists"))
		}
	}
}

// ingressClass reports that the IngressClass of a Listener that waits for an Ingress controller does not exist. Some
// controllers need none, and users may seldom read them.
func (w *walk) ingressClass(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) {
	if class.Spec.Ingress == nil || condition(listener, listenersv1alpha1.ListenerReady).Reason != listenersv1alpha1.ReasonWaitingForIngress {
		return
	}
	f := check.Finding{Kind: "IngressClass", Name: class.Spec.Ingress.ClassName}
	if w.Get(ctx, types.NamespacedName{Name: f.Name}, &networkingv1.IngressClass{}) == check.Missing {
		w.Add(f.Failed("", "does not exist, and class "+class.Name+" names it", "Create it, and see whether its controller runs, or name another one in the class: docs/ingress.md"))
	}
}

// generated follows the objects of a kind that the operator generates for a Listener.
func (w *walk) generated(ctx context.Context, listener *listenersv1alpha1.Listener, kind *exposure.Kind) {
	f := check.Finding{Kind: kind.Kind, Namespace: listener.Namespace}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersionKind)
	served, err := w.Client.RESTMapper().RESTMapping(kind.GroupKind(), append([]string{kind.Version}, kind.OtherVersions...)...)
	if err == nil {
		list.SetGroupVersionKind(served.GroupVersionKind)
	}
	if w.FollowAll(ctx, f, list, client.InNamespace(listener.Namespace)) == check.Forbidden {
		return
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], listener) {
			f.Name = list.Items[i].Name
			w.Add(okUnless(f, listener, "exists"))
		}
	}
	if f.Name == "" {
		w.Add(f.Failed("", "none belongs to Listener "+listener.Name, check.RemedyOperator).Because())
	}
}

// endpoints follows the endpoints of a Service. pod is the Pod that should be among them, or nil, and so is class if it
// could not be read.
func (w *walk) endpoints(
	ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass, service *corev1.Service, pod *corev1.Pod,
) {
	var endpoints discoveryv1.EndpointSliceList
	f := check.Finding{Kind: "Endpoints", Namespace: service.Namespace, Name: service.Name}
	if w.FollowAll(ctx, f, &endpoints, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}) == check.Forbidden {
		return
	}
	all, serving, included := check.CountEndpoints(endpoints.Items, pod)
	ready, known := serving, true
	if service.Spec.PublishNotReadyAddresses { // then every endpoint counts as ready
		ready, known = w.readyPods(ctx, service.Namespace, endpoints.Items, all)
		ready = min(ready, serving)
	}
	switch {
	case !known:
		w.Add(f.OK("%d published", all))
	case all == 0 && condition(listener, listenersv1alpha1.ListenerReady).Reason == listenersv1alpha1.ReasonReserved:
		w.Add(f.Warning(listenersv1alpha1.ReasonReserved, "there are none, because no Pod mounts the Listener"))
	case all == 0:
		w.Add(w.noEndpoints(ctx, f, listener, pod))
	case serving == 0:
		w.Add(f.Failed("", fmt.Sprintf("none of %d Pods is ready", all), "Find out why the Pods are not ready: kubectl describe pods --namespace "+
			service.Namespace+". If they should receive traffic nevertheless, "+check.NotReadyRemedy(listener, class)+".").Because())
	case pod != nil && !included && pod.Status.PodIP != "":
		w.Add(w.noEndpoint(f, listener, pod))
	case service.Spec.PublishNotReadyAddresses:
		w.Add(publishedFinding(f, ready, all, check.OnlyReadyRemedy(listener, class)))
	default:
		w.Add(f.OK("%d of %d ready", ready, all))
	}
}

// publishedFinding returns the state of a Service to all of whose Pods clients are sent, ready or not. remedy says what
// sends them to the ready ones only.
func publishedFinding(f check.Finding, ready, all int, remedy string) check.Finding {
	text := fmt.Sprintf("%d of %d published, %d of %d Pods ready", all, all, ready, all)
	switch {
	case ready == all:
		return f.OK("%s", text)
	case all == 1:
		return f.Warning("", text)
	default:
		return f.Warning("", text+", and clients are also sent to the others; unless they need that, "+remedy)
	}
}

// readyPods returns how many of all endpoints are Pods that are ready, and whether the user may know that. Kubernetes
// takes the readiness from the Pods of a node that does not respond.
func (w *walk) readyPods(ctx context.Context, namespace string, endpointSlices []discoveryv1.EndpointSlice, all int) (ready int, known bool) {
	var pods corev1.PodList
	if w.FollowAll(ctx, check.Finding{Kind: "Pod", Namespace: namespace}, &pods, client.InNamespace(namespace)) == check.Forbidden {
		return 0, false
	}
	published, unready := sets.New[types.UID](), 0
	for i := range endpointSlices {
		for _, e := range endpointSlices[i].Endpoints {
			published.Insert(ptr.Deref(e.TargetRef, corev1.ObjectReference{}).UID)
		}
	}
	for i := range pods.Items {
		ready := check.PodCondition(&pods.Items[i], corev1.PodReady)
		if published.Has(pods.Items[i].UID) && ready != nil && ready.Status != corev1.ConditionTrue {
			unready++
		}
	}
	return all - unready, true
}

// noEndpoints returns why a Service has no endpoints. pod is the Pod that should be one of them, or nil.
func (w *walk) noEndpoints(ctx context.Context, f check.Finding, listener *listenersv1alpha1.Listener, pod *corev1.Pod) check.Finding {
	if pods := w.PodsOf(ctx, listener); pod == nil && len(pods) > 0 {
		pod = &pods[0]
	}
	switch {
	case pod == nil:
		return f.Failed("", "no Pod belongs to the Service", startPod).Because()
	case pod.DeletionTimestamp != nil:
		return f.Warning("", fmt.Sprintf("no Pod belongs to the Service, because Pod %s is being deleted", pod.Name))
	case pod.Status.PodIP == "" || claim.PodFinished(pod):
		return f.Failed("", fmt.Sprintf("no Pod belongs to the Service, because Pod %s does not run", pod.Name),
			"See why: "+check.Describe("pod", pod)).Because()
	default:
		return w.noEndpoint(f, listener, pod).Because()
	}
}

// startPod is what to do about a Listener that no Pod mounts.
const startPod = "Start a Pod that mounts the Listener, or see why it has not started: kubectl listener why POD"

// noEndpoint returns that a Pod, which has an address, is no endpoint of a Service.
func (w *walk) noEndpoint(f check.Finding, listener *listenersv1alpha1.Listener, pod *corev1.Pod) check.Finding {
	message := fmt.Sprintf("Pod %s is not among them", pod.Name)
	switch {
	case pod.DeletionTimestamp != nil:
		return f.Warning("", message+", because it is being deleted")
	case len(listener.Spec.ExtraPodSelectorLabels) > 0:
		return f.FailedBy(listenersv1alpha1.ReasonNoMatchingPods, message)
	default:
		return f.Failed("", message, fmt.Sprintf("Kubernetes adds it within a moment. If it does not, compare the selector of the Service with the labels of the Pod: "+
			"kubectl get service %s --namespace %s --output wide", f.Name, f.Namespace))
	}
}

// portsOf describes the ports of a Service, sorted by name.
func portsOf(service *corev1.Service) string {
	var ports []string
	for _, p := range service.Spec.Ports {
		text := fmt.Sprintf("%s %d", p.Name, p.Port)
		if p.NodePort != 0 {
			text += fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, text+"/"+string(p.Protocol))
	}
	slices.Sort(ports)
	return strings.Join(ports, ", ")
}
