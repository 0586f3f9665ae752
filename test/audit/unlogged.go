package audit

import (
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Unlogged returns the permissions that a ServiceAccount requires although they do not appear in the audit log of each
// run, each with the reason. TestUnloggedPermissionsAreRequired must have a case for each.
func Unlogged(account string) map[Permission]string {
	listeners := listenersv1alpha1.GroupVersion.Group
	return map[string]map[Permission]string{
		names.Operator: {
			{Resource: "services", Verb: "delete"}: "the same admission plugin requires it to make a Listener the owner of a Service that comes from a backup",
			{Group: listeners, Resource: "listeners", Verb: "delete"}: "the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift enables, " +
				"requires it to add a volume to the owners of a Listener",
			{Group: listeners, Resource: "listeners/finalizers", Verb: "update"}: "the same plugin requires it to create an object that blocks " +
				"the deletion of a Listener, as a Service does",
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "create"}: "OpenShift requires it to create a Route with a host",
			{Group: "route.openshift.io", Resource: "routes/custom-host", Verb: "update"}: "OpenShift requires it to change the host of a Route",
			{Group: "listener-operator.dev", Resource: "nodeagentimages", Name: "listener-operator:latest", Verb: "use"}: "an admission policy requires it to " +
				"write the DaemonSet with this image",
			{Group: "listener-operator.dev", Resource: "listeneroperators", Verb: "get"}: "the API server requires it to create a policy whose parameter is " +
				"the configuration",
			{Group: "certificates.k8s.io", Resource: "signers", Name: names.Signer, Verb: "sign"}: "the admission plugin CertificateSigning requires it to " +
				"decide a PodCertificateRequest",
			{Group: "certificates.k8s.io", Resource: "signers", Name: names.Signer, Verb: "attest"}: "the admission plugin ClusterTrustBundleAttest requires it to " +
				"write a ClusterTrustBundle of the signer",
			{Group: "events.k8s.io", Resource: "events", Verb: "patch"}: "an event that repeats while its object does not change is counted by a patch, " +
				"and whether one does in a run of the tests depends on time",
		},
		names.NodeAgent: {
			{Group: "security.openshift.io", Resource: "securitycontextconstraints", Name: names.NodeAgent, Verb: "use"}: "OpenShift's admission of Pods " +
				"requires it",
		},
	}[account]
}
