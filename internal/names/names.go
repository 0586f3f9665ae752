// Package names holds the names, labels and annotations that the operator's parts and its consumers agree on. Those
// in the contract (docs/contract.md) are fixed for ever; none may be derived, configured or spelled anywhere else.
package names

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The names that consumers rely on (contract 1.2).
const (
	// Driver is the name of the CSI driver, of the provisioner and of the StorageClass.
	Driver = "listeners.stackable.tech"

	// AnnotationListenerClass on a claim asks for a Listener of its own, of this class.
	AnnotationListenerClass = "listeners.stackable.tech/listener-class"
	// AnnotationListenerName on a claim asks for the Listener of this name in the claim's namespace.
	AnnotationListenerName = "listeners.stackable.tech/listener-name"

	// LabelListenerNamespace on a PersistentVolume is the namespace of its Listener.
	LabelListenerNamespace = "listeners.stackable.tech/listener-namespace"
	// LabelListenerName on a PersistentVolume is the name of its Listener.
	LabelListenerName = "listeners.stackable.tech/listener-name"

	// TopologyKey is the node label, and the segment of the CSI topology, whose value is the name of the node.
	TopologyKey = "listeners.stackable.tech/hostname"

	// ServiceAppName is the value of app.kubernetes.io/name on a Listener's Service.
	ServiceAppName = "listener"
	// ServiceManagedBy is the value of app.kubernetes.io/managed-by on a Listener's Service.
	ServiceManagedBy = "listeners.stackable.tech_listener"

	// EventReporter is the reporting controller of events.
	EventReporter = "listener.listeners.stackable.tech"

	// PodMountLabelPrefix begins the label of Pods that mount a Listener. Singular: its domain is not that of the API
	// group.
	PodMountLabelPrefix = "listener.stackable.tech/mnt."
)

// Field managers (contract 1.2). They are those of the peer, so that taking its objects over is nothing special.
const (
	// FieldManagerVolume applies Listeners of class-based claims, and labels of PersistentVolumes.
	FieldManagerVolume = "listeners.stackable.tech/volume"
	// FieldManagerService applies Services of Listeners.
	FieldManagerService = "listeners.stackable.tech/listeners.stackable.tech_listener"
	// FieldManagerListenerStatus applies the status of Listeners.
	FieldManagerListenerStatus = "listeners.stackable.tech/listener"
	// FieldManagerDefault creates, and merge-patches Pods and PodListeners.
	FieldManagerDefault = "listeners.stackable.tech"
	// FieldManagerOperator applies what the operator installs: the node agent, the StorageClass, presets.
	FieldManagerOperator = "listener-operator"
)

// Names of our own, which no consumer relies on.
const (
	// MetricsService is the Service of the operator's metrics, and so their job in Prometheus. The Secret of its
	// certificate has the same name.
	MetricsService = "listener-operator-metrics"

	// AnnotationNode on a PersistentVolume that is not pinned is the node that it was last mounted on. The addresses of
	// a Listener whose Pod is away for a moment come from it.
	AnnotationNode = "listeners.stackable.tech/node"

	// Operator is the name of the operator's Deployment, ServiceAccount and image.
	Operator = "listener-operator"
	// NodeAgent is the name of the node agent's DaemonSet and ServiceAccount.
	NodeAgent = "listener-node-agent"
)

// Attributes that the kubelet and the API server add to what a claim's annotations said in a CSI volume context.
const (
	// ContextPodName is the name of the Pod that mounts (CSIDriver podInfoOnMount).
	ContextPodName = "csi.storage.k8s.io/pod.name"
	// ContextPodNamespace is the namespace of the Pod that mounts.
	ContextPodNamespace = "csi.storage.k8s.io/pod.namespace"
	// ContextPodUID is the uid of the Pod that mounts.
	ContextPodUID = "csi.storage.k8s.io/pod.uid"
	// ContextEphemeral is "true" for an inline volume.
	ContextEphemeral = "csi.storage.k8s.io/ephemeral"
)

// PodMountLabel is the key of the label of Pods that mount the Listener with this uid; its value is the Listener's
// name.
func PodMountLabel(listenerUID types.UID) string {
	return PodMountLabelPrefix + strings.ReplaceAll(string(listenerUID), "-", "")
}
