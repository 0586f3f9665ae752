package installation

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// nodeAgentPolicy lets each node agent only announce mounts on its own node, whose name the API server reads from the
// token: so a token that is stolen from one node cannot be used against another. It covers every write to the resources
// of the API group, also those that the agents' ClusterRole does not allow.
func nodeAgentPolicy(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicy(names.NodeAgent).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				admissionregistrationv1ac.NamedRuleWithOperations().
					WithAPIGroups(listenersv1alpha1.GroupVersion.Group).
					WithAPIVersions("*").
					WithResources("*/*").
					WithOperations(admissionregistrationv1.OperationAll),
			)).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().
				WithName("node-agent").
				WithExpression(fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", s.Namespace, names.NodeAgent))).
			WithVariables(
				admissionregistrationv1ac.Variable().WithName("nodeOfToken").
					WithExpression("request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')"),
				admissionregistrationv1ac.Variable().WithName("owners").
					WithExpression("object.metadata.?ownerReferences.orValue([])"),
			).
			WithValidations(
				admissionregistrationv1ac.Validation().
					WithExpression("request.operation == 'CREATE' && request.resource.resource == 'podlisteners' && request.?subResource.orValue('') == ''").
					WithMessage("a node agent may only create PodListeners"),
				admissionregistrationv1ac.Validation().
					WithExpression("variables.nodeOfToken != '' && object.spec.?nodeName.orValue('') == variables.nodeOfToken").
					WithMessage("a node agent may only create PodListeners of the node that its token is bound to"),
				admissionregistrationv1ac.Validation().
					WithExpression("size(object.spec.listeners) == 0").
					WithMessage("a node agent must leave spec.listeners empty"),
				admissionregistrationv1ac.Validation().
					WithExpression(fmt.Sprintf("size(variables.owners) == 1 && variables.owners[0].apiVersion == 'v1' && variables.owners[0].kind == 'Pod' && "+
						"object.metadata.?name.orValue('') == '%s' + variables.owners[0].uid", listenersv1alpha1.PodListenersName(""))).
					WithMessage("PodListeners are named pod-<uid> and have one owner, the Pod of that uid"),
				admissionregistrationv1ac.Validation().
					WithExpression("size(object.metadata.?finalizers.orValue([])) == 0").
					WithMessage("a node agent must not set finalizers"),
			),
	), nil
}

// nodeAgentPolicyBinding enforces the policy. Without a binding, a policy restricts nothing.
func nodeAgentPolicyBinding(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(names.NodeAgent).WithSpec(
		admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(names.NodeAgent).
			WithValidationActions(admissionregistrationv1.Deny),
	), nil
}
