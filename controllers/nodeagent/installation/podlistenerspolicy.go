package installation

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// systemControllers are the users that delete objects together with their owners and namespaces. The controller manager
// uses the last one if its controllers have no ServiceAccounts of their own.
var systemControllers = []string{
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:namespace-controller",
	"system:kube-controller-manager",
}

// podListenersPolicy lets only the operator write PodListeners, because node agents write their content to volumes, and
// the status of Listeners, because the operator keeps classes and port numbers for Listeners by it. RBAC does not
// suffice: the Operator Lifecycle Manager gives the editors of a namespace permission to write the resources of all
// CRDs that an operator owns, and Roles may have wildcards. Administrators of the operator may delete PodListeners,
// which are then recreated, and write the status of Listeners, as restores from backups do. Everyone with permission
// may write an object as it is, as storage migrations do.
func podListenersPolicy(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	writers := append([]string{fmt.Sprintf("system:serviceaccount:%s:%s", s.Namespace, names.Operator)}, systemControllers...)
	var unchanged []string
	for _, field := range []string{"labels", "annotations"} {
		unchanged = append(unchanged, fmt.Sprintf("object.metadata.?%[1]s.orValue({}) == oldObject.metadata.?%[1]s.orValue({})", field))
	}
	for _, field := range []string{"finalizers", "ownerReferences"} {
		unchanged = append(unchanged, fmt.Sprintf("object.metadata.?%[1]s.orValue([]) == oldObject.metadata.?%[1]s.orValue([])", field))
	}
	isAdministrator := fmt.Sprintf("authorizer.group('%s').resource('listeneroperators').name('%s').check('delete').allowed()",
		operatorv1alpha1.GroupVersion.Group, operatorv1alpha1.ListenerOperatorName)
	return admissionregistrationv1ac.ValidatingAdmissionPolicy(names.PodListenersPolicy).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				admissionregistrationv1ac.NamedRuleWithOperations().
					WithAPIGroups(listenersv1alpha1.GroupVersion.Group).
					WithAPIVersions("*").
					WithResources("podlisteners", "podlisteners/*", "listeners/status").
					WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
			)).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().
				WithName("not-the-operator").
				WithExpression(fmt.Sprintf("!(request.userInfo.username in ['%s'])", strings.Join(writers, "', '")))).
			WithValidations(
				admissionregistrationv1ac.Validation().
					WithExpression("request.operation != 'CREATE'").
					WithMessage("only the listener operator may create PodListeners"),
				admissionregistrationv1ac.Validation().
					WithExpression("request.operation != 'UPDATE' || object.spec == oldObject.spec && "+strings.Join(unchanged, " && ")).
					WithMessage("only the listener operator may change PodListeners"),
				admissionregistrationv1ac.Validation().
					WithExpression("request.operation != 'DELETE' || "+isAdministrator).
					WithMessage("only the listener operator, and those who may delete its configuration, may delete PodListeners"),
				admissionregistrationv1ac.Validation().
					WithExpression("request.resource.resource != 'listeners' || object.?status == oldObject.?status || "+isAdministrator).
					WithMessage("only the listener operator, and those who may delete its configuration, may change the status of a Listener"),
			),
	), nil
}

// podListenersPolicyBinding enforces the policy. Without a binding, a policy restricts nothing.
func podListenersPolicyBinding(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(names.PodListenersPolicy).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(names.PodListenersPolicy).
			WithValidationActions(admissionregistrationv1.Deny),
	), nil
}
