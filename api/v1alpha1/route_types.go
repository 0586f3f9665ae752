package v1alpha1

// RouteTermination says where the TLS connection of a client ends. The values are those of a Route's
// spec.tls.termination, and none.
//
// +kubebuilder:validation:Enum=passthrough;edge;reencrypt;none
type RouteTermination string

const (
	// RouteTerminationPassthrough leaves TLS to the Pod: the router passes the connection on by the server name (SNI)
	// in it.
	RouteTerminationPassthrough RouteTermination = "passthrough"
	// RouteTerminationEdge ends TLS at the router, which speaks HTTP to the Pod.
	RouteTerminationEdge RouteTermination = "edge"
	// RouteTerminationReencrypt ends TLS at the router, which speaks HTTPS to the Pod.
	RouteTerminationReencrypt RouteTermination = "reencrypt"
	// RouteTerminationNone is HTTP without TLS.
	RouteTerminationNone RouteTermination = "none"
)

// RouteInsecurePolicy says what becomes of a client that speaks HTTP to a Route with TLS. The values are those of a
// Route's spec.tls.insecureEdgeTerminationPolicy.
//
// +kubebuilder:validation:Enum=None;Allow;Redirect
type RouteInsecurePolicy string

const (
	// RouteInsecurePolicyNone refuses it.
	RouteInsecurePolicyNone RouteInsecurePolicy = "None"
	// RouteInsecurePolicyAllow serves it. Not with passthrough.
	RouteInsecurePolicyAllow RouteInsecurePolicy = "Allow"
	// RouteInsecurePolicyRedirect redirects it to HTTPS.
	RouteInsecurePolicyRedirect RouteInsecurePolicy = "Redirect"
)

// RouteWildcardPolicy says which host names a Route serves. The values are those of a Route's spec.wildcardPolicy.
//
// +kubebuilder:validation:Enum=None;Subdomain
type RouteWildcardPolicy string

const (
	// RouteWildcardPolicyNone is the Route's host alone.
	RouteWildcardPolicyNone RouteWildcardPolicy = "None"
	// RouteWildcardPolicySubdomain is every host in the domain of the Route's host.
	RouteWildcardPolicySubdomain RouteWildcardPolicy = "Subdomain"
)

// RouteExposure is how Listeners of a class are exposed through OpenShift Routes: one for each port, named after
// Listener and port.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hostTemplate) || !has(self.subdomainTemplate)",message="hostTemplate and subdomainTemplate exclude each other: a Route ignores its subdomain if it has a host"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureEdgeTerminationPolicy) || self.termination != 'none'",message="insecureEdgeTerminationPolicy is for terminations with TLS, and there is none"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureEdgeTerminationPolicy) || self.insecureEdgeTerminationPolicy != 'Allow' || self.termination != 'passthrough'",message="insecureEdgeTerminationPolicy Allow does not work with passthrough: a router cannot tell where HTTP should go that is no TLS"
// +kubebuilder:validation:XValidation:rule="!has(self.certificateSecretName) || self.termination in ['edge', 'reencrypt']",message="certificateSecretName is for edge and reencrypt: with other terminations the router needs no certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.destinationCACertificate) || self.termination == 'reencrypt'",message="destinationCACertificate is for reencrypt: with other terminations the router does not check the Pod's certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.wildcardPolicy) || self.wildcardPolicy != 'Subdomain' || has(self.hostTemplate)",message="wildcardPolicy Subdomain needs a hostTemplate: a Route serves the domain that its host is in"
type RouteExposure struct {
	// Where the TLS connection of a client ends: at the Pod (passthrough), at the router, which speaks HTTP (edge) or
	// HTTPS (reencrypt) to the Pod, or nowhere, as it is HTTP (none). With passthrough, clients must speak TLS from the
	// first byte, and send the host name in it (SNI).
	// +optional
	// +kubebuilder:default=passthrough
	Termination RouteTermination `json:"termination,omitempty"`

	// What becomes of a client that speaks HTTP to a Route with TLS: None refuses it, Allow serves it (not with
	// passthrough), Redirect redirects it to HTTPS; unset means None.
	// +optional
	InsecureEdgeTerminationPolicy RouteInsecurePolicy `json:"insecureEdgeTerminationPolicy,omitempty"`

	// The host name of each Route, with the placeholders {listener}, {port}, {namespace}, {className}, {podName} and
	// {podIndex}. The last two are for Listeners of a Pod's own claim. A part between two dots that gets too long is
	// shortened, with a hash. Hosts belong to whoever asks first: have {namespace} in it unless all namespaces are
	// trusted. Needs the operator's right to routes/custom-host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName} and {podIndex}"
	HostTemplate string `json:"hostTemplate,omitempty"`

	// The name of each Route below the router's own domain, with the placeholders of hostTemplate. Without either
	// template the cluster chooses the host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName} and {podIndex}"
	SubdomainTemplate string `json:"subdomainTemplate,omitempty"`

	// Labels of the Routes, next to those of the Listener, for example to choose a router shard.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the Routes, for example haproxy.router.openshift.io/timeout.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// The Secret of type kubernetes.io/tls, in the Listener's namespace, with the certificate that the router shows to
	// clients, which must be allowed to read it; unset means the router's own certificate. Only for edge and reencrypt.
	// Needs OpenShift 4.19, and the operator's right to routes/custom-host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CertificateSecretName string `json:"certificateSecretName,omitempty"`

	// The certificate authority of the Pods, in PEM format, that the router checks their certificates against; unset
	// means the authority of the cluster's service certificates. Only for reencrypt. Needs the operator's right to
	// routes/custom-host.
	// +optional
	// +kubebuilder:validation:MinLength=1
	DestinationCACertificate string `json:"destinationCACertificate,omitempty"`

	// Whether a Route serves its host alone (None), or every host in the same domain (Subdomain); unset means None. The
	// router has to allow wildcards. A change makes the Routes anew.
	// +optional
	WildcardPolicy RouteWildcardPolicy `json:"wildcardPolicy,omitempty"`

	// The names of the ports that get a Route; empty means all TCP ports. Other ports of a Listener are not exposed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Ports []string `json:"ports,omitempty"`

	// The names of the routers whose admission counts, the preferred one first, where several admit the same Routes;
	// empty means all, in the order in which they did.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	Routers []string `json:"routers,omitempty"`
}
