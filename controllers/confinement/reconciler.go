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
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

type Reconciler struct {
	Client    client.Client
	APIReader client.Reader
}

// SetupWithManager registers the controller, which runs at the start, and when a policy changes.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	return requests.Controller(mgr, "confinement", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, requests.Only(),
			builder.WithPredicates(IsPolicy())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, requests.Only(),
			builder.WithPredicates(IsPolicy())).
		Complete(r)
}

// IsPolicy passes the policies that confine an operator of any version, and their bindings.
func IsPolicy() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return isPolicy(o.GetName()) })
}

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
	existing, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(object),
		object.DeepCopyObject().(client.Object))
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
		desired["ValidatingAdmissionPolicy "+c.Policy.Name],
			desired["ValidatingAdmissionPolicyBinding "+c.Binding.Name] = c.Policy.Spec, c.Binding.Spec
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
			messages = append(messages, object+
				" differs from the one of this version; delete it, and the operator creates it again")
		default:
			messages = append(messages, object+
				" belongs to another version of the operator; if none is installed, delete it")
		}
	}
	return messages, nil
}

//go:embed policies/*.yaml
var files embed.FS

type Bound struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Policies returns the policies for an operator with all backends, in the order of their names, each with this owner.
func Policies(owner metav1.OwnerReference) ([]Bound, error) {
	policies, err := embedded()
	if err != nil {
		return nil, err
	}
	all := make([]Bound, 0, len(policies))
	for _, policy := range policies {
		all = append(all, bind(policy.DeepCopy(), owner))
	}
	return all, nil
}

var embedded = sync.OnceValues(func() ([]*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	return load(backends.All())
})

func load(list backends.List) (policies []*admissionregistrationv1.ValidatingAdmissionPolicy, err error) {
	all, err := fs.Glob(files, "policies/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	for _, file := range all {
		raw, err := files.ReadFile(file)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := errors.Join(err, yaml.UnmarshalStrict(raw, policy)); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file, err)
		}
		insert(policy, list)
		policies = append(policies, policy)
	}
	return policies, nil
}

// insert inserts what the backends generate where a policy says so. Rules name the resource GENERATED. The expression
// of a variable is GENERATED for a list of these resources, or ANNOTATED for those whose objects classes annotate.
func insert(policy *admissionregistrationv1.ValidatingAdmissionPolicy, list backends.List) {
	written, _ := list.Permissions()
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		if rule.Resources[0] != "GENERATED" {
			rules = append(rules, rule)
			continue
		}
		for _, permission := range written {
			rule.Rule = admissionregistrationv1.Rule{APIGroups: permission.APIGroups, APIVersions: []string{"*"},
				Resources: permission.Resources}
			rules = append(rules, rule)
		}
	}
	policy.Spec.MatchConstraints.ResourceRules = rules
	var generated, annotated []string
	for _, kind := range list.Generated() {
		generated = append(generated, "'"+kind.Resource+"'")
		if kind.Annotated {
			annotated = append(annotated, "'"+kind.Resource+"'")
		}
	}
	for i := range policy.Spec.Variables {
		switch variable := &policy.Spec.Variables[i]; variable.Expression {
		case "GENERATED":
			variable.Expression = "[" + strings.Join(generated, ", ") + "]"
		case "ANNOTATED":
			variable.Expression = "[" + strings.Join(annotated, ", ") + "]"
		}
	}
}

// isPolicy reports whether a policy, or a binding, of this name confines an operator of whatever version.
func isPolicy(name string) bool { return strings.HasPrefix(name, names.Operator+".") }

// bind completes a policy, and binds it. A policy with a parameter applies while there is a configuration.
func bind(policy *admissionregistrationv1.ValidatingAdmissionPolicy, owner metav1.OwnerReference) Bound {
	metadata := metav1.ObjectMeta{
		Name: policy.Name, OwnerReferences: []metav1.OwnerReference{owner},
		// Without the label of managed objects, because the operator may neither repair nor prune them.
		Labels: names.OperatorLabels(),
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: *metadata.DeepCopy(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	if policy.Spec.ParamKind != nil {
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{
			Name:                    operatorv1alpha1.ListenerOperatorName,
			ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
		}
	}
	policy.ObjectMeta = metadata
	// The defaults of the API server, because existing policies are compared with these.
	constraints := policy.Spec.MatchConstraints
	constraints.MatchPolicy = ptr.To(admissionregistrationv1.Equivalent)
	constraints.NamespaceSelector, constraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{constraints.ResourceRules,
		constraints.ExcludeResourceRules} {
		for i := range rules {
			rules[i].Scope = ptr.To(admissionregistrationv1.AllScopes)
		}
	}
	return Bound{Policy: policy, Binding: binding}
}
