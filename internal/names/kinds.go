package names

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kinds of Kubernetes 1.37. Older API servers do not serve them.
var (
	// KindPodCertificateRequest is how the kubelet requests certificates for Pods (KEP-4317).
	KindPodCertificateRequest = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "PodCertificateRequest"}
	// KindClusterTrustBundle is how Pods get certificates to trust (KEP-3257).
	KindClusterTrustBundle = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "ClusterTrustBundle"}
)

// The kinds of other projects that only some clusters serve. Package platform finds out whether the cluster serves
// them.
var (
	// KindSecurityContextConstraints is OpenShift's.
	KindSecurityContextConstraints = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}
	// KindClusterVersion is served by OpenShift clusters only.
	KindClusterVersion = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}
	// KindAPIServer has the TLS security profile of an OpenShift cluster.
	KindAPIServer = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "APIServer"}
	// KindConsoleYAMLSample is an example in OpenShift's console.
	KindConsoleYAMLSample = schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleYAMLSample"}
	// KindConsoleQuickStart is a guided task in OpenShift's console.
	KindConsoleQuickStart = schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleQuickStart"}
	// KindCertificate is cert-manager's.
	KindCertificate = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}
	// KindServiceMonitor is the Prometheus operator's.
	KindServiceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	// KindPrometheusRule is the Prometheus operator's.
	KindPrometheusRule = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}
	// KindOperatorCondition is how the Operator Lifecycle Manager learns of an operator's conditions. It creates one
	// object for each version that it installs, and permits the operator to read and patch it.
	KindOperatorCondition = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}
)
