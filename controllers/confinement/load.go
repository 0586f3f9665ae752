package confinement

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

//go:embed policies/*.yaml
var files embed.FS

// Bound is a policy and its binding.
type Bound struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Policies returns the policies, in the order of their names, each with this owner.
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

var embedded = sync.OnceValues(func() (policies []*admissionregistrationv1.ValidatingAdmissionPolicy, err error) {
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
		policies = append(policies, policy)
	}
	return policies, nil
})

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
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	if policy.Spec.ParamKind != nil {
		binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{
			Name: operatorv1alpha1.ListenerOperatorName, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
		}
	}
	policy.ObjectMeta = metadata
	// The defaults of the API server, because existing policies are compared with these.
	constraints := policy.Spec.MatchConstraints
	constraints.MatchPolicy = ptr.To(admissionregistrationv1.Equivalent)
	constraints.NamespaceSelector, constraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{constraints.ResourceRules, constraints.ExcludeResourceRules} {
		for i := range rules {
			rules[i].Scope = ptr.To(admissionregistrationv1.AllScopes)
		}
	}
	return Bound{Policy: policy, Binding: binding}
}
