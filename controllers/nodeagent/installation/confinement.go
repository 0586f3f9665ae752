package installation

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

//go:embed confinement/*.yaml
var confinement embed.FS

// Confinement is one of the admission policies that confine the operator itself to what it writes, and its binding.
// RBAC cannot restrict which objects of a kind, or which of their fields, may be written.
type Confinement struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// Confinements returns the policies, in the order of their names, each with this owner.
//
// The operator may create them, but neither change nor delete them, so that a stolen token of the operator remains
// confined. So a later version that needs another policy gives it another name, and deletes the former one: permission
// for that comes with the manifests of the later version.
func Confinements(owner metav1.OwnerReference) ([]Confinement, error) {
	policies, err := embedded()
	if err != nil {
		return nil, err
	}
	all := make([]Confinement, 0, len(policies))
	for _, policy := range policies {
		all = append(all, confined(policy.DeepCopy(), owner))
	}
	return all, nil
}

// embedded returns the policies of the files.
var embedded = sync.OnceValues(func() (policies []*admissionregistrationv1.ValidatingAdmissionPolicy, err error) {
	files, err := fs.Glob(confinement, "confinement/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the policies: %w", err)
	}
	for _, file := range files {
		raw, err := confinement.ReadFile(file)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := errors.Join(err, yaml.UnmarshalStrict(raw, policy)); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", file, err)
		}
		policies = append(policies, policy)
	}
	return policies, nil
})

// IsConfinement reports whether a policy, or a binding, of this name confines an operator of whatever version.
func IsConfinement(name string) bool {
	return strings.HasPrefix(name, names.Operator+".")
}

// confined completes a policy, and binds it. A policy with a parameter applies while there is a configuration.
func confined(policy *admissionregistrationv1.ValidatingAdmissionPolicy, owner metav1.OwnerReference) Confinement {
	metadata := metav1.ObjectMeta{
		Name: policy.Name, OwnerReferences: []metav1.OwnerReference{owner},
		// Without the label of managed objects, because the operator may neither repair nor prune them.
		Labels: map[string]string{labelName: names.Operator, labelComponent: componentOperator},
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
	return Confinement{Policy: policy, Binding: binding}
}
