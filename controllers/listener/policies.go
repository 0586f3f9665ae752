package listener

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// policyWriter writes the NetworkPolicies of Listeners.
type policyWriter struct{ applier *apply.Applier }

// apply applies the NetworkPolicy that the Listener needs beside what exists now, as far as its ports are known, and
// returns it. It is called before the Service is applied, so that no other client reaches the Pods meanwhile, and after
// that, when all ports are known.
func (w *policyWriter) apply(ctx context.Context, s *snapshot, p *plan, now present) (*networkingv1.NetworkPolicy, *exposure.Refusal, error) {
	desired := plannedPolicy(s, p, now)
	if desired == nil {
		return now.policy, nil, nil
	}
	policy := now.policy
	sent, err := w.applier.Apply(ctx, desired, now.policy)
	if sent {
		policy = &networkingv1.NetworkPolicy{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, policy)
	}
	if status := rejection(err); status != nil {
		return policy, exposure.Refuse(listenersv1alpha1.ReasonNetworkPolicyRejected, "the API server rejects NetworkPolicy %s, without which other clients would reach the Pods: %s",
			client.ObjectKeyFromObject(desired), status.Message), err
	}
	return policy, nil, err
}

// removeUnplanned deletes the NetworkPolicy of a Listener that needs none any more.
func (w *policyWriter) removeUnplanned(ctx context.Context, s *snapshot, p *plan, now present) error {
	if now.policy == nil || !now.policy.DeletionTimestamp.IsZero() || plannedPolicy(s, p, now) != nil {
		return nil
	}
	if err := w.applier.Delete(ctx, now.policy); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted the NetworkPolicy of the Listener", "networkPolicy", client.ObjectKeyFromObject(now.policy).String())
	return nil
}

// plannedPolicy returns the NetworkPolicy for the Service as it is applied now, or nil.
func plannedPolicy(s *snapshot, p *plan, now present) *unstructured.Unstructured {
	service, _ := withTargetPorts(s, now.service, p.serviceNow)
	return s.backend.ClientPolicy(s.forBackend(s.backend, now, p.service), service, s.otherPolicies)
}
