package v1alpha1

// IngressTLS configures TLS of the Ingresses of a class.
type IngressTLS struct {
	// secretName is the name of the Secret of type kubernetes.io/tls, in the namespace of the Listener, with the
	// certificate that the Ingress controller presents. It may have the placeholders of hostTemplate, for example
	// {listener}-tls, where a tool issues a certificate for each Ingress. The operator does not read the Secret.
	// Defaults to the certificate of the Ingress controller.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9.-]|[{](listener|port|namespace|className|podName|podIndex|hash)[}])+$')",message="may hold lower-case letters, digits, dots, hyphens, and the placeholders {listener}, {port}, {namespace}, {className}, {podName}, {podIndex} and {hash}"
	SecretName string `json:"secretName,omitempty"`
}

// IngressExposure configures the Ingresses of a class. A Listener has one Ingress for each port, named after the
// Listener and the port.
type IngressExposure struct {
	// className is the name of the IngressClass, whose controller serves the Ingresses. A change deletes and recreates
	// them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`

	// hostTemplate is the template of the host name of each Ingress, with the placeholders {listener}, {port},
	// {namespace}, {className}, {podName}, {podIndex} and {hash}, which stands for 16 digits that depend on the
	// namespace and the names of Listener and port. {podName} and {podIndex} require a Listener of a
	// PersistentVolumeClaim that belongs to a single Pod. No two Listeners may get the same host, whatever their names:
	// the template contains {namespace}, and {listener} or {podName}, each as the only placeholder between two dots; or
	// a part between two dots ends with {hash}. A DNS label that gets too long is shortened and ends with a hash.
	HostTemplate HostTemplate `json:"hostTemplate"`

	// path is the beginning of the paths that are served, by whole path elements. It is not part of the address.
	// Defaults to /, which is every path.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must begin with a slash"
	Path string `json:"path,omitempty"`

	// tls lets the Ingress controller serve HTTPS, and terminate TLS: the Pods receive HTTP. The port of the addresses
	// is then 443, and 80 if absent.
	// +optional
	TLS *IngressTLS `json:"tls,omitempty"`

	// annotations are annotations of the Ingresses, for example nginx.ingress.kubernetes.io/proxy-body-size.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// ports are the names of the ports that get an Ingress, the preferred one first. Other ports of a Listener are
	// reached inside the cluster only. To expose them nowhere, use ports of the class instead. Defaults to all TCP
	// ports.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Ports []string `json:"ports,omitempty"`
}
