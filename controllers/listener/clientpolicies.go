package listener

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// clientPolicies is what the NetworkPolicy for the clients of a Listener depends on. Without a restriction of clients,
// it is empty.
type clientPolicies struct {
	// foreignPolicy is a NetworkPolicy with the name of that of the Listener, which the Listener does not control.
	foreignPolicy *networkingv1.NetworkPolicy
	// otherPolicies is what the other NetworkPolicies of the namespace say about the Pods of the Listener.
	otherPolicies exposure.OtherPolicies
	// mounting are the Pods that mount the Listener.
	mounting []*corev1.Pod
}

// readPolicies reads the NetworkPolicy of the Listener and, if clients are restricted, what it depends on.
func (r *reader) readPolicies(ctx context.Context, s *snapshot) error {
	key := types.NamespacedName{Namespace: s.listener.Namespace, Name: s.listener.Name + exposure.ClientPolicySuffix}
	own, err := lookup.Get(ctx, r.client, key, &networkingv1.NetworkPolicy{})
	if err != nil {
		return err
	}
	if own != nil && controls(s.listener, own) {
		s.policy = own
	} else {
		s.foreignPolicy = own
	}
	if s.class == nil || len(s.class.Spec.AllowedClients)+len(s.listener.Spec.AllowedClients) == 0 {
		return nil
	}
	var all networkingv1.NetworkPolicyList
	if err := r.client.List(ctx, &all, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing network policies: %w", err)
	}
	var others []*networkingv1.NetworkPolicy
	for i := range all.Items {
		if all.Items[i].Name != key.Name {
			others = append(others, &all.Items[i])
		}
	}
	placement, err := reservation.Placement(ctx, r.client, s.listener, false)
	s.mounting = placement.Mounting
	s.otherPolicies = exposure.ReadPolicies(s.listener, s.mounting, others)
	return err
}

// checkClients returns why clients cannot be restricted as they have to be, or nil.
func checkClients(s *snapshot, p *plan) *exposure.Refusal {
	if refusal := s.backend.CheckClients(s.forBackend(s.backend, s.present, p.service), p.service); refusal != nil {
		return refusal
	}
	if len(s.class.Spec.AllowedClients)+len(s.listener.Spec.AllowedClients) == 0 || !s.backend.RestrictsPods(p.service) {
		return nil
	}
	if s.foreignPolicy != nil {
		return exposure.Refuse(listenersv1alpha1.ReasonForeignNetworkPolicy, "NetworkPolicy %s already exists and %s; delete it, or rename the Listener",
			client.ObjectKeyFromObject(s.foreignPolicy), describeController(s.foreignPolicy))
	}
	for _, pod := range s.mounting {
		if pod.Spec.HostNetwork {
			return exposure.Refuse(listenersv1alpha1.ReasonAllowedClientsNotEnforceable, "allowedClients cannot be enforced: NetworkPolicies do not apply to Pod %s, which uses "+
				"the network of its node; remove hostNetwork from the Pod, or use a class without allowedClients and restrict clients by a firewall", pod.Name)
		}
	}
	return nil
}

// policyWriter writes the NetworkPolicies of Listeners.
type policyWriter struct{ applier *apply.Applier }

// apply applies the NetworkPolicy that the Listener needs, as far as its ports are known. It is called before the
// Service is applied, so that no other client reaches the Pods meanwhile, and after that, when all ports are known.
func (w *policyWriter) apply(ctx context.Context, s *snapshot, p *plan, o *outcome) (*exposure.Refusal, error) {
	desired := plannedPolicy(s, p, o)
	if desired == nil {
		return nil, nil //nolint:nilnil // nothing is refused
	}
	var existing client.Object
	if o.policy != nil {
		existing = o.policy
	}
	sent, err := w.applier.Apply(ctx, desired, existing)
	if sent {
		o.policy = &networkingv1.NetworkPolicy{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o.policy)
	}
	if status := rejection(err); status != nil {
		return exposure.Refuse(listenersv1alpha1.ReasonNetworkPolicyRejected, "the API server rejects NetworkPolicy %s, without which other clients would reach the Pods: %s",
			client.ObjectKeyFromObject(desired), status.Message), err
	}
	return nil, err
}

// removeUnplanned deletes the NetworkPolicy of a Listener that needs none any more.
func (w *policyWriter) removeUnplanned(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	if o.policy == nil || !o.policy.DeletionTimestamp.IsZero() || plannedPolicy(s, p, o) != nil {
		return nil
	}
	if err := w.applier.Delete(ctx, o.policy); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted the NetworkPolicy of the Listener", "networkPolicy", client.ObjectKeyFromObject(o.policy).String())
	o.policy = nil
	return nil
}

// plannedPolicy returns the NetworkPolicy for the Service as it is applied now, or nil.
func plannedPolicy(s *snapshot, p *plan, o *outcome) *unstructured.Unstructured {
	service, _ := withTargetPorts(s, o.service, p.serviceNow)
	return s.backend.ClientPolicy(s.forBackend(s.backend, o.present, p.service), service, s.otherPolicies)
}

// policyToListeners maps the NetworkPolicy of a Listener to this one, and to others of the same Pods; and any other
// NetworkPolicy to the Listener that needs its name, and to those of the namespace whose clients are restricted: what
// their policies admit depends on which others select their Pods.
func (r *Reconciler) policyToListeners(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	name, ok := strings.CutSuffix(o.GetName(), exposure.ClientPolicySuffix)
	if ok {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
	}
	inNamespace := client.InNamespace(o.GetNamespace())
	if exposure.IsClientPolicy(o) {
		ofPods := client.MatchingFields{index.PodListenersByListener: name}
		return append(requests, index.Requests[listenersv1alpha1.PodListenersList](ctx, r.Client, podListenersToListeners, inNamespace, ofPods)...)
	}
	return append(requests, index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, r.restrictedListener, inNamespace)...)
}

// restrictedListener maps a Listener whose clients are restricted to itself.
func (r *Reconciler) restrictedListener(ctx context.Context, o client.Object) []reconcile.Request {
	listener := o.(*listenersv1alpha1.Listener)
	if len(listener.Spec.AllowedClients) == 0 {
		class, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: listener.Class()}, &listenersv1alpha1.ListenerClass{})
		if err != nil || class == nil || len(class.Spec.AllowedClients) == 0 {
			return nil
		}
	}
	return index.Request(ctx, o)
}
