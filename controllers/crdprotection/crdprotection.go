// Package crdprotection protects the CustomResourceDefinitions of the operator from deletion while there are
// Listeners: with them, the API server deletes all Listeners of the cluster, and the garbage collector their Services.
// Uninstalling by some tools does that, and so does a single mistaken command.
//
// A policy denies the deletion while it is bound, and the controller binds it while there are Listeners. An annotation
// on a CustomResourceDefinition permits its deletion at any time, because the operator may be gone before them.
package crdprotection

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

const name = "listener-operator-crds"

//go:embed policy.yaml
var policy []byte

//go:embed binding.yaml
var binding []byte

type Reconciler struct {
	Client    client.Client
	APIReader client.Reader

	applier *apply.Applier
	// owner is the CustomResourceDefinition of the configuration, as last read. If another one has replaced it, the
	// garbage collector has deleted the policy and its binding.
	owner metav1.OwnerReference
}

// SetupWithManager registers the controller, for Listeners that come or go, and changes of the policy and its binding.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.applier = apply.New(r.Client, names.FieldManagerOperator)
	isOurs := builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetName() == name
	}))
	return requests.Controller(mgr, "crdprotection", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&listenersv1alpha1.Listener{}, requests.Only(), builder.WithPredicates(predicates.ExistenceChanged())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, requests.Only(), isOurs).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, requests.Only(), isOurs).
		Complete(requests.Requeue(mgr, "crdprotection", r))
}

func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var listeners listenersv1alpha1.ListenerList
	if err := r.Client.List(ctx, &listeners, client.Limit(1)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing Listeners: %w", err)
	}
	key := client.ObjectKey{Name: name}
	existing, err := lookup.Get[client.Object](ctx, r.Client, key, &admissionregistrationv1.ValidatingAdmissionPolicy{})
	bound, bindingErr := lookup.Get[client.Object](ctx, r.Client, key,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{})
	if err := errors.Join(err, bindingErr); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case len(listeners.Items) == 0 && bound != nil:
		return reconcile.Result{}, r.applier.Delete(ctx, bound)
	case len(listeners.Items) == 0:
		return reconcile.Result{}, nil
	}
	if existing == nil || bound == nil || r.owner.UID == "" { // not for each Listener that comes or goes
		if r.owner, err = lookup.ConfigurationCRD(ctx, r.APIReader); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, errors.Join(r.apply(ctx, policy, existing), r.apply(ctx, binding, bound))
}

func (r *Reconciler) apply(ctx context.Context, manifest []byte, observed client.Object) error {
	desired := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &desired.Object); err != nil {
		return reconcile.TerminalError(fmt.Errorf("decoding a manifest: %w", err))
	}
	desired.SetOwnerReferences([]metav1.OwnerReference{r.owner})
	desired.SetLabels(names.OperatorLabels())
	_, err := r.applier.Apply(ctx, desired, observed)
	return err
}
