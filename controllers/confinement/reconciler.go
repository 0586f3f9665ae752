// Package confinement confines the operator itself to what it writes, by admission policies: RBAC cannot restrict which
// objects of a kind, or which of their fields, may be written. It creates the policies whatever the configuration says,
// and whether it exists.
//
// It must never change or delete a policy, even one of another client. The operator has no permission to, so that a
// stolen token of the operator remains confined. So a later version that needs another policy gives it another name,
// and deletes the former one: permission for that comes with the manifests of the later version.
package confinement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Reconciler creates the policies.
type Reconciler struct {
	Client    client.Client
	APIReader client.Reader
}

// SetupWithManager registers the controller, which runs at the start, and when a policy changes.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	return requests.Controller(mgr, "confinement", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, requests.Only(), builder.WithPredicates(IsPolicy())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, requests.Only(), builder.WithPredicates(IsPolicy())).
		Complete(r)
}

// IsPolicy passes the policies that confine an operator of any version, and their bindings.
func IsPolicy() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return isPolicy(o.GetName()) })
}

// Reconcile creates the policies and bindings that do not exist.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	owner, err := lookup.ConfigurationCRD(ctx, r.APIReader)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := Policies(owner)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	for _, p := range all {
		if err := errors.Join(r.ensure(ctx, p.Policy), r.ensure(ctx, p.Binding)); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

func (r *Reconciler) ensure(ctx context.Context, object client.Object) error {
	existing, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if err != nil || existing != nil {
		return err
	}
	switch err := r.Client.Create(ctx, object, client.FieldOwner(names.FieldManagerOperator)); {
	case err == nil:
		log.FromContext(ctx).Info("Created the admission policy that confines the operator", "name", object.GetName())
	case client.IgnoreAlreadyExists(err) != nil:
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// Others returns messages about existing policies and bindings that differ from this version's. The operator cannot
// change them, and whoever has its token may create one before an operator of a later version does.
func Others(ctx context.Context, reader client.Reader) ([]string, error) {
	all, err := Policies(metav1.OwnerReference{})
	if err != nil {
		return nil, err
	}
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := errors.Join(reader.List(ctx, &policies), reader.List(ctx, &bindings)); err != nil {
		return nil, fmt.Errorf("listing the policies that confine the operator: %w", err)
	}
	desired, existing := map[string]any{}, map[string]any{} // the specs, by kind and name
	for _, c := range all {
		desired["ValidatingAdmissionPolicy "+c.Policy.Name], desired["ValidatingAdmissionPolicyBinding "+c.Binding.Name] = c.Policy.Spec, c.Binding.Spec
	}
	for i := range policies.Items {
		existing["ValidatingAdmissionPolicy "+policies.Items[i].Name] = policies.Items[i].Spec
	}
	for i := range bindings.Items {
		existing["ValidatingAdmissionPolicyBinding "+bindings.Items[i].Name] = bindings.Items[i].Spec
	}
	var messages []string
	for _, object := range slices.Sorted(maps.Keys(existing)) {
		_, name, _ := strings.Cut(object, " ")
		switch spec, known := desired[object]; {
		case !isPolicy(name) || known && equality.Semantic.DeepEqual(spec, existing[object]):
		case known:
			messages = append(messages, object+" differs from the one of this version; delete it, and the operator creates it again")
		default:
			messages = append(messages, object+" belongs to another version of the operator; if none is installed, delete it")
		}
	}
	return messages, nil
}
