package audit

import listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"

// Unseen are rights of the operator that it needs although no request shows it, each with the reason. TestARightThatIsNotSeenIsNeeded has to have a case
// for each.
func Unseen() map[Right]string {
	group := listenersv1alpha1.GroupVersion.Group
	return map[Right]string{
		{Group: group, Resource: "listeners", Verb: "delete"}: "the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift has, " +
			"asks for it of whoever adds a volume to the owners of a Listener",
		{Group: group, Resource: "listeners/finalizers", Verb: "update"}: "the same plugin asks for it of whoever makes an object that " +
			"holds up the deletion of a Listener, as a Service does",
	}
}
