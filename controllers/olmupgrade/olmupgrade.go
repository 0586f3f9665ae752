// Package olmupgrade reports to the Operator Lifecycle Manager whether the operator may be upgraded now. It must never
// create an OperatorCondition: the Operator Lifecycle Manager creates one for each version.
package olmupgrade

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Report writes the condition Upgradeable into the OperatorCondition with this key, unless there is none. reader must
// read without the cache, because the operator may read this object only.
func Report(ctx context.Context, reader client.Reader, applier *apply.Applier, key types.NamespacedName,
	upgradeable metav1.Condition) error {
	observed := apply.Object(names.KindOperatorCondition, key)
	err := reader.Get(ctx, key, observed)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // the operator is installed without the Operator Lifecycle Manager
	}
	if err != nil {
		return fmt.Errorf("reading OperatorCondition %s: %w", key.Name, err)
	}
	desired := apply.Object(names.KindOperatorCondition, key)
	desired.Object["spec"] = map[string]any{"conditions": []any{map[string]any{
		"type": upgradeable.Type, "status": string(upgradeable.Status), "reason": upgradeable.Reason,
		"message":            upgradeable.Message,
		"lastTransitionTime": upgradeable.LastTransitionTime.UTC().Format(metav1.RFC3339Micro),
	}}}
	_, err = applier.Apply(ctx, desired, observed) // never creates one, because of the observed uid
	return err
}
