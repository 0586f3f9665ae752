package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// listener follows a Listener, its class, and the objects that expose it. pod is the Pod that it was reached from, or
// nil.
func (w *walk) listener(ctx context.Context, listener *listenersv1alpha1.Listener, pod *corev1.Pod) {
	w.Add(listenerFinding(listener))
	class := w.class(ctx, listener)
	service := w.service(ctx, listener)
	if class != nil {
		w.exposures(ctx, listener, class)
	}
	if service != nil {
		w.endpoints(ctx, listener, class, service, pod)
	}
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
	case ready.Reason != listenersv1alpha1.ReasonAddressesAssigned:
		return f.Warning(ready.Reason, ready.Message)
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
	w.Add(okUnless(f, listener, "%s, %s", service.Spec.Type, portsOf(service)))
	return service
}

// okUnless returns that an object is as it should be, unless the Listener says that it waits for it.
func okUnless(f check.Finding, listener *listenersv1alpha1.Listener, format string, args ...any) check.Finding {
	if ready := condition(listener, listenersv1alpha1.ListenerReady); ready.Status == metav1.ConditionFalse && slices.Contains(elsewhere[ready.Reason], f.Kind) {
		return f.FailedBy(ready.Reason, ready.Message)
	}
	return f.OK(format, args...)
}

// exposures follows the objects that expose a Listener beside its Service: its Routes, its Ingresses, or its routes of
// the Gateway API, and their Gateways.
func (w *walk) exposures(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) {
	backend := backends.All().Of(class)
	if backend.Kind != nil {
		w.generated(ctx, listener, backend.Kind)
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
	all, ready, included := check.CountEndpoints(endpoints.Items, pod)
	switch {
	case all == 0 && condition(listener, listenersv1alpha1.ListenerReady).Reason == listenersv1alpha1.ReasonReserved:
		w.Add(f.Warning(listenersv1alpha1.ReasonReserved, "there are none, because no Pod mounts the Listener"))
	case all == 0:
		w.Add(f.Failed("", "no Pod belongs to the Service", check.Remedy(listenersv1alpha1.ReasonNoMatchingPods)).Because())
	case ready == 0:
		w.Add(f.Failed("", fmt.Sprintf("none of %d Pods is ready", all), "Find out why the Pods are not ready: kubectl describe pods --namespace "+
			service.Namespace+". If they should receive traffic nevertheless, "+check.NotReadyRemedy(listener, class)+"."))
	case pod != nil && !included && pod.Status.PodIP != "":
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNoMatchingPods, fmt.Sprintf("Pod %s is not among them", pod.Name)))
	case ready < all && service.Spec.PublishNotReadyAddresses:
		w.Add(f.Warning("", fmt.Sprintf("%d of %d are ready, and clients are also sent to the others; unless they need that, %s", ready, all,
			check.OnlyReadyRemedy(listener, class))))
	default:
		w.Add(f.OK("%d of %d ready", ready, all))
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
