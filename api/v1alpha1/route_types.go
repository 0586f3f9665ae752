package v1alpha1

// RouteTermination is where the TLS connection of a client is terminated. It has the values of a Route's
// spec.tls.termination, and none.
//
// +kubebuilder:validation:Enum=passthrough;edge;reencrypt;none
type RouteTermination string

const (
	// RouteTerminationPassthrough terminates TLS at the Pod. The router forwards the connection by its server name
	// (SNI).
	RouteTerminationPassthrough RouteTermination = "passthrough"
	// RouteTerminationEdge terminates TLS at the router, which uses HTTP to the Pod.
	RouteTerminationEdge RouteTermination = "edge"
	// RouteTerminationReencrypt terminates TLS at the router, which uses HTTPS to the Pod.
	RouteTerminationReencrypt RouteTermination = "reencrypt"
	// RouteTerminationNone is HTTP without TLS.
	RouteTerminationNone RouteTermination = "none"
)

// RouteInsecurePolicy is how a Route with TLS handles requests over HTTP. It has the values of a Route's
// spec.tls.insecureEdgeTerminationPolicy.
//
// +kubebuilder:validation:Enum=None;Allow;Redirect
type RouteInsecurePolicy string

const (
	// RouteInsecurePolicyNone rejects them.
	RouteInsecurePolicyNone RouteInsecurePolicy = "None"
	// RouteInsecurePolicyAllow serves them. It is not available with passthrough.
	RouteInsecurePolicyAllow RouteInsecurePolicy = "Allow"
	// RouteInsecurePolicyRedirect redirects them to HTTPS.
	RouteInsecurePolicyRedirect RouteInsecurePolicy = "Redirect"
)

// RouteWildcardPolicy is the set of host names that a Route serves. It has the values of a Route's spec.wildcardPolicy.
//
// +kubebuilder:validation:Enum=None;Subdomain
type RouteWildcardPolicy string

const (
	// RouteWildcardPolicyNone is the host of the Route alone.
	RouteWildcardPolicyNone RouteWildcardPolicy = "None"
	// RouteWildcardPolicySubdomain is every host in the domain of the host of the Route.
	RouteWildcardPolicySubdomain RouteWildcardPolicy = "Subdomain"
)

// RouteExposure configures the OpenShift Routes of a class. A Listener has one Route for each port, named after the
// Listener and the port.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hostTemplate) || !has(self.subdomainTemplate)",message="hostTemplate and subdomainTemplate exclude each other: a Route ignores its subdomain if it has a host"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureEdgeTerminationPolicy) || self.termination != 'none'",message="insecureEdgeTerminationPolicy is for terminations with TLS, not for none"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureEdgeTerminationPolicy) || self.insecureEdgeTerminationPolicy != 'Allow' || self.termination != 'passthrough'",message="insecureEdgeTerminationPolicy Allow does not work with passthrough: the router selects the Route by the TLS server name, which plain HTTP lacks"
// +kubebuilder:validation:XValidation:rule="!has(self.certificateSecretName) || self.termination in ['edge', 'reencrypt']",message="certificateSecretName is for edge and reencrypt: with other terminations the router needs no certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.destinationCACertificate) || self.termination == 'reencrypt'",message="destinationCACertificate is for reencrypt: with other terminations the router does not check the Pod's certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.wildcardPolicy) || self.wildcardPolicy != 'Subdomain' || has(self.hostTemplate)",message="wildcardPolicy Subdomain needs a hostTemplate: a Route serves the domain that its host is in"
// +kubebuilder:validation:XValidation:rule="!has(self.wildcardPolicy) || self.wildcardPolicy != 'Subdomain' || !has(self.hostTemplate) || self.hostTemplate.matches('[.](.*[.])?[^.{}]*[{]namespace[}][^.{}]*([.]|$)') || self.hostTemplate.matches('[.].*[{]hash[}]([.]|$)')",message="wildcardPolicy Subdomain needs {namespace} or {hash} after the first dot of hostTemplate, where {namespace} is the only placeholder between two dots: a Route serves the whole domain that its host is in, which namespaces must not share"
type RouteExposure struct {
	// termination is where the TLS connection of a client is terminated: at the Pod (passthrough), or at the router,
	// which then uses HTTP (edge) or HTTPS (reencrypt) to the Pod. none means HTTP without TLS. With passthrough,
	// clients must begin the connection with TLS and send the host name in it (SNI). Defaults to passthrough.
	// +optional
	// +kubebuilder:default=passthrough
	Termination RouteTermination `json:"termination,omitempty"`

	// insecureEdgeTerminationPolicy is how a Route with TLS handles requests over HTTP: None rejects them, Allow serves
	// them (not available with passthrough), Redirect redirects them to HTTPS. Defaults to None.
	// +optional
	InsecureEdgeTerminationPolicy RouteInsecurePolicy `json:"insecureEdgeTerminationPolicy,omitempty"`

	// hostTemplate is the template of the host name of each Route, with the placeholders {listener}, {port},
	// {namespace}, {className}, {podName}, {podIndex} and {hash}, which stands for 16 digits that depend on the
	// namespace and the names of Listener and port. {podName} and {podIndex} require a Listener of a
	// PersistentVolumeClaim that belongs to a single Pod. No two Listeners may get the same host, whatever their names:
	// the template contains {namespace}, and {listener} or {podName}, each as the only placeholder between two dots; or
	// a part between two dots ends with {hash}. A DNS label that gets too long is shortened and ends with a hash.
	// Requires that the operator has the permission for routes/custom-host.
	// +optional
	HostTemplate HostTemplate `json:"hostTemplate,omitempty"`

	// subdomainTemplate is the template of the host name of each Route below the domain of the router, with the
	// placeholders of hostTemplate. Without either template the cluster chooses the host.
	// +optional
	SubdomainTemplate HostTemplate `json:"subdomainTemplate,omitempty"`

	// labels are labels of the Routes, in addition to the Listener's, for example to select a router shard.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are annotations of the Routes, for example haproxy.router.openshift.io/timeout.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// certificateSecretName is the name of a Secret of type kubernetes.io/tls, in the namespace of the Listener, with
	// the certificate that the router presents to clients. The router must have the permission to read it. Applies only
	// to edge and reencrypt. Requires OpenShift 4.19, and that the operator has the permission for routes/custom-host.
	// Defaults to the certificate of the router.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CertificateSecretName string `json:"certificateSecretName,omitempty"`

	// destinationCACertificate is the certificate authority, in PEM format, with which the router verifies the
	// certificates of the Pods. Applies only to reencrypt. Requires that the operator has the permission for
	// routes/custom-host. Defaults to the authority of the cluster's service certificates.
	// +optional
	// +kubebuilder:validation:MinLength=1
	DestinationCACertificate string `json:"destinationCACertificate,omitempty"`

	// wildcardPolicy states whether a Route serves its host alone (None) or every host in the same domain (Subdomain).
	// The router must allow wildcards. A change deletes and recreates the Routes. Defaults to None.
	// +optional
	WildcardPolicy RouteWildcardPolicy `json:"wildcardPolicy,omitempty"`

	// ports are the names of the ports that get a Route, the preferred one first. Other ports of a Listener are reached
	// inside the cluster only. To expose them nowhere, use ports of the class instead. Defaults to all TCP ports.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Ports []string `json:"ports,omitempty"`

	// routers are the names of the routers whose host names are published, the preferred one first. Defaults to all
	// routers that admit a Route, in the order in which they did.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	Routers []string `json:"routers,omitempty"`
}
