package listener

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// maxListed is how many nodes a message names.
const maxListed = 10

// report writes the status if it changes, and tells users of changed conditions.
func (r *Reconciler) report(ctx context.Context, o *observed, refusal *exposure.Refusal, serviceErr error) error {
	before := ownStatus(o.listener)
	after := describe(o, before, refusal, serviceErr)
	if o.listener.Status != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	if err := r.applyStatus(ctx, o.listener, after); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Reported status", "addresses", len(after.IngressAddresses))
	r.tell(o, before, after)
	return nil
}

// ownStatus returns the status that a Listener has, without conditions of others.
func ownStatus(listener *v1alpha1.Listener) *v1alpha1.ListenerStatus {
	if listener.Status == nil {
		return &v1alpha1.ListenerStatus{}
	}
	status := *listener.Status
	status.Conditions = nil
	for _, t := range []string{v1alpha1.ListenerAccepted, v1alpha1.ListenerReady} {
		if c := meta.FindStatusCondition(listener.Status.Conditions, t); c != nil {
			status.Conditions = append(status.Conditions, *c)
		}
	}
	return &status
}

// describe returns the status of a Listener. When the API server did not say yes or no to the Service, conditions and observed
// generation stay as they were.
func describe(o *observed, before *v1alpha1.ListenerStatus, refusal *exposure.Refusal, serviceErr error) *v1alpha1.ListenerStatus {
	status := &v1alpha1.ListenerStatus{IngressAddresses: []v1alpha1.IngressAddress{}}
	if o.service != nil {
		status.ServiceName = ptr.To(o.service.Name)
	}
	switch {
	case o.service == nil || o.terminating():
	case o.class == nil:
		status.NodePorts = before.NodePorts
		status.IngressAddresses = append(status.IngressAddresses, before.IngressAddresses...)
	default:
		status.IngressAddresses = exposure.Addresses(o.class, o.service, o.nodes, o.clusterDomain)
		ports := exposure.NodePorts(o.service)
		if o.class.Spec.ServiceType == v1alpha1.ServiceTypeNodePort && len(ports) > 0 {
			status.NodePorts = ports // never empty, which would read back as nil, and be written again in each pass
		}
	}
	status.Conditions = append(status.Conditions, before.Conditions...)
	if serviceErr != nil && refusal == nil {
		status.ObservedGeneration = before.ObservedGeneration
		return status
	}
	status.ObservedGeneration = o.listener.Generation
	for _, c := range []metav1.Condition{accepted(o, refusal), ready(o, status, refusal)} {
		c.ObservedGeneration = o.listener.Generation
		c.Message = message.Cut(c.Message, message.Condition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func accepted(o *observed, refusal *exposure.Refusal) metav1.Condition {
	if refusal != nil {
		return metav1.Condition{
			Type: v1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: refusal.Reason, Message: refusal.Message,
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
		Message: fmt.Sprintf("Service %s follows ListenerClass %s", client.ObjectKeyFromObject(o.listener), o.class.Name),
	}
}

func ready(o *observed, status *v1alpha1.ListenerStatus, refusal *exposure.Refusal) metav1.Condition {
	if len(status.IngressAddresses) > 0 {
		message := "reachable at " + status.IngressAddresses[0].Address
		if more := len(status.IngressAddresses) - 1; more > 0 {
			message += fmt.Sprintf(" and %d more", more)
		}
		if left := leftOut(o); left != "" {
			message += "; left out: " + left
		}
		return metav1.Condition{
			Type: v1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAddressesAssigned, Message: message,
		}
	}
	reason, message := waitsFor(o, status, refusal)
	return metav1.Condition{Type: v1alpha1.ListenerReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// waitsFor says why there is no address.
func waitsFor(o *observed, status *v1alpha1.ListenerStatus, refusal *exposure.Refusal) (reason, message string) {
	service := client.ObjectKeyFromObject(o.listener).String()
	switch {
	case refusal != nil:
		return v1alpha1.ReasonNotAccepted, "the condition Accepted says what is wrong"
	case o.terminating():
		return v1alpha1.ReasonServiceTerminating, "Service " + service + " is being deleted and will be made anew; " +
			"if that takes long, see which of its finalizers is left"
	case o.class.Spec.ServiceType == v1alpha1.ServiceTypeLoadBalancer:
		return v1alpha1.ReasonWaitingForLoadBalancer, "no load balancer has given Service " + service + " an address yet; " +
			responsible(o.class) + " has to"
	case o.class.Spec.ServiceType == v1alpha1.ServiceTypeClusterIP:
		return v1alpha1.ReasonWaitingForClusterIP, "Service " + service + " has no cluster IP yet"
	case len(status.NodePorts) == 0:
		return v1alpha1.ReasonWaitingForNodePorts, "Service " + service + " has no node ports; overrides may have changed its type"
	case len(o.nodes)+len(o.missingNodes) == 0:
		return v1alpha1.ReasonWaitingForPods, "no Pod has mounted a volume of this Listener yet; its addresses are those of the Pods' nodes"
	default:
		return v1alpha1.ReasonNodesMissing, "none of the Listener's nodes has an address: " + leftOut(o)
	}
}

func responsible(class *v1alpha1.ListenerClass) string {
	if name := ptr.Deref(class.Spec.LoadBalancerClass, ""); name != "" {
		return fmt.Sprintf("the controller of loadBalancerClass %q, which ListenerClass %s asks for,", name, class.Name)
	}
	return fmt.Sprintf("the cluster's default load balancer controller (ListenerClass %s sets no loadBalancerClass)", class.Name)
}

// leftOut names the nodes that should be among the addresses but cannot, and why.
func leftOut(o *observed) string {
	var nodes []string
	for _, name := range o.missingNodes {
		nodes = append(nodes, name+" (no such Node)")
	}
	for _, node := range o.nodes {
		if _, _, ok := exposure.NodeAddress(node, o.class.AddressPreference()); !ok {
			nodes = append(nodes, node.Name+" (neither an IP address nor a host name)")
		}
	}
	if more := len(nodes) - maxListed; more > 0 {
		nodes = append(nodes[:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(nodes, ", ")
}

func (r *Reconciler) applyStatus(ctx context.Context, listener *v1alpha1.Listener, status *v1alpha1.ListenerStatus) error {
	key := client.ObjectKeyFromObject(listener)
	desired, err := apply.Unstructured(&v1alpha1.Listener{Status: status})
	if err != nil {
		return fmt.Errorf("encoding the status of listener %s: %w", key, err)
	}
	desired.Object = map[string]any{"status": desired.Object["status"]}
	desired.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Listener"))
	desired.SetNamespace(key.Namespace)
	desired.SetName(key.Name)
	desired.SetUID(listener.UID) // so that a namesake is never written to
	err = r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
		client.FieldOwner(names.OwnerListenerStatus), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of listener %s: %w", key, err)
	}
	return nil
}

// tell makes an event of each condition that changed. That a Listener is not ready because it is not accepted needs no second one.
func (r *Reconciler) tell(o *observed, before, after *v1alpha1.ListenerStatus) {
	for _, is := range after.Conditions {
		was := meta.FindStatusCondition(before.Conditions, is.Type)
		same := was != nil && was.Status == is.Status && was.Reason == is.Reason
		if same && (is.Status == metav1.ConditionTrue || was.Message == is.Message) || is.Reason == v1alpha1.ReasonNotAccepted {
			continue
		}
		kind := corev1.EventTypeNormal
		if is.Status == metav1.ConditionFalse && (is.Type == v1alpha1.ListenerAccepted || is.Reason == v1alpha1.ReasonNodesMissing) {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(o.listener, nil, kind, is.Reason, "Reconcile", "%s", message.Cut(is.Message, message.Event))
	}
}
