package check

import (
	"cmp"
	"strings"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Remedies that are no matter of a reason.
const (
	RemedyOperator = "The operator does this within a moment. If it does not, an administrator finds out why: kubectl listener doctor"
	RemedyTemplate = "The claim template of a StatefulSet cannot be changed: delete the StatefulSet with --cascade=orphan, delete its claims and " +
		"Pods, and create it with the corrected template: docs/volumes.md"
	RemedyNodeLost = "If the machine is really gone, release the volume, so that its Pod can start elsewhere: "
)

// Remedy returns what to do about a reason of a condition or event.
func Remedy(reason string) string {
	return cmp.Or(remedies()[reason], "Follow the message; docs/reasons.md has more about the reason.")
}

// RemedyFor returns what to do about a reason beyond what its message says.
func RemedyFor(reason, message string) string {
	const administrator = "ask an administrator"
	advised := strings.Contains(message, administrator)
	switch {
	case advised && reason == listenersv1alpha1.ReasonNamespaceNotAllowed:
		return "Do what the message says. See the classes: kubectl get listenerclasses"
	case advised && reason == listenersv1alpha1.ReasonQuotaExceeded:
		return "Do what the message says. See the quotas: docs/quotas.md"
	default:
		return Remedy(reason)
	}
}

// remedies are what to do about the reasons of conditions and events that describe something wrong.
func remedies() map[string]string {
	return map[string]string{
		listenersv1alpha1.ReasonClassNotSet:                  "Set spec.className of the Listener to one of: kubectl get listenerclasses",
		listenersv1alpha1.ReasonClassNotFound:                "Name one of the classes that exist (kubectl get listenerclasses), or ask an administrator to create this one.",
		listenersv1alpha1.ReasonNoListenerVolumes:            "Add a listener volume to the Pod, or remove the one for the certificate, and create the Pod again: docs/tls.md",
		listenersv1alpha1.ReasonCertificateWaiting:           "Do what the message says. The kubelet gets the certificate as soon as the Pod has its addresses: docs/tls.md",
		listenersv1alpha1.ReasonForeignConfigMap:             "Rename or delete the ConfigMap, so that the authorities of the namespace can be published there.",
		operatorv1alpha1.ReasonCertificateAuthorityDamaged:   "Restore the Secret from a backup, or delete it, upon which clients have to trust new authorities: docs/tls.md",
		listenersv1alpha1.ReasonNoPorts:                      "Do what the message says: the ports are those of the Pod's containers or of spec.ports of the Listener, and a class may expose only some, by their names.",
		listenersv1alpha1.ReasonInvalidPorts:                 "Correct the ports as the message says.",
		listenersv1alpha1.ReasonDuplicatePortName:            "Give each port of the Pod's containers a name of its own.",
		listenersv1alpha1.ReasonInvalidName:                  "Rename the claim or the Listener, as the message says.",
		listenersv1alpha1.ReasonInvalidOverrides:             "Correct spec.objectOverrides of the Listener, or ask an administrator to correct spec.serviceOverrides of the class.",
		listenersv1alpha1.ReasonForeignService:               "Rename the Listener, or delete the Service of the same name.",
		listenersv1alpha1.ReasonForeignRoute:                 "Rename the Listener or its port, or delete the Route of the same name.",
		listenersv1alpha1.ReasonForeignIngress:               "Rename the Listener or its port, or delete the Ingress of the same name.",
		listenersv1alpha1.ReasonForeignListener:              "Rename the Listener or the claim, or use the Listener by the annotation that names it.",
		listenersv1alpha1.ReasonServiceRejected:              "Do what the message says about the Service that the API server rejects.",
		listenersv1alpha1.ReasonRequestRejected:              "Do what the message says. The log of the operator has all that is rejected: kubectl listener doctor",
		listenersv1alpha1.ReasonQuotaExceeded:                "Delete what the ResourceQuota counts, or ask an administrator to raise it: docs/quotas.md",
		listenersv1alpha1.ReasonPodsOutdated:                 "Restart the Pods that the message names, unless their programs follow the files of their volumes: docs/address-changes.md",
		listenersv1alpha1.ReasonPreviousExposure:             "Find out why the new exposure is not complete, as the message says, or name the previous class again.",
		listenersv1alpha1.ReasonRouteRejected:                "Do what the message says, or correct what the API server rejects, in the Listener or in its class: docs/openshift-routes.md",
		listenersv1alpha1.ReasonIngressRejected:              "Correct what the API server rejects, in the Listener or in its class.",
		listenersv1alpha1.ReasonNotServed:                    "Name another class: this cluster does not have the API that the class needs.",
		listenersv1alpha1.ReasonNoRoutablePorts:              "Name another class: it exposes none of these ports.",
		listenersv1alpha1.ReasonNoSinglePod:                  "Do what the message says: the class needs a claim of a single Pod, and of one with an index if its template has {podIndex}. Or name another class.",
		listenersv1alpha1.ReasonInvalidHost:                  "Rename the Listener if another one has its host, or ask an administrator to correct the template of hosts in the class.",
		listenersv1alpha1.ReasonInvalidAdvertisement:         "Ask an administrator to correct spec.advertise of the class, as the message says: docs/advertise.md",
		listenersv1alpha1.ReasonAddressTaken:                 "Name another class, or ask an administrator to give one of the two Listeners another address or port: docs/advertise.md",
		listenersv1alpha1.ReasonNamespaceNotAllowed:          "Name another class, or ask an administrator to add the namespace to spec.allowedNamespaces of the class.",
		listenersv1alpha1.ReasonInvalidAllowedClients:        "Correct spec.allowedClients of the Listener, or name another class.",
		listenersv1alpha1.ReasonAllowedClientsNotEnforceable: "Do what the message says; docs/network-policies.md tells what can be enforced where.",
		listenersv1alpha1.ReasonForeignNetworkPolicy:         "Rename the Listener, or delete the NetworkPolicy of the same name.",
		listenersv1alpha1.ReasonNetworkPolicyRejected:        "Do what the message says about the NetworkPolicy that the API server rejects.",
		listenersv1alpha1.ReasonSharedPortsExhausted:         "Ask an administrator to extend spec.loadBalancer.sharing.portRange of the class, or delete Listeners.",
		listenersv1alpha1.ReasonPortLimitReached:             "Delete Listeners of the namespace, or ask an administrator to raise maxPortsPerNamespace of the class.",
		listenersv1alpha1.ReasonNodePortsExhausted:           "Ask an administrator to extend spec.nodePorts.range of the class, or delete Listeners.",
		listenersv1alpha1.ReasonNotAccepted:                  "See the condition Accepted.",
		listenersv1alpha1.ReasonWaitingForPods:               "Start a Pod that mounts the Listener.",
		listenersv1alpha1.ReasonNoHostPorts:                  "Declare hostPort for the ports of the Pod, or name another class.",
		listenersv1alpha1.ReasonNodesMissing:                 "Ask an administrator for the nodes that the message names: they do not exist, for which docs/lost-nodes.md is, or have no address that spec.nodeAddresses of the class admits.",
		listenersv1alpha1.ReasonInvalidNodeAddress:           "Ask an administrator to correct the annotation listener-operator.dev/advertised-address of the node.",
		listenersv1alpha1.ReasonServiceTerminating:           "Wait. If it lasts, see which finalizer of the Service blocks its deletion.",
		listenersv1alpha1.ReasonObjectTerminating:            "Wait. If it lasts, see which finalizer of the object blocks its deletion.",
		listenersv1alpha1.ReasonListenerTerminating:          "Wait. If it lasts, do what the message says, or see which finalizer of the Listener or its Service blocks the deletion.",
		listenersv1alpha1.ReasonWaitingForRouter:             "Ask an administrator of the routers: the labels of the Route may match none.",
		listenersv1alpha1.ReasonRouteNotAdmitted:             "Correct what the router rejects; docs/reasons.md#routenotadmitted has what routers say.",
		listenersv1alpha1.ReasonWaitingForIngress:            "Ask an administrator for the Ingress controller; docs/ingress.md tells what it has to do.",
		listenersv1alpha1.ReasonNoMatchingPods:               "Correct spec.extraPodSelectorLabels of the Listener, or the labels of the Pods.",
		listenersv1alpha1.ReasonNodesNotReady:                "Ask an administrator for the node. If the machine is gone, follow docs/lost-nodes.md.",
		listenersv1alpha1.ReasonPortNotDeclared:              "Check spec.ports of the Listener.",
		listenersv1alpha1.ReasonNodeLost:                     "If the machine is really gone, release the volume: kubectl listener release CLAIM",
		listenersv1alpha1.ReasonVolumeReleased:               "Find out why the Pod does not start: kubectl describe pod",
		listenersv1alpha1.ReasonVolumeNotRestored:            "Restore the annotation of the claim, or create the claim again.",
		listenersv1alpha1.ReasonReleaseRefused:               "Remove what the message names; docs/lost-nodes.md has each case.",
		listenersv1alpha1.ReasonInvalidRelease:               "Set the annotation listener-operator.dev/release to a time, or remove it.",
		listenersv1alpha1.ReasonInvalidClaim:                 "Correct the annotations of the claim. " + RemedyTemplate,
		listenersv1alpha1.ReasonListenerNotFound:             "Create the Listener, or name another one.",
		listenersv1alpha1.ReasonWaitForFirstConsumer:         "Start a Pod that mounts the claim.",
		listenersv1alpha1.ReasonWaitingForAddress:            "See what the Listener waits for.",
		listenersv1alpha1.ReasonPinnedToNode:                 "Let the node take the Pod, or release the volume: kubectl listener release CLAIM --force",
		listenersv1alpha1.ReasonSelectorChanged:              "Restore the annotation, or delete the claim and create it again.",
		listenersv1alpha1.ReasonEvictionRefused:              "Find the PodDisruptionBudget that permits no eviction: kubectl get poddisruptionbudgets",
		listenersv1alpha1.ReasonEvictionDelayed:              "Find out who changes the address again and again: a load balancer, or the addresses of a Node.",
		listenersv1alpha1.ReasonNotEvicted:                   "Restart the Pod by the means of what has created it.",
		listenersv1alpha1.ReasonNotInCertificate:             "Do what the message says. The label " + names.LabelCertificate + " is that of the Listener, or of its claim.",
		listenersv1alpha1.ReasonForeignPortsRemoved:          "Name ports in spec.ports of the Listener, and not in its Service; the message says who did.",
		listenersv1alpha1.ReasonNodesWithoutPods:             "Clients need another address until these are left out after half an hour. Or let nodes forward to each other, without serviceExternalTrafficPolicy: Local in the class: docs/listeners.md#nodes-without-a-pod",
		listenersv1alpha1.ReasonWaitingForLoadBalancer: "Ask an administrator whether the cluster has a load balancer, and why it assigns no address: kubectl describe service. " +
			"Without one, set spec.className of the Listener to a class with serviceType NodePort, also if the Listener belongs to a claim.",
		listenersv1alpha1.ReasonForeignGatewayRoute:     "Rename the Listener or its port, or delete the route of the same name.",
		listenersv1alpha1.ReasonGatewayRouteRejected:    "Correct what the API server rejects, in the Listener or in its class.",
		listenersv1alpha1.ReasonNoGatewayListener:       "Ask an administrator of the Gateway for another listener; the message says who has the others.",
		listenersv1alpha1.ReasonListenerSetNotAllowed:   "Ask an administrator of the Gateway to allow ListenerSets of the namespace in spec.allowedListeners: docs/gateway-api.md",
		listenersv1alpha1.ReasonClusterIPsExhausted:     "Ask an administrator to add a range to spec.clusterIPs.cidrs of the class, or delete Listeners.",
		listenersv1alpha1.ReasonGatewayPortsExhausted:   "Ask an administrator to extend spec.gateway.portRange of the class, or delete Listeners.",
		listenersv1alpha1.ReasonForeignListenerSet:      "Rename the Listener, or delete the ListenerSet of the same name.",
		listenersv1alpha1.ReasonListenerSetRejected:     "Correct what the API server rejects, in the Listener or in its class.",
		listenersv1alpha1.ReasonWaitingForGateway:       "Ask an administrator of the Gateway; docs/gateway-api.md tells what it has to have.",
		listenersv1alpha1.ReasonGatewayRouteNotAccepted: "Ask an administrator of the Gateway for what the message names.",
		listenersv1alpha1.ReasonWaitingForNodePorts:     "Wait a moment. If it lasts, check the overrides of the Listener and its class.",
		listenersv1alpha1.ReasonWaitingForClusterIP:     "Wait a moment. If it lasts, check the overrides of the Listener and its class.",
	}
}
