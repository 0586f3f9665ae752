package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// crdName is the CustomResourceDefinition of the configuration. It owns the policies that confine the operator: they
// exist as long as it is installed, whether there is a configuration or not.
const crdName = "listeneroperators.listener-operator.dev"

// confiner creates the policies that confine the operator, whatever the configuration says and whether it exists. It
// never modifies existing ones, even those of other clients.
type confiner struct {
	// client reads from the manager's cache, and writes.
	client client.Client
	// apiReader reads without the cache.
	apiReader client.Reader
}

// SetupConfinement registers the controller that confines the operator by admission policies. It runs once at the
// start, and when a policy changes.
func SetupConfinement(mgr manager.Manager) error {
	c := &confiner{client: mgr.GetClient(), apiReader: mgr.GetAPIReader()}
	return requests.Controller(mgr, "confinement", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, requests.Only(), builder.WithPredicates(isConfinement())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, requests.Only(), builder.WithPredicates(isConfinement())).
		Complete(c)
}

// isConfinement passes the policies that confine an operator of any version, and their bindings.
func isConfinement() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return installation.IsConfinement(o.GetName()) })
}

// Reconcile creates the policies and bindings that do not exist.
func (c *confiner) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	owner, err := c.owner(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := installation.Confinements(owner)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	for _, p := range all {
		for _, object := range []client.Object{p.Policy, p.Binding} {
			if err := c.create(ctx, object); err != nil {
				return reconcile.Result{}, err
			}
		}
	}
	return reconcile.Result{}, nil
}

// otherConfinements returns messages about the existing policies and bindings, of whatever version, that are not those
// of this version. The operator cannot change them, and whoever has its token may create one before an operator of a
// later version does.
func otherConfinements(ctx context.Context, reader client.Reader) ([]string, error) {
	all, err := installation.Confinements(metav1.OwnerReference{})
	if err != nil {
		return nil, err
	}
	policySpecs, bindingSpecs := map[string]any{}, map[string]any{}
	for _, c := range all {
		policySpecs[c.Policy.Name], bindingSpecs[c.Binding.Name] = c.Policy.Spec, c.Binding.Spec
	}
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := errors.Join(reader.List(ctx, &policies), reader.List(ctx, &bindings)); err != nil {
		return nil, fmt.Errorf("listing the policies that confine the operator: %w", err)
	}
	var messages []string
	compare := func(kind, name string, existing any, specs map[string]any) {
		want, known := specs[name]
		switch {
		case !installation.IsConfinement(name) || known && equality.Semantic.DeepEqual(want, existing):
		case known:
			messages = append(messages, fmt.Sprintf("%s %s differs from that of this version; delete it, and the operator creates it again", kind, name))
		default:
			messages = append(messages, fmt.Sprintf("%s %s belongs to another version of the operator; if none is installed, delete it", kind, name))
		}
	}
	for i := range policies.Items {
		compare("ValidatingAdmissionPolicy", policies.Items[i].Name, policies.Items[i].Spec, policySpecs)
	}
	for i := range bindings.Items {
		compare("ValidatingAdmissionPolicyBinding", bindings.Items[i].Name, bindings.Items[i].Spec, bindingSpecs)
	}
	slices.Sort(messages)
	return messages, nil
}

// owner returns a reference to the CustomResourceDefinition of the configuration.
func (c *confiner) owner(ctx context.Context) (metav1.OwnerReference, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := c.apiReader.Get(ctx, client.ObjectKey{Name: crdName}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading CustomResourceDefinition %s: %w", crdName, err)
	}
	return metav1.OwnerReference{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition", Name: crd.Name, UID: crd.UID}, nil
}

// create creates an object unless the cache has it.
func (c *confiner) create(ctx context.Context, object client.Object) error {
	existing := object.DeepCopyObject().(client.Object)
	err := c.client.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %T %s: %w", object, object.GetName(), err)
	}
	err = c.client.Create(ctx, object, client.FieldOwner(names.FieldManagerOperator))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	log.FromContext(ctx).Info("Created the admission policy that confines the operator", "name", object.GetName())
	return nil
}
