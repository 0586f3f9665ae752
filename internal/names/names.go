// Package names has the names, labels, annotations and kinds that the parts of the operator and its consumers agree on.
// Those in the contract (docs/contract.md) must never change. No other package may define, derive or configure one.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Names that consumers rely on (contract: names and constants). Package keys says what labels and annotations mean.
const (
	// Driver is the name of the CSI driver, of the provisioner and of the StorageClass.
	Driver = "listeners.stackable.tech"

	AnnotationListenerClass = "listeners.stackable.tech/listener-class"
	AnnotationListenerName  = "listeners.stackable.tech/listener-name"

	// AnnotationProvisioner on a claim names the provisioner of its StorageClass. Kubernetes sets it.
	AnnotationProvisioner = "volume.kubernetes.io/storage-provisioner"

	LabelListenerNamespace = "listeners.stackable.tech/listener-namespace"
	// LabelListenerName on a PersistentVolume is the name of its Listener, as ListenerLabel returns it.
	LabelListenerName = "listeners.stackable.tech/listener-name"

	// TopologyKey is the node label and CSI topology segment whose value is the name of the node.
	TopologyKey = "listeners.stackable.tech/hostname"

	// ServiceAppName and ServiceManagedBy are the values of app.kubernetes.io/name and /managed-by on Services.
	ServiceAppName   = "listener"
	ServiceManagedBy = "listeners.stackable.tech_listener"

	EventReporter = "listener.listeners.stackable.tech"

	// PodMountLabelPrefix is the prefix of PodMountLabel. Unlike in the API group, "listener" is singular.
	PodMountLabelPrefix = "listener.stackable.tech/mnt."
)

// Field managers (contract: names and constants). Stackable's operator has the same ones, so objects are taken over.
const (
	// FieldManagerVolume applies the Listeners of class-based claims, and labels and annotations of PersistentVolumes.
	FieldManagerVolume = "listeners.stackable.tech/volume"
	// FieldManagerService applies the Services of Listeners, and the objects of backends.
	FieldManagerService = "listeners.stackable.tech/listeners.stackable.tech_listener"
	// FieldManagerListenerStatus applies the status of Listeners.
	FieldManagerListenerStatus = "listeners.stackable.tech/listener"
	// FieldManagerDefault creates PodListeners, and patches Pods, PodListeners and annotations of Listeners.
	FieldManagerDefault = "listeners.stackable.tech"
	// FieldManagerLostNodes replaces and annotates PersistentVolumes, and applies the condition NodesAvailable.
	FieldManagerLostNodes = "listener-operator/lost-nodes"
	// FieldManagerDNS applies DNSEndpoints, and the condition DNSReady of Listeners.
	FieldManagerDNS = "listener-operator/dns"
	// FieldManagerOperator creates and applies what the operator installs: the node agent, the StorageClass, presets.
	FieldManagerOperator = "listener-operator"
)

// Names that no consumer relies on.
const (
	// Domain is the domain of what Stackable's operator does not have.
	Domain = "listener-operator.dev"

	// MetricsService is the Service of the operator's metrics, and the Secret with its certificate.
	MetricsService = "listener-operator-metrics"

	// AnnotationNode on a PersistentVolume that is not pinned is the node on which it was last mounted. While no Pod
	// mounts the volume, the Listener keeps the address of this node. The volume of an ephemeral claim has no such
	// annotation, because it ends with its Pod.
	AnnotationNode = "listeners.stackable.tech/node"

	// AnnotationAdvertisedAddress has IP addresses or host names, with commas, the preferred one first.
	AnnotationAdvertisedAddress = "listener-operator.dev/advertised-address"

	// AnnotationPod on an object of a Listener is the name of the Pod whose name is in the object's hosts or
	// annotations. While the Pod is being replaced, they stay.
	AnnotationPod = "listeners.stackable.tech/pod"

	// AnnotationHostname on a Service is the name that external-dns lets lead to the Service, up to version 0.21, and
	// AnnotationHostname022 the same from 0.22 on, which ignores the former.
	AnnotationHostname    = "external-dns.alpha.kubernetes.io/hostname"
	AnnotationHostname022 = "external-dns.kubernetes.io/hostname"

	// Signer is the signer of certificates for the addresses of Pods.
	Signer                       = "listener-operator.dev/address"
	AnnotationCertificateVolumes = "listener-operator.dev/volumes"
	AnnotationCertificateUsages  = "listener-operator.dev/usages"
	// CertificateSuffix is appended to the value of LabelCertificate for the Certificate and the Secret.
	LabelCertificate  = "listener-operator.dev/certificate"
	CertificateSuffix = "-listener-tls"
	// CertificateAuthoritySecret is the Secret in the operator's namespace that has the roots of all authorities.
	CertificateAuthoritySecret = "listener-operator-certificate-authorities"
	// CertificateAuthorityConfigMap is the ConfigMap that has the certificates of a namespace's authority.
	CertificateAuthorityConfigMap = "listener-ca.crt"
	// CertificateAuthorityKey is the key of that ConfigMap, and of the one that every namespace has from Kubernetes.
	CertificateAuthorityKey = "ca.crt"
	// TrustBundlePrefix and a namespace are the name of a ClusterTrustBundle; the API server demands the signer there.
	TrustBundlePrefix = "listener-operator.dev:address:"

	AnnotationPorts = "listener-operator.dev/ports"
	AttributeKeep   = "listener-operator.dev/keep"

	// The annotations by which InjectionPolicy adds an inline volume to a Pod, and the label of namespaces for that.
	// InjectedVolume is the name of the volume without AnnotationInjectVolume.
	AnnotationInject           = "listener-operator.dev/inject"
	AnnotationInjectListener   = "listener-operator.dev/inject-listener"
	AnnotationInjectVolume     = "listener-operator.dev/inject-volume"
	AnnotationInjectPath       = "listener-operator.dev/inject-path"
	AnnotationInjectContainers = "listener-operator.dev/inject-containers"
	InjectedVolume             = "listener"
	LabelInjection             = "listener-operator.dev/injection"

	// AnnotationClaim on a Listener is the name of the class-based claim that the operator created the Listener for, or
	// that the inline volume stands for. The Listener has the same name. Unlike owners, backups keep it.
	AnnotationClaim = "listener-operator.dev/claim"
	// AnnotationKeptFor on a Listener is the name of the Pod that it is kept for. Only a Pod of this name gets it.
	AnnotationKeptFor = "listener-operator.dev/kept-for"
	// LabelRestore on an object is the name of the restore by which Velero has created it.
	LabelRestore = "velero.io/restore-name"
	// AnnotationNumbers on a Listener has the node ports, the ports at a shared address and the cluster IPs of a range
	// that it has or had last, in JSON. Unlike the status, backups keep it.
	AnnotationNumbers = "listener-operator.dev/numbers"

	// AnnotationRelease is the time of a request (RFC 3339), or ReleaseNever, which excludes a volume from automatic
	// releases, too. A volume that was created since then has been released.
	AnnotationRelease = "listener-operator.dev/release"
	ReleaseNever      = "never"
	// AnnotationLostSince on a pinned PersistentVolume is the time since when its node is lost (RFC 3339).
	AnnotationLostSince = "listener-operator.dev/node-lost-since"
	// AnnotationReminded on a PersistentVolume is the uid of the first Pod whose scheduler missed that it is bound.
	AnnotationReminded = "listener-operator.dev/reminded"
	// AnnotationReleasedFrom on a PersistentVolume is the node that it is, or was last, released from.
	AnnotationReleasedFrom = "listener-operator.dev/released-from"

	// AnnotationTouched on a Route that a router has rejected is the time at which the operator last changed it, so
	// that the router looks at it again, in the format of RFC 3339.
	AnnotationTouched = "listener-operator.dev/touched"

	// AnnotationServiceAccount on Pods of agents is the uid of their ServiceAccount, without which tokens are not
	// valid.
	AnnotationServiceAccount = "listener-operator.dev/service-account"

	AnnotationAllowDeletion = "listener-operator.dev/allow-deletion"

	// LabelManagedBy has the value Operator on the operator's own objects.
	LabelManagedBy = "app.kubernetes.io/managed-by"

	// LabelTemplateGeneration on a Pod of a DaemonSet, which Kubernetes sets, is the generation of its template. The
	// DaemonSet has it in the annotation appsv1.DeprecatedTemplateGeneration.
	LabelTemplateGeneration = "pod-template-generation"

	// Operator is the name of the operator's Deployment, ServiceAccount and image, and NodeAgent the node agent's.
	Operator  = "listener-operator"
	NodeAgent = "listener-node-agent"
	// InjectionPolicy is the name of the admission policy by which Pods get a volume by AnnotationInject.
	InjectionPolicy = "listener-operator-injection"
	// PodListenersPolicy is the name of the admission policy that lets only the operator write PodListeners.
	PodListenersPolicy = "listener-operator-podlisteners"
	// PodsPolicy is the name of the admission policy that limits how many inline volumes a Pod has.
	PodsPolicy = "listener-operator-pods"
)

// Attributes that the kubelet adds to a CSI volume context (CSIDriver podInfoOnMount).
const (
	ContextPodName      = "csi.storage.k8s.io/pod.name"
	ContextPodNamespace = "csi.storage.k8s.io/pod.namespace"
	ContextPodUID       = "csi.storage.k8s.io/pod.uid"
	ContextEphemeral    = "csi.storage.k8s.io/ephemeral" // "true" for an inline volume
)

// IsOwn reports whether the operator has created an object which another may have the name of.
func IsOwn(o metav1.Object) bool { return o.GetLabels()[LabelManagedBy] == Operator }

// IsNodeAgent reports whether a node agent runs in a Pod, by what never changes in it.
func IsNodeAgent(pod metav1.Object) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == NodeAgent
}

// OperatorLabels returns the labels of objects that the operator creates for itself, and does not prune.
func OperatorLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": Operator, "app.kubernetes.io/component": "operator"}
}

// serviceHashDigits is the length of the hash at the end of a derived name of a Service.
const serviceHashDigits = 8

// Service returns the name of the Service of a Listener: the same name, if every version of Kubernetes allows
// that. From a longer name, or one with dots or with a digit at the beginning, it is derived, and ends with a hash of
// the whole name. A Service must keep its name at an upgrade, so this must never change, nor depend on the version of
// the cluster. The admission policies of the operator know how a name is derived.
func Service(listener string) string {
	if len(validation.IsDNS1035Label(listener)) == 0 {
		return listener
	}
	derived := strings.ReplaceAll(listener, ".", "-")
	if derived != "" && derived[0] <= '9' {
		derived = "l-" + derived
	}
	sum := sha256.Sum256([]byte(listener))
	derived = derived[:min(len(derived), validation.DNS1035LabelMaxLength-len("-")-serviceHashDigits)]
	return derived + "-" + hex.EncodeToString(sum[:])[:serviceHashDigits]
}

func ServiceKey(listener metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: listener.GetNamespace(), Name: Service(listener.GetName())}
}

// ListenerLabel returns the value of labels for a Listener: its name or, if that is too long, the name of its Service.
func ListenerLabel(listener string) string {
	if len(listener) > validation.LabelValueMaxLength {
		return Service(listener)
	}
	return listener
}

// PodMountLabel returns the label key of Pods that mount the Listener with this uid. The value is its ListenerLabel.
func PodMountLabel(listenerUID types.UID) string {
	return PodMountLabelPrefix + strings.ReplaceAll(string(listenerUID), "-", "")
}

// The kinds that only some clusters serve. Package platform finds out whether the cluster serves them.
var (
	// KindPodCertificateRequest is how the kubelet requests certificates for Pods (KEP-4317).
	// KindClusterTrustBundle is how Pods get certificates to trust (KEP-3257). Kubernetes 1.37 serves both.
	KindPodCertificateRequest = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1",
		Kind: "PodCertificateRequest"}
	KindClusterTrustBundle = schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1",
		Kind: "ClusterTrustBundle"}

	// KindAPIServer has the TLS security profile of an OpenShift cluster. Only OpenShift serves these kinds.
	KindAPIServer         = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "APIServer"}
	KindClusterVersion    = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}
	KindConsoleQuickStart = schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1",
		Kind: "ConsoleQuickStart"}
	KindConsoleYAMLSample = schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1",
		Kind: "ConsoleYAMLSample"}
	KindSecurityContextConstraints = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1",
		Kind: "SecurityContextConstraints"}

	// KindDNSEndpoint is how external-dns learns of records.
	KindDNSEndpoint = schema.GroupVersionKind{Group: "externaldns.k8s.io", Version: "v1alpha1", Kind: "DNSEndpoint"}

	KindCertificate    = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}
	KindPrometheusRule = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}
	KindServiceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	// KindOperatorCondition is how the Operator Lifecycle Manager learns of an operator's conditions. It creates one
	// object for each version that it installs, and permits the operator to read and patch it.
	KindOperatorCondition = schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2",
		Kind: "OperatorCondition"}
)
