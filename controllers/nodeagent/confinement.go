package nodeagent

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// confinement is the policy that confines the operator itself. RBAC cannot say which part of a Pod may be patched, and
// whoever may patch its image runs what he likes in any namespace.
//
// The operator has the right to create the policy, but none to change or delete it, so that a stolen token of the
// operator remains confined; it goes with ListenerOperator/cluster, which the operator cannot delete either. So a later
// version that needs another policy has to give it another name.
func confinement() []component {
	return []component{
		{
			kind: "ValidatingAdmissionPolicy", name: names.Operator, desired: podPolicy,
			empty: func() client.Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} },
		},
		{
			kind: "ValidatingAdmissionPolicyBinding", name: names.Operator, desired: podPolicyBinding,
			empty: func() client.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{} },
		},
	}
}

// confine makes what is missing of the confinement. What exists is left alone, whoever made it.
func (r *Reconciler) confine(ctx context.Context, o *observed) error {
	for _, c := range confinement() {
		existing, err := r.get(ctx, c)
		if err != nil {
			return err
		}
		if existing != nil {
			continue
		}
		desired, err := c.object(o.config, o.settings)
		if err != nil {
			return err
		}
		// Not managed: it is not for the operator to repair or prune.
		desired.SetLabels(map[string]string{labelName: names.Operator, labelComponent: componentOperator})
		err = r.Client.Create(ctx, desired, client.FieldOwner(names.FieldManagerOperator))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s %s: %w", c.kind, c.name, err)
		}
		log.FromContext(ctx).Info("Created", c.kind, c.name)
	}
	return nil
}

// podPolicy lets the operator label Pods with the Listeners that they mount, and change nothing else of them. It holds
// in every namespace that the operator may ever be installed in, because it cannot be changed later.
func podPolicy(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
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

// podPolicyBinding puts the policy in force.
func podPolicyBinding(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(names.Operator).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(names.Operator).
			WithValidationActions(admissionregistrationv1.Deny),
	), nil
}
