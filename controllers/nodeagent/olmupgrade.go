package nodeagent

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// writeOperatorCondition reports to the Operator Lifecycle Manager, if there is one, whether the operator may be
// upgraded now. It reads without the cache, because the operator may read this one object only.
func (r *Reconciler) writeOperatorCondition(ctx context.Context, status operatorv1alpha1.ListenerOperatorStatus) error {
	upgradeable := meta.FindStatusCondition(status.Conditions, operatorv1alpha1.ConditionUpgradeable)
	last := ptr.Deref(r.lastUpgradeable, metav1.Condition{})
	if r.OperatorCondition == "" || last.Status == upgradeable.Status && last.Reason == upgradeable.Reason && last.Message == upgradeable.Message {
		return nil
	}
	observed := &unstructured.Unstructured{}
	observed.SetGroupVersionKind(names.KindOperatorCondition)
	err := r.apiReader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.OperatorCondition}, observed)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // the operator is installed without the Operator Lifecycle Manager
	}
	if err != nil {
		return fmt.Errorf("reading OperatorCondition %s: %w", r.OperatorCondition, err)
	}
	desired := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"conditions": []any{map[string]any{
		"type": upgradeable.Type, "status": string(upgradeable.Status), "reason": upgradeable.Reason, "message": upgradeable.Message,
		"lastTransitionTime": upgradeable.LastTransitionTime.UTC().Format(metav1.RFC3339Micro),
	}}}}}
	desired.SetGroupVersionKind(names.KindOperatorCondition)
	desired.SetNamespace(r.Namespace)
	desired.SetName(r.OperatorCondition)
	if _, err := r.applier.Apply(ctx, desired, observed); err != nil { // never creates one, because of the observed uid
		return err
	}
	r.lastUpgradeable = upgradeable
	return nil
}
