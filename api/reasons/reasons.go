package reasons

import (
	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Reasons of Kubernetes, and of the plugin itself, that findings of the plugin have.
const (
	FailedMount  = "FailedMount"
	FailedCreate = "FailedCreate"
	// FailedBinding is the reason of an event of a Pod whose ephemeral volume gets no claim.
	FailedBinding = "FailedBinding"
	ClaimLost     = "ClaimLost"
	NoNodeAgent   = "NoNodeAgent"
	// NodeLabelMissing is the reason of a Node that is not labelled as the registration of its agent has left it.
	NodeLabelMissing = "NodeLabelMissing"
	// NotInjected is the reason of a Pod that has no volume in spite of the annotation that asks for it.
	NotInjected = "NotInjected"
	// IgnoredKey is the reason of an object with a label or an annotation that has no effect.
	IgnoredKey = "IgnoredKey"
)

// Remedies that several reasons share.
const (
	doWhatItSays   = "Do what the message says."
	waitForObject  = "Wait. If it lasts, see which finalizer in the metadata of the object blocks its deletion."
	checkOverrides = "Wait a moment. If it lasts, check the overrides of the Listener and its class."
	// nameAnotherClass is how a Listener gets another class. That of a claim or an inline volume has the class of that.
	nameAnotherClass = "If the Listener belongs to a claim: kubectl annotate pvc {name} --namespace {namespace} " +
		"listeners.stackable.tech/listener-class=CLASS --overwrite. If it belongs to an inline volume: change " +
		"listeners.stackable.tech/listener-class of the volume in what creates the Pod. " +
		"Otherwise: kubectl patch lsn {name} --namespace {namespace} --type merge " +
		`--patch '{"spec": {"className": "CLASS"}}'`
	// Template is how the claim template of a StatefulSet is corrected.
	Template = "You cannot change the claim template of a StatefulSet: delete the StatefulSet with --cascade=orphan, " +
		"create it with the corrected template, and delete the claims that are Pending, and their Pods. The other " +
		"replicas keep their claims and addresses: docs/volumes.md#moving-to-another-class"
)

// The kinds of objects that have reasons.
const (
	claim       = "PersistentVolumeClaim"
	class       = "ListenerClass"
	dnsEndpoint = "DNSEndpoint"
	endpoints   = "Endpoints"
	gateway     = "Gateway"
	ingress     = "Ingress"
	listener    = "Listener"
	node        = "Node"
	pod         = "Pod"
	route       = "Route"
	service     = "Service"
	volume      = "PersistentVolume"
)

// gatewayRoutes are the kinds of routes of the Gateway API.
var gatewayRoutes = []string{
	string(listenersv1alpha1.GatewayRouteKindTLS), string(listenersv1alpha1.GatewayRouteKindTCP),
	string(listenersv1alpha1.GatewayRouteKindUDP), string(listenersv1alpha1.GatewayRouteKindHTTP),
}

// Sections returns the reasons, in the order of the page.
func Sections() []Section {
	return []Section{
		{Title: "The class and the Listener", Reasons: listeners},
		{Title: "Services and their ports", Reasons: services},
		{Title: "Routes, Ingresses, Gateways and advertised addresses", Reasons: exposures},
		{Title: "Pods and nodes behind an address", Reasons: placements},
		{Title: "Claims and Pods that wait", Reasons: claims},
		{Title: "Volumes of lost nodes", Intro: "[Lost nodes](lost-nodes.md) has the procedure.", Reasons: lostNodes},
		{Title: "Restarts of Pods", Reasons: restarts},
		{Title: "Certificates", Reasons: certificates,
			Intro: "[TLS](tls.md) has the procedure. `NoListenerVolumes` and `PodDeleted` are reasons of a request " +
				"for a certificate, which the\nkubelet repeats in an event `FailedMount` of the Pod. " +
				"`InvalidUserConfig` and `UnsupportedKeyType` are Kubernetes' own."},
		{Title: "The operator", Reasons: operator,
			Intro: "These are the reasons of the conditions `Available`, `Progressing`, `Degraded` and `Upgradeable` " +
				"of\n`ListenerOperator/cluster`, and of its events. The message of `Degraded` contains the remedy."},
		{Title: "Kubernetes", Reasons: kubernetes,
			Intro: "Reasons of Kubernetes that concern listener volumes, and those that only the " +
				"[plugin](kubectl-plugin.md) has."},
	}
}

var listeners = []Reason{
	{Name: listenersv1alpha1.ReasonAccepted, Severity: Expected,
		Meaning: "The class, the ports and the overrides are valid, and the objects that expose the Listener exist."},
	{
		Name: listenersv1alpha1.ReasonAddressesAssigned, Severity: Expected,
		Meaning: "The Listener is exposed and has addresses. The message names nodes that are left out.",
	},
	{
		Name: listenersv1alpha1.ReasonClassOfClaim, Severity: Expected,
		Meaning: "The claim or the inline volume of the Listener names another class than the Listener did, which " +
			"has followed. The message says how to change the class: docs/volumes.md#moving-to-another-class",
	},
	{
		Name: listenersv1alpha1.ReasonNotAccepted, Severity: Waiting, Actor: User,
		Meaning: "The Listener has no address, because its condition `Accepted` is false.",
		Remedy:  "See the condition Accepted.",
	},
	{
		Name: listenersv1alpha1.ReasonClassNotSet, On: []string{listener, claim}, Severity: Error, Actor: User,
		Meaning: "The Listener names no class. An existing exposure stays as it is, also for Pods that start again.",
		Remedy:  "Choose one of the classes: kubectl get listenerclasses. " + nameAnotherClass,
	},
	{
		Name: listenersv1alpha1.ReasonClassNotFound, On: []string{listener, claim}, Severity: Error, Actor: Either,
		Meaning: "The class that the Listener or the claim names does not exist. An existing exposure stays as it " +
			"is, also for Pods that start again.",
		Remedy: "Name one of the classes that exist (kubectl get listenerclasses), or ask an administrator to create " +
			"this one.",
	},
	{
		Name: listenersv1alpha1.ReasonNamespaceNotAllowed, On: []string{listener, claim}, Severity: Error,
		Actor:     Either,
		InMessage: true,
		Meaning: "The class does not allow the namespace. Existing Listeners keep their class, with a warning; " +
			"others get no Service, and an exposure by another class stays as it is.",
		Remedy: "Name another class (kubectl get listenerclasses), or ask an administrator to add the namespace to " +
			"spec.allowedNamespaces of the class.",
	},
	{
		Name: listenersv1alpha1.ReasonNoPorts, On: []string{listener, claim}, Severity: Error, Actor: User,
		Meaning: "There is no port to expose, or none that the class lists.",
		Remedy: "Declare ports in the Pod's containers or in spec.ports of the Listener. A class may expose only " +
			"some, by their names.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidPorts, On: []string{listener, claim, pod}, Severity: Error, Actor: User,
		Meaning: "A port is not valid for a Service, or there are more ports than the class allows.",
		Remedy:  "Correct the ports as the message says.",
	},
	{
		Name: listenersv1alpha1.ReasonDuplicatePortName, On: []string{listener, pod}, Severity: Error, Actor: User,
		Meaning: "Several containers have a port of the same name. One of them is exposed.",
		Remedy:  "Give each port of the Pod's containers a name of its own.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidName, On: []string{claim}, Severity: Error, Actor: User,
		Meaning: "No Listener can have the name that the claim asks for.",
		Remedy:  "Correct the annotation listeners.stackable.tech/listener-name of the claim, as the message says.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidOverrides, Severity: Error, Actor: Either,
		Meaning: "Overrides are malformed, not allowed by the class, or ignored: overrides of a Listener without " +
			"`metadata.namespace`, and fields in overrides of a class that a Service does not have.",
		Remedy: "Correct spec.objectOverrides of the Listener, or ask an administrator to correct " +
			"spec.serviceOverrides of the class.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidAllowedClients, Severity: Error, Actor: User,
		Meaning: "`allowedClients` of the Listener has an invalid range, or one outside the ranges of the class.",
		Remedy:  "Correct spec.allowedClients of the Listener, or name another class.",
	},
	{
		Name: listenersv1alpha1.ReasonAllowedClientsNotEnforceable, Severity: Error, Actor: Either,
		Meaning: "Nothing would keep other clients from the Listener; the message says why. It is exposed only if it " +
			"was before.",
		Remedy: doWhatItSays + " What can be enforced where: docs/network-policies.md#allowedclients",
	},
	{
		Name: listenersv1alpha1.ReasonForeignNetworkPolicy, Severity: Error, Actor: User,
		Meaning: "A NetworkPolicy with the name that the Listener needs belongs to another owner. The operator does " +
			"not change it.",
		Remedy: "Rename the Listener, or delete the NetworkPolicy of the same name.",
	},
	{
		Name: listenersv1alpha1.ReasonNetworkPolicyRejected, Severity: Error, Actor: User,
		Meaning: "The API server rejects the NetworkPolicy of the Listener, for example because of a quota.",
		Remedy:  "Do what the message says about the NetworkPolicy that the API server rejects.",
	},
	{
		Name: listenersv1alpha1.ReasonSettingsIgnored, On: []string{class}, Severity: Warning, Actor: Administrator,
		Meaning: "Settings of the class have no effect; the message names them.",
		Remedy:  "Remove the settings from the class.",
	},
}

var services = []Reason{
	{
		Name: listenersv1alpha1.ReasonNodePortsExhausted, Severity: Error, Actor: Administrator,
		Causes: []string{class},
		Meaning: "All node ports in the range of the class are in use or reserved. The Listener continues by itself " +
			"when one is free.",
		Remedy: "Ask an administrator to extend spec.nodePorts.range of the class, or delete Listeners.",
	},
	{
		Name: listenersv1alpha1.ReasonPortLimitReached, Severity: Error, Actor: Either,
		InMessage: true,
		Meaning: "The Listeners of the namespace have as many port numbers as the class allows. The Listener " +
			"continues by itself when the namespace has fewer.",
		Remedy: "Delete Listeners of the namespace, or ask an administrator to raise maxPortsPerNamespace of the " +
			"class.",
	},
	{
		Name: listenersv1alpha1.ReasonClusterIPsExhausted, Severity: Error, Actor: Administrator,
		Meaning: "Other Services and Listeners have all addresses in the ranges of the class, or the class has no " +
			"range of an IP family that the Service needs. The Listener continues by itself when an address is free.",
		Remedy: "Ask an administrator to add a range to spec.clusterIPs.cidrs of the class, or delete Listeners: " +
			"docs/routed-cluster-ips.md",
	},
	{
		Name: listenersv1alpha1.ReasonSharedPortsExhausted, Severity: Error, Actor: Administrator,
		Causes: []string{class},
		Meaning: "Other Listeners have all ports of the shared address that the class lists. The Listener continues " +
			"by itself when one is free.",
		Remedy: "Ask an administrator to extend spec.loadBalancer.sharing.portRange of the class, or delete Listeners.",
	},
	{
		Name: listenersv1alpha1.ReasonForeignService, On: []string{listener, service}, Severity: Error, Actor: User,
		Meaning: "A Service of the same name belongs to another owner. The operator does not change it.",
		Remedy: "Rename the Listener, or delete the Service of the same name. If it comes from a backup, the " +
			"operator creates it again with the numbers that the Listener had, if they are free: docs/backup.md",
	},
	{
		Name: listenersv1alpha1.ReasonServiceRejected, Severity: Error, Actor: User,
		Meaning: "The API server rejects the Service, or the Service would have to become headless or stop being so: " +
			"docs/pod-addresses.md#moving-from-and-to-other-classes",
		Remedy: "Do what the message says about the Service that the API server rejects.",
	},
	{
		Name: listenersv1alpha1.ReasonQuotaExceeded, On: []string{listener, claim, pod}, Severity: Error, Actor: Either,
		InMessage: true,
		Meaning: "A ResourceQuota does not permit the Service, the Listener of a claim that names a class, or the " +
			"object with the addresses of a Pod. The message contains the quota. The operator retries within half a " +
			"minute.",
		Remedy: "Delete what the ResourceQuota counts, or ask an administrator to raise it: docs/quotas.md",
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForNodePorts, Severity: Waiting, Actor: User, Causes: []string{service},
		Meaning: "Kubernetes has not allocated node ports yet, or overrides prevent it.", Remedy: checkOverrides,
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForClusterIP, Severity: Waiting, Actor: User, Causes: []string{service},
		Meaning: "Kubernetes has not allocated a cluster IP yet, or overrides prevent it.", Remedy: checkOverrides,
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForLoadBalancer, Severity: Waiting, Actor: Administrator,
		Causes:  []string{service},
		Meaning: "No load balancer has assigned an address. The controller for load balancers does that.",
		Remedy: "Ask an administrator why no controller assigns an address: kubectl describe service {name} " +
			"--namespace {namespace}. " + nameAnotherClass,
	},
	{
		Name: listenersv1alpha1.ReasonLoadBalancerPortsError, Severity: Error, Actor: Either, Causes: []string{service},
		Meaning: "The controller of the load balancer reports an error for ports of the Service; the message " +
			"contains the controller's. `LoadBalancerMixedProtocolNotSupported`: the load balancer serves either TCP " +
			"or UDP, and not both.",
		Remedy: doWhatItSays + " If the load balancer cannot serve TCP and UDP together, create a Listener for each " +
			"protocol, or name a class whose spec.ports lists ports of one.",
	},
	{
		Name: listenersv1alpha1.ReasonServiceTerminating, Severity: Waiting, Actor: User, Causes: []string{service},
		Meaning: "An earlier Service is still being deleted. A new one is created afterwards.", Remedy: waitForObject,
	},
	{
		Name: listenersv1alpha1.ReasonObjectTerminating, Severity: Waiting, Actor: User,
		Meaning: "An earlier object, such as an Ingress, is still being deleted. A new one is created afterwards.",
		Remedy:  waitForObject,
	},
	{
		Name: listenersv1alpha1.ReasonNotInCertificate, On: []string{listener, "Certificate"}, Severity: Warning,
		Actor: Either,
		Meaning: "The Listener has the label for a certificate of cert-manager, and is in none; the message says " +
			"why: docs/tls.md#certificates-of-cert-manager",
		Remedy: doWhatItSays + " The label listener-operator.dev/certificate is on the Listener, or on its claim.",
	},
	{
		Name: listenersv1alpha1.ReasonForeignPortsRemoved, Severity: Warning, Actor: User,
		Meaning: "The operator has removed the ports in the message, which another client had added to the Service.",
		Remedy:  "Add the ports to spec.ports of the Listener, and not to its Service.",
	},
	{
		Name: listenersv1alpha1.ReasonNodePortsChanged, Severity: Warning, Actor: User,
		Meaning: "The Service has other node ports than before; the message contains both, and why the API server " +
			"rejected the previous ones.",
		Remedy: "Update clients and firewalls that know the previous port.",
	},
	{
		Name: listenersv1alpha1.ReasonNumbersChanged, Severity: Warning, Actor: User,
		Meaning: "A Listener from a backup has another port at a shared address or a Gateway, or another cluster IP, " +
			"than before. Another object has the previous one, or the class does not allow it: docs/backup.md",
		Remedy: "Update clients and firewalls that know the previous one.",
	},
	{
		Name: listenersv1alpha1.ReasonRestored, Severity: Expected,
		Meaning: "The Listener comes from a backup. Other events say which of its numbers it cannot keep: " +
			"docs/backup.md#what-does-not-come-back",
	},
}

var exposures = []Reason{
	{
		Name: listenersv1alpha1.ReasonUnusableAddress, Severity: Error, Actor: Administrator,
		Causes: []string{service, gateway},
		Meaning: "The load balancer or the Gateway has only addresses that lead nobody outside the cluster to it: " +
			"loopback or link-local addresses, or names in the DNS of the cluster. The message lists them.",
		Remedy: "Ask an administrator to expose the load balancer or the Gateway outside the cluster. If clients " +
			"reach it through something in front of the cluster, use a class with spec.advertise; if all clients are " +
			"inside, use one with serviceType ClusterIP.",
	},
	{
		Name: listenersv1alpha1.ReasonNotServed, On: []string{listener, class}, Severity: Error, Actor: Either,
		Meaning: "The cluster does not serve the API that the class needs, such as Routes, or this kind of routes of " +
			"the Gateway API, which may be in its experimental channel. The Listener continues when the API is added.",
		Remedy: "Name another class, or ask an administrator to install the API that the class needs: " +
			"docs/choosing-a-class.md",
	},
	{
		Name: listenersv1alpha1.ReasonNoRoutablePorts, Severity: Error, Actor: User,
		Meaning: "None of the Listener's ports gets a route or an Ingress: they have another protocol, or the class " +
			"does not list them.",
		Remedy: "Name another class: this one exposes none of these ports.",
	},
	{
		Name: listenersv1alpha1.ReasonNoSinglePod, Severity: Error, Actor: Either,
		Meaning: "The class derives hosts or advertised addresses from the Pod's name, and the Listener has no Pod, " +
			"or several.",
		Remedy: "Give each Pod a claim of its own, and name it with an index if the template of the class contains " +
			"{podIndex}. Or name another class, or ask an administrator to use {listener} in the template.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidHost, Severity: Error, Actor: Either,
		Meaning: "The class's template results in an invalid host name, or in the same one for two ports or Listeners.",
		Remedy: "Rename the Listener if another one has its host, or ask an administrator to correct the template " +
			"of hosts in the class.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidAdvertisement, Severity: Error, Actor: Administrator,
		Meaning: "`advertise` of the class has no valid result: a number that is no port, a name that is no host, or " +
			"two ports of the Listener at one address with one number. The message contains the result. The Service " +
			"and the addresses stay as they are.",
		Remedy: "Ask an administrator to correct spec.advertise of the class, as the message says: docs/advertise.md",
	},
	{
		Name: listenersv1alpha1.ReasonAddressTaken, Severity: Error, Actor: Either,
		Meaning: "Another Listener is advertised at this address with this port; the message names both. The " +
			"Listener continues by itself when the other one has given it up.",
		Remedy: "Name another class, or ask an administrator to give one of the two Listeners another address or " +
			"port: docs/advertise.md",
	},
	{
		Name: listenersv1alpha1.ReasonRecordsRead, Severity: Expected,
		Meaning: "external-dns has read where the name of the Listener leads, and writes it to the DNS.",
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForExternalDNS, Severity: Waiting, Actor: Administrator,
		Causes: []string{dnsEndpoint},
		Meaning: "external-dns has not read the records of the Listener. The Pods have the name already, and clients " +
			"cannot resolve it, or find the former addresses.",
		Remedy: "If it lasts, ask an administrator for external-dns: it has to run with --source=crd, and to watch " +
			"the namespace: docs/names.md",
	},
	foreign("DNSEndpoint", dnsEndpoint),
	rejected("DNSEndpoint", dnsEndpoint, ""),
	foreign("Route", route),
	rejected("Route", route, "Custom hosts need a permission (docs/openshift-routes.md#hosts), and the router has to "+
		"be able to read the Secret of externalCertificate (docs/openshift-routes.md#certificates)."),
	{
		Name: listenersv1alpha1.ReasonWaitingForRouter, Severity: Waiting, Actor: Administrator,
		Causes:  []string{route},
		Meaning: "No router has admitted or rejected a Route yet.",
		Remedy: "Ask an administrator to compare the labels of the Route with the selectors of the " +
			"IngressControllers, and spec.route.routers of the class with their names.",
	},
	{
		Name: listenersv1alpha1.ReasonRouteNotAdmitted, Severity: Error, Actor: Either, Causes: []string{route},
		Meaning: "A router rejects a Route; the message contains the router's. `HostAlreadyClaimed`: choose another " +
			"host, or delete the older Route. With a wildcard: allow wildcards in the IngressController. " +
			"`ExternalCertificateValidationFailed`, `ExternalCertificateSecretDeleted`: the Secret, or the router's " +
			"permission to read it, has gone since the API server accepted the Route; create it again. " +
			"`ExtendedValidationFailed`: correct what is in the Secret. The operator then makes the router look " +
			"again, within five minutes, by the annotation `listener-operator.dev/touched` of the Route: " +
			"docs/openshift-routes.md#certificates",
		Remedy: "Correct what the router rejects; docs/reasons.md#routenotadmitted has what routers say.",
	},
	foreign("Ingress", ingress),
	rejected("Ingress", ingress, "A webhook of the controller may reject it, too. Some annotations and Secrets need a "+
		"permission: docs/ingress.md#annotations-and-secrets"),
	{
		Name: listenersv1alpha1.ReasonWaitingForIngress, Severity: Waiting, Actor: Administrator,
		Causes:  []string{ingress},
		Meaning: "No controller has reported an address for an Ingress.",
		Remedy: "Ask an administrator for the Ingress controller: its IngressClass has to exist, and it has to run " +
			"and to publish its address. Traefik, for example, needs providers.kubernetesIngress.ingressEndpoint: " +
			"docs/ingress.md",
	},
	foreign("GatewayRoute", "route of the Gateway API"),
	rejected("GatewayRoute", "route of the Gateway API", ""),
	{
		Name: listenersv1alpha1.ReasonNoGatewayListener, Severity: Error, Actor: Administrator,
		Meaning: "No listener of the Gateways is free for a TCPRoute or UDPRoute; the message says who has them. The " +
			"Listener continues when one is free.",
		Remedy: "Ask an administrator of the Gateway to add a listener, or to allow the namespace in allowedRoutes; " +
			"the message says who has the others.",
	},
	{
		Name: listenersv1alpha1.ReasonGatewayPortsExhausted, Severity: Error, Actor: Administrator,
		Meaning: "The Gateway and its ListenerSets use all ports in the range of the class; the message names the " +
			"Gateway and the range. The Listener continues when one is free.",
		Remedy: "Ask an administrator to extend spec.gateway.portRange of the class, or delete Listeners.",
	},
	{
		Name: listenersv1alpha1.ReasonListenerSetNotAllowed, Severity: Error, Actor: Administrator,
		Meaning: "The class has a range of ports, and the Gateway does not allow ListenerSets of the namespace.",
		Remedy: "Ask an administrator of the Gateway to allow ListenerSets of the namespace in " +
			"spec.allowedListeners: docs/gateway-api.md#ports-that-the-operator-allocates",
	},
	foreign("ListenerSet", "ListenerSet"),
	rejected("ListenerSet", "ListenerSet", "It rejects one with more than 64 ports."),
	{
		Name: listenersv1alpha1.ReasonWaitingForGateway, Severity: Waiting, Actor: Administrator,
		Causes: []string{gateway},
		Meaning: "The Gateway does not exist, is not programmed or has no address, or its controller has not looked " +
			"at the route or the ListenerSet; the message says which.",
		Remedy: "If it lasts, ask an administrator of the Gateway; docs/gateway-api.md says what the Gateway needs.",
	},
	{
		Name: listenersv1alpha1.ReasonGatewayRouteNotAccepted, Severity: Error, Actor: Administrator,
		Causes: gatewayRoutes,
		Meaning: "The controller of a Gateway does not accept a route, or cannot resolve its references; the message " +
			"contains the controller's, and what is missing: `allowedRoutes`, `hostname` or a `ReferenceGrant`.",
		Remedy: "Ask an administrator of the Gateway for what the message names.",
	},
}

var placements = []Reason{
	{
		Name: listenersv1alpha1.ReasonWaitingForPods, Severity: Waiting, Causes: []string{claim, pod, endpoints},
		Meaning: "No Pod has mounted the Listener yet.",
		Remedy: "Start a Pod that mounts the Listener, or see why none has started: kubectl events --namespace " +
			"{namespace} --types Warning",
	},
	{
		Name: listenersv1alpha1.ReasonReserved, On: []string{listener, endpoints}, Severity: Waiting,
		Meaning: "No Pod has mounted the Listener for a minute. Its Service and addresses are kept for the Pods that " +
			"do so next.",
	},
	{
		Name: listenersv1alpha1.ReasonListenerUnused, On: []string{listener}, Severity: Expected,
		Meaning: "The Listener of an ephemeral claim was deleted, because its Pod has finished, or there was no Pod " +
			"of its name for as long as its class keeps it: docs/volumes.md#how-long-a-listener-is-kept",
	},
	{
		Name: listenersv1alpha1.ReasonNoMatchingPods, On: []string{listener, endpoints}, Severity: Error, Actor: User,
		Meaning: "No Pod that mounts the Listener has the labels of `extraPodSelectorLabels`, so nothing responds at " +
			"its addresses.",
		Remedy: "Correct spec.extraPodSelectorLabels of the Listener, or the labels of the Pods.",
	},
	{
		Name: listenersv1alpha1.ReasonPortNotDeclared, Severity: Warning, Actor: User,
		Meaning: "No container of the Pods declares a port of the Listener. If a program listens there anyway, this " +
			"is no error.", Remedy: "Check spec.ports of the Listener.",
	},
	{
		Name: listenersv1alpha1.ReasonNoHostPorts, Severity: Error, Actor: User,
		Meaning: "The class needs host ports, and no Pod of the Listener declares one; the message names Pods and " +
			"ports.",
		Remedy: "Declare hostPort for the ports of the Pod, or use hostNetwork, or name another class.",
	},
	{
		Name: listenersv1alpha1.ReasonNodesMissing, On: []string{listener, node}, Severity: Error, Actor: Administrator,
		Causes:  []string{node, volume},
		Meaning: "None of the nodes on which the Listener has reservations exists and has a valid address.",
		Remedy: "Ask an administrator for the nodes that the message names. If a node is gone, see " +
			"docs/lost-nodes.md. If it exists, it has no address that spec.nodeAddresses of the class admits.",
	},
	{
		Name: listenersv1alpha1.ReasonPreviousExposure, Severity: Waiting, Actor: Either,
		Meaning: "The class of the Listener has changed, and it keeps the addresses of its previous exposure until " +
			"the new one is complete; the message says what is missing. New Pods wait for two minutes at most, and " +
			"then start with the previous addresses: docs/address-changes.md#while-a-class-changes",
		Remedy: "Find out why the new exposure is not complete, as the message says, or name the previous class again.",
	},
	{
		Name: listenersv1alpha1.ReasonPodsOutdated, On: []string{listener, pod}, Severity: Warning, Actor: User,
		Causes: []string{"PodListeners"},
		Meaning: "The Pods that the message names started with other addresses. The operator does not know whether " +
			"their programs use the address, or follow it.",
		Remedy: "If their programs use the address that they read at their start, restart the Pods; otherwise there " +
			"is nothing to do: docs/address-changes.md",
	},
	{
		Name: listenersv1alpha1.ReasonNodesNotReady, On: []string{listener, node}, Severity: Error,
		Actor: Administrator, Causes: []string{node},
		Meaning: "No node of the addresses is ready, so they may not respond. They stay published.",
		Remedy:  "Ask an administrator to repair the node. If the machine is gone, follow docs/lost-nodes.md.",
	},
	{
		Name: listenersv1alpha1.ReasonNodesWithoutPods, Severity: Warning,
		Meaning: "Nothing responds at the addresses of the nodes that the message names: no Pod mounts the Listener " +
			"there, and nodes do not forward to each other (`serviceExternalTrafficPolicy: Local`, host ports). They " +
			"are left out after half an hour: docs/listeners.md#nodes-without-a-pod",
		Remedy: "Clients need another address until these are left out after half an hour. Or let nodes forward to " +
			"each other, without serviceExternalTrafficPolicy: Local in the class.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidNodeAddress, Severity: Error, Actor: Administrator,
		Meaning: "The annotation `listener-operator.dev/advertised-address` of a node is not valid; the message " +
			"contains node and value. The node is left out.",
		Remedy: "Ask an administrator to correct or remove the annotation listener-operator.dev/advertised-address " +
			"of the node.",
	},
}

var claims = []Reason{
	{
		Name: listenersv1alpha1.ReasonInvalidClaim, On: []string{claim, pod}, Severity: Error, Actor: User,
		Meaning: "The claim has neither or both of the annotations, or lists ports that the Pod does not have. The " +
			"message names an annotation that nearly fits.",
		Remedy: "Correct the annotations of the claim.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidVolume, On: []string{pod}, Severity: Error, Actor: User,
		Meaning: "An inline volume cannot be mounted: its attributes are wrong, or unknown, its class forbids such " +
			"volumes, or pins volumes to nodes, which needs a claim, or the Pod has no ports. The message contains " +
			"which.",
		Remedy: "Correct the volume in what creates the Pod: docs/volumes.md#inline-volumes",
	},
	{
		Name: IgnoredKey, On: []string{pod, claim, listener, node, "Namespace", "StatefulSet", "Deployment",
			"DaemonSet"}, Severity: Warning, Actor: Either,
		Meaning: "A label, an annotation or the driver of a volume is unknown, in the wrong place, or has a wrong " +
			"value, and so has no effect. Only `kubectl listener` knows this reason.",
		Remedy: "Correct it as the message says, in what creates the object: " +
			"docs/api.md#labels-annotations-and-attributes",
	},
	{
		Name: NotInjected, On: []string{pod}, Severity: Error, Actor: Either,
		Meaning: "The Pod has no volume in spite of its annotation `listener-operator.dev/inject`. Only `kubectl " +
			"listener` knows this reason.",
		Remedy: "Do what the message says, and have the Pod created again: docs/volumes.md#by-an-annotation",
	},
	{
		Name: listenersv1alpha1.ReasonListenerNotFound, On: []string{claim, pod, listener}, Severity: Error,
		Actor: User,
		Meaning: "The Listener does not exist, or was deleted while a Pod mounts it. The files keep the last " +
			"addresses then, which do not work any more.",
		Remedy: "Create the Listener, or name another one.",
	},
	{
		Name: listenersv1alpha1.ReasonForeignListener, On: []string{claim, pod}, Severity: Error, Actor: User,
		Meaning: "The Listener that the claim or the inline volume would get exists, and belongs to another owner. " +
			"The operator does not change it.",
		Remedy: "Rename the Listener, the claim or the volume, or use the Listener by the annotation that names it. " +
			"If it comes from a backup, set its annotation listener-operator.dev/claim to its name: docs/backup.md",
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForRestore, On: []string{claim, pod}, Severity: Waiting, Actor: User,
		Meaning: "The claim, or the Pod with an inline volume, comes from a backup, and waits up to a minute for its " +
			"Listener: docs/backup.md", Remedy: "Wait. To keep the previous ports, restore the Listener first.",
	},
	{
		Name: listenersv1alpha1.ReasonListenerTerminating, On: []string{claim, listener}, Severity: Warning,
		Actor: User,
		Meaning: "An earlier Listener is still being deleted, or is going to be, because an earlier claim named " +
			"another class (docs/volumes.md#moving-to-another-class). A new one is created afterwards. A Listener " +
			"that finalizers keep has no address any more when its Service is gone; the message names them.",
		Remedy: "Wait. If it lasts, do what the message says, or see which finalizer of the Listener or its Service " +
			"blocks the deletion.",
	},
	{
		Name: listenersv1alpha1.ReasonWaitForFirstConsumer, On: []string{claim}, Severity: Waiting,
		Meaning: "No Pod mounts the claim, which was created at least five seconds ago.",
		Remedy:  "Start a Pod that mounts the claim.",
	},
	{
		Name: listenersv1alpha1.ReasonPodIsCopy, On: []string{pod}, Severity: Warning, Actor: User,
		Meaning: "The Pod has no controller, and the claim or the inline volume of another Pod, as copies of " +
			"`kubectl debug` do. It gets the files, but no requests.",
		Remedy: "For requests, give the Pod a volume of its own.",
	},
	{
		Name: listenersv1alpha1.ReasonLabelsRemoved, On: []string{pod}, Severity: Warning, Actor: Either,
		Meaning: "Something removes the labels of Listeners from the Pod again and again. The operator adds them " +
			"again, at most once a second after the first ten times; in between, the Pod gets no requests. The " +
			"message names who writes other labels of the Pod.",
		Remedy: "Configure the program that removes the labels to keep those of others. If the message does not name " +
			"it, see the audit log of the API server.",
	},
	{
		Name: listenersv1alpha1.ReasonSelectorChanged, On: []string{claim, volume}, Severity: Error, Actor: User,
		Meaning: "The annotations of the claim select another Listener than when its volume was provisioned, which " +
			"has no effect. Only another class is followed: docs/volumes.md#moving-to-another-class",
		Remedy: "Restore the annotation, or delete the claim and create it again.",
	},
	{
		Name: listenersv1alpha1.ReasonWaitingForAddress, On: []string{pod, "PodListeners"}, Severity: Error,
		Actor: Either, Causes: []string{listener},
		Meaning: "The volume waits; the message contains what the Listener waits for.",
		Remedy:  "See in its conditions what the Listener waits for: kubectl describe lsn --namespace {namespace}",
	},
	{
		Name: listenersv1alpha1.ReasonRequestRejected, On: []string{pod}, Severity: Error, Actor: Administrator,
		Meaning: "The API server rejects what the operator writes for the addresses of the Pod, such as the label of " +
			"its Listener; the message contains which policy or permission does that. The operator tries again.",
		Remedy: "Exempt the operator from the admission policy that the message names, or restore its permission: " +
			"kubectl listener doctor",
	},
	{
		Name: listenersv1alpha1.ReasonPinnedToNode, On: []string{claim, pod, volume}, Severity: Error,
		Actor: Administrator,
		Meaning: "A Pod cannot be scheduled, because the volume of the claim is pinned to a node that does not take " +
			"it; the message names the node and why: docs/lost-nodes.md",
		Remedy: "Let the node take the Pod: it may be cordoned, full, or have a taint. Or give the address up: " +
			"kubectl listener release {claim} --namespace {namespace} --force",
	},
}

var lostNodes = []Reason{
	{
		Name: listenersv1alpha1.ReasonNodeLost, On: []string{listener, claim, pod, volume}, Severity: Error,
		Actor:   Administrator,
		Meaning: "The node that a volume is pinned to is lost.",
		Remedy: "If the machine is really gone, release the volume, so that its Pod can start elsewhere: kubectl " +
			"listener release {claim} --namespace {namespace}",
	},
	{
		Name: listenersv1alpha1.ReasonVolumeReleased, On: []string{listener, claim, pod}, Severity: Waiting,
		Actor:   User,
		Meaning: "The volume is released from its node, and its Pod can start elsewhere.",
		Remedy:  "If the Pod does not start, see why: kubectl events --namespace {namespace} --types Warning",
	},
	{Name: listenersv1alpha1.ReasonVolumeMoved, On: []string{listener, claim, pod}, Severity: Expected,
		Meaning: "The Pod of a released volume is on another node."},
	{Name: listenersv1alpha1.ReasonNodeReturned, On: []string{listener, claim, pod}, Severity: Expected,
		Meaning: "The node is back."},
	{
		Name: listenersv1alpha1.ReasonVolumeRestored, On: []string{claim}, Severity: Expected,
		Meaning: "A PersistentVolume was deleted by hand, and the operator has created it again from its claim.",
	},
	{
		Name: listenersv1alpha1.ReasonVolumeNotRestored, On: []string{claim, volume}, Severity: Error, Actor: User,
		Meaning: "A PersistentVolume was deleted by hand, and the operator cannot create it again; the message says " +
			"why.",
		Remedy: doWhatItSays + " How to create claims of a backup: docs/backup.md#without-velero",
	},
	{
		Name: listenersv1alpha1.ReasonReleaseRefused, On: []string{claim}, Severity: Error, Actor: Either,
		Meaning: "The volume cannot be released; the message says why.",
		Remedy:  "Remove what the message names; docs/lost-nodes.md has each case.",
	},
	{
		Name: listenersv1alpha1.ReasonInvalidRelease, On: []string{claim}, Severity: Error, Actor: User,
		Meaning: "The request to release the volume is not valid; the message says why.",
		Remedy:  "Set the annotation listener-operator.dev/release to a time, or remove it.",
	},
}

var restarts = []Reason{
	{
		Name: listenersv1alpha1.ReasonAddressChanged, On: []string{pod}, Severity: Waiting,
		Meaning: "The addresses of the Pod have changed since it started, and it is evicted, as its class states: " +
			"docs/address-changes.md#restarting-pods",
	},
	{
		Name: listenersv1alpha1.ReasonEvictionRefused, On: []string{pod}, Severity: Error, Actor: User,
		Meaning: "As `AddressChanged`, but the API server refuses the eviction, mostly because of a " +
			"PodDisruptionBudget; the message contains why. The operator tries again.",
		Remedy: "Find the PodDisruptionBudget that permits no eviction: kubectl get poddisruptionbudgets --namespace " +
			"{namespace}",
	},
	{
		Name: listenersv1alpha1.ReasonEvictionDelayed, On: []string{pod}, Severity: Warning, Actor: Administrator,
		Meaning: "As `AddressChanged`, but the Pods of its controller were evicted for an earlier change a short " +
			"time ago; the message says when it is evicted.",
		Remedy: "Find out who changes the address again and again: a load balancer, or the addresses of a Node.",
	},
	{
		Name: listenersv1alpha1.ReasonNotEvicted, On: []string{pod}, Severity: Error, Actor: User,
		Meaning: "As `AddressChanged`, but nothing would replace the Pod, or the operator does not know how many " +
			"Pods its controller should have.",
		Remedy: "Restart the Pod with the tool that created it.",
	},
}

var certificates = []Reason{
	{
		Name: listenersv1alpha1.ReasonNoListenerVolumes, On: []string{"PodCertificateRequest"}, Severity: Error,
		Actor:   User,
		Meaning: "The Pod mounts no listener volume, so there is no address that a certificate could be for.",
		Remedy: "Add a listener volume to the Pod, or remove the volume for the certificate, and create the Pod " +
			"again: docs/tls.md",
	},
	{
		Name: listenersv1alpha1.ReasonPodDeleted, On: []string{"PodCertificateRequest"}, Severity: Expected,
		Meaning: "The Pod of the request does not exist any more, or not on the node whose kubelet sent the request.",
	},
	{
		Name: listenersv1alpha1.ReasonCertificateWaiting, On: []string{pod, "PodCertificateRequest"}, Severity: Waiting,
		Actor: Either, Causes: []string{pod, listener, "Secret"},
		Meaning: "The certificate is not issued yet; the message says what it waits for, mostly an address.",
		Remedy:  doWhatItSays + " The kubelet gets the certificate as soon as the Pod has its addresses: docs/tls.md",
	},
	{
		Name: listenersv1alpha1.ReasonForeignConfigMap, On: []string{"ConfigMap"}, Severity: Error, Actor: User,
		Meaning: "The operator cannot write the authorities of the namespace into this ConfigMap, because it is " +
			"immutable.",
		Remedy: "Delete the ConfigMap. The operator creates it again.",
	},
	{
		Name: operatorv1alpha1.ReasonCertificateAuthorityDamaged, On: []string{"ListenerOperator", "Secret"},
		Severity: Error, Actor: Administrator,
		Meaning: "The Secret with the roots of the authorities cannot be read, so no certificates are issued. " +
			"Existing ones remain valid for the rest of their day.",
		Remedy: "Restore the Secret from a backup. Or delete it: clients then have to trust new authorities: " +
			"docs/tls.md#authorities",
	},
}

// seeLog is what to do about a condition of the operator beyond what its message says.
const seeLog = doWhatItSays + " The log of the operator has more: kubectl logs --namespace {namespace} " +
	"deployment/listener-operator"

var operator = []Reason{
	{Name: operatorv1alpha1.ReasonAsExpected, On: []string{"ListenerOperator"}, Severity: Expected,
		Meaning: "Everything is as it should be."},
	{Name: operatorv1alpha1.ReasonAgentsRolledOut, On: []string{"ListenerOperator"}, Severity: Expected,
		Meaning: "The last rollout of node agents has ended on all nodes that are not down."},
	{Name: operatorv1alpha1.ReasonAgentsRollout, On: []string{"ListenerOperator"}, Severity: Waiting,
		Meaning: "Node agents are being started or replaced."},
	{
		Name: operatorv1alpha1.ReasonAgentsNotReady, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator, Causes: []string{node},
		Meaning: "Some node agents have not started for more than 15 minutes.",
		Remedy:  "See the Pods and events of the DaemonSet listener-node-agent. " + seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonAgentsNotCreated, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "Pods of agents are not created, mostly because pod security rejects them, or security context " +
			"constraints of OpenShift. The agents start within two minutes after that is corrected.",
		Remedy: "Label the namespace (docs/install.md), or grant what is missing: kubectl listener doctor. " + seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonAgentsInUse, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "By `spec.nodeAgent` or the Subscription, agents would leave nodes where Pods have listener " +
			"volumes. No agent moves until these Pods, which the message names, have terminated.",
		Remedy: "Terminate the Pods, or revert the setting. " + seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonAgentsMoving, On: []string{"ListenerOperator"}, Severity: Waiting,
		Actor: Administrator,
		Meaning: "Agents of an earlier installation in another namespace have to be deleted first: the message names " +
			"their DaemonSet, whose Pods may be on a node that is down.",
		Remedy: "Wait. If it lasts, delete the Pods on the node that is down. " + seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonApplyFailed, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "The API server rejects what the operator writes; the message contains the error. The operator " +
			"retries.", Remedy: seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonRemovalFailed, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "The API server rejects what the operator deletes; the message contains the error. The operator " +
			"retries.", Remedy: seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonForeignObject, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "An object that the operator has to install belongs to another owner, such as another installation " +
			"of the driver; the message names it.",
		Remedy: "Remove the object that belongs to the other installation.",
	},
	{
		Name: operatorv1alpha1.ReasonOtherOperatorRunning, On: []string{"ListenerOperator"}, Severity: Error,
		Actor:   Administrator,
		Meaning: "Stackable's listener operator runs, so this one waits; the message names its objects.",
		Remedy:  "See what blocks the move (kubectl listener migrate), and follow docs/moving-over.md",
	},
	{
		Name: operatorv1alpha1.ReasonOtherConfinement, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "An admission policy that confines the operator differs from the policy of its version, because " +
			"another client or version has written it.",
		Remedy: "Delete what the message names. " + seeLog,
	},
	{
		Name: operatorv1alpha1.ReasonOtherClusterDomain, On: []string{"ListenerOperator"}, Severity: Warning,
		Actor: Administrator,
		Meaning: "`spec.clusterDomain` differs from the domain of the operator's resolver. Addresses inside the " +
			"cluster end with it.",
		Remedy: "Remove the field, unless the cluster's DNS serves both domains.",
	},
	{
		Name: operatorv1alpha1.ReasonSlowRequest, On: []string{"Namespace"}, Severity: Warning, Actor: Administrator,
		Meaning: "A controller, which the message names, has worked for more than 15 seconds on one object of the " +
			"namespace. Other namespaces do not wait for it: one has at most half of the workers of a controller.",
		Remedy: "Look for objects in the namespace that are unusually large or many, and for webhooks that respond " +
			"slowly.",
	},
	{
		Name: operatorv1alpha1.ReasonVolumesInUse, On: []string{"ListenerOperator"}, Severity: Error,
		Actor: Administrator,
		Meaning: "What is installed cannot be removed, because the Pods and claims in the message use listener " +
			"volumes.",
		Remedy: "Delete these Pods and claims: docs/uninstall.md#1-remove-what-the-operator-installed",
	},
	{
		Name: operatorv1alpha1.ReasonRemoved, On: []string{"ListenerOperator"}, Severity: Expected,
		Meaning: "`spec.managementState` is `Removed`, or the configuration is being deleted.",
	},
	{
		Name: operatorv1alpha1.ReasonUnmanaged, On: []string{"ListenerOperator"}, Severity: Warning,
		Actor:   Administrator,
		Meaning: "`spec.managementState` is `Unmanaged`, so the operator repairs nothing.",
		Remedy:  "Set spec.managementState to Managed.",
	},
	{
		Name: operatorv1alpha1.ReasonRepaired, On: []string{"ListenerOperator"}, Severity: Warning,
		Actor: Administrator,
		Meaning: "The operator has reverted the change of another client to an installed object; the message names " +
			"both.",
		Remedy: "If it comes again, find the other client: docs/alerts.md#listeneroperatorrepairskeepcoming",
	},
}

var kubernetes = []Reason{
	{
		Name: FailedMount, On: []string{pod, "Volume"}, Severity: Error, Actor: Administrator,
		Meaning: "The kubelet cannot mount a volume of the Pod.",
		Remedy: "See the log of the node agent on node {node}: kubectl logs --namespace listener-operator " +
			"--selector app.kubernetes.io/component=node-agent --prefix",
	},
	{
		Name: FailedBinding, On: []string{pod, claim}, Severity: Error, Actor: Either,
		Meaning: "Kubernetes cannot create the claim of an ephemeral volume.",
		Remedy:  doWhatItSays + " A ResourceQuota may be used up: docs/quotas.md",
	},
	{
		Name: FailedCreate, On: []string{"workloads"}, Severity: Error, Actor: Either,
		Meaning: "Kubernetes cannot create a Pod of a workload.",
		Remedy: doWhatItSays + " A quota, an admission policy, or on OpenShift a SecurityContextConstraints refuses " +
			"the Pod.",
	},
	{
		Name: ClaimLost, On: []string{claim}, Severity: Error, Actor: Administrator,
		Meaning: "The PersistentVolume of the claim was deleted.",
		Remedy: "The operator creates the volume again within a moment. If it does not, an administrator finds out " +
			"why: kubectl listener doctor",
	},
	{
		Name: NoNodeAgent, On: []string{node}, Severity: Error, Actor: Administrator,
		Meaning: "No node agent works on the node, so no Pod with a listener volume starts or ends there.",
		Remedy: "Find out why no node agent runs there (kubectl listener doctor), or let another node take the Pod: " +
			"docs/configuration.md#nodes-without-an-agent",
	},
	{
		Name: NodeLabelMissing, On: []string{node}, Severity: Error, Actor: Administrator,
		Meaning: "A node with an agent lacks the label `listeners.stackable.tech/hostname`, because another client " +
			"has removed it. Pods with volumes that are pinned to the node cannot be scheduled.",
		Remedy: "Delete the agent's Pod: the next one registers, and the kubelet sets the label again: kubectl " +
			"delete pods --all-namespaces --selector " +
			"app.kubernetes.io/name=listener-operator,app.kubernetes.io/component=node-agent --field-selector " +
			"spec.nodeName={node}",
	},
}
