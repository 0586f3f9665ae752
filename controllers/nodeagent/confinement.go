package nodeagent

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

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// confiner creates the policies that confine the operator, whatever the configuration says and whether it exists. It
// never modifies existing ones, even those of other clients.
type confiner struct {
	// client reads from the manager's cache, and writes.
	client client.Client
	// apiReader reads without the cache.
	apiReader client.Reader
}

// SetupConfinement registers the controller, which runs once at the start, and when a policy changes.
func SetupConfinement(mgr manager.Manager) error {
	c := &confiner{client: mgr.GetClient(), apiReader: mgr.GetAPIReader()}
	return requests.Controller(mgr, "confinement", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, requests.Only(), builder.WithPredicates(isConfinement)).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, requests.Only(), builder.WithPredicates(isConfinement)).
		Complete(c)
}

// isConfinement passes the policies that confine an operator of any version, and their bindings.
var isConfinement = predicate.NewPredicateFuncs(func(o client.Object) bool { return installation.IsConfinement(o.GetName()) })

// Reconcile creates the policies and bindings that do not exist.
func (c *confiner) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	owner, err := lookup.ConfigurationCRD(ctx, c.apiReader)
	if err != nil {
		return reconcile.Result{}, err
	}
	all, err := installation.Confinements(owner)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	for _, p := range all {
		for _, object := range []client.Object{p.Policy, p.Binding} {
			existing, err := lookup.Get(ctx, c.client, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
			if err != nil {
				return reconcile.Result{}, err
			}
			if existing != nil {
				continue
			}
			if created, err := create(ctx, c.client, object); err != nil {
				return reconcile.Result{}, err
			} else if created {
				log.FromContext(ctx).Info("Created the admission policy that confines the operator", "name", object.GetName())
			}
		}
	}
	return reconcile.Result{}, nil
}

// otherConfinements returns messages about existing policies and bindings that are not those of this version. The
// operator cannot change them, and whoever has its token may create one before an operator of a later version does.
func otherConfinements(ctx context.Context, reader client.Reader) ([]string, error) {
	all, err := installation.Confinements(metav1.OwnerReference{})
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
		case !installation.IsConfinement(name) || known && equality.Semantic.DeepEqual(spec, existing[object]):
		case known:
			messages = append(messages, object+" differs from that of this version; delete it, and the operator creates it again")
		default:
			messages = append(messages, object+" belongs to another version of the operator; if none is installed, delete it")
		}
	}
	return messages, nil
}
