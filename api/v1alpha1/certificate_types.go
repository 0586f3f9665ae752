package v1alpha1

// CertificateUsage is a usage of certificates: server or client.
//
// +kubebuilder:validation:Enum=server;client
type CertificateUsage string

const (
	// CertificateUsageServer is for Pods that clients connect to.
	CertificateUsageServer CertificateUsage = "server"
	// CertificateUsageClient is for Pods that identify themselves by the certificate, for example to other replicas.
	CertificateUsageClient CertificateUsage = "client"
)

// CertificateIssuer refers to an issuer of cert-manager.
type CertificateIssuer struct {
	// group is the API group of the issuer. Defaults to cert-manager.io.
	// +optional
	// +kubebuilder:default=cert-manager.io
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// kind is the kind of the issuer. An Issuer is one in the namespace of the Listener, and a ClusterIssuer is one for
	// all namespaces. Defaults to Issuer.
	// +optional
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// name is the name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Certificates configures the Certificates of a class.
type Certificates struct {
	// issuerRef is the issuer of the certificates.
	IssuerRef CertificateIssuer `json:"issuerRef"`

	// usages are what the certificates are for. Defaults to server.
	// +optional
	// +listType=set
	// +kubebuilder:default={server}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Usages []CertificateUsage `json:"usages,omitempty"`
}
