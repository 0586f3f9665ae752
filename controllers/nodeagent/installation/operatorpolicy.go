package installation

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// OperatorPolicy returns the policy that confines the operator itself, and its binding. RBAC cannot restrict which
// fields of a Pod may be patched, and permission to patch its image is permission to run anything in any namespace.
//
// The operator may create the policy, but neither change nor delete it, so that a stolen token of the operator remains
// confined; it is garbage-collected with ListenerOperator/cluster, which the operator cannot delete either. So a later
// version that needs another policy has to give it another name.
func OperatorPolicy() []Component {
	return []Component{
		{
			Kind: "ValidatingAdmissionPolicy", Name: names.Operator, build: operatorPolicy,
			Empty: func() Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} },
		},
		{
			Kind: "ValidatingAdmissionPolicyBinding", Name: names.Operator, build: operatorPolicyBinding,
			Empty: func() Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{} },
		},
	}
}

// operatorPolicy lets the operator label Pods with the Listeners that they mount, and change nothing else of them. It
// applies to every namespace in which the operator may be installed, because it cannot be changed later.
func operatorPolicy(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicy(names.Operator).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				admissionregistrationv1ac.NamedRuleWithOperations().
					WithAPIGroups("").
					WithAPIVersions("*").
					WithResources("pods", "pods/*").
					WithOperations(admissionregistrationv1.OperationAll),
			)).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().
				WithName("operator").
				WithExpression(fmt.Sprintf("request.userInfo.username.matches('^system:serviceaccount:[^:]+:%s$')", names.Operator))).
			WithVariables(
				admissionregistrationv1ac.Variable().WithName("before").WithExpression("oldObject.metadata.?labels.orValue({})"),
				admissionregistrationv1ac.Variable().WithName("after").WithExpression("object.metadata.?labels.orValue({})"),
			).
			WithValidations(
				admissionregistrationv1ac.Validation().
					WithExpression("request.operation == 'UPDATE' && request.?subResource.orValue('') == ''").
					WithMessage("the listener operator may only label Pods"),
				admissionregistrationv1ac.Validation().
					WithExpression("object.spec == oldObject.spec && "+
						"object.metadata.?annotations.orValue({}) == oldObject.metadata.?annotations.orValue({}) && "+
						"object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) && "+
						"object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([])").
					WithMessage("the listener operator may change nothing of a Pod but its labels"),
				admissionregistrationv1ac.Validation().
					WithExpression(fmt.Sprintf("variables.after.all(k, k.startsWith('%[1]s') || (k in variables.before && variables.before[k] == variables.after[k])) && "+
						"variables.before.all(k, k.startsWith('%[1]s') || k in variables.after)", names.PodMountLabelPrefix)).
					WithMessage("the listener operator may change no labels of a Pod but those that begin with "+names.PodMountLabelPrefix),
			),
	), nil
}

// operatorPolicyBinding enforces the policy.
func operatorPolicyBinding(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(names.Operator).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(names.Operator).
			WithValidationActions(admissionregistrationv1.Deny),
	), nil
}
