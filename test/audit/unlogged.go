package audit

import (
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Unseen are the rights of a ServiceAccount that it needs although no request shows it, each with the reason.
// TestARightThatIsNotSeenIsNeeded has to have a case for each.
func Unseen(account string) map[Right]string {
	listeners := listenersv1alpha1.GroupVersion.Group
	return map[string]map[Right]string{
		names.Operator: {
			{Group: listeners, Resource: "listeners", Verb: "delete"}: "the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift has, " +
				"asks for it of whoever adds a volume to the owners of a Listener",
			{Group: listeners, Resource: "listeners/finalizers", Verb: "update"}: "the same plugin asks for it of whoever makes an object that " +
				"holds up the deletion of a Listener, as a Service does",
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "create"}: "OpenShift asks for it of whoever makes a Route with a host",
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "update"}: "OpenShift asks for it of whoever changes the host of a Route",
		},
		names.NodeAgent: {
			{Group: "security.openshift.io", Resource: "securitycontextconstraints", Name: names.NodeAgent, Verb: "use"}: "OpenShift's admission of Pods asks " +
				"for it",
		},
	}[account]
}
