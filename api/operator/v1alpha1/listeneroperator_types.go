package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListenerOperatorName is the name of the only ListenerOperator that a cluster may have.
const ListenerOperatorName = "cluster"

// FinalizerNodeAgent is on the ListenerOperator as long as something is installed. It lets a deletion take things away
// in order, and no sooner than volumes are out of use.
const FinalizerNodeAgent = "listener-operator.dev/node-agent"

// Condition types of a ListenerOperator, with the meaning that OpenShift gives them.
const (
	// ConditionAvailable is true when volumes can be provisioned and mounted on the nodes that have an agent.
	ConditionAvailable = "Available"
	// ConditionProgressing is true while the installed objects or the node agents are on their way to the wanted state.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true when something is wrong that the operator cannot mend by itself.
	ConditionDegraded = "Degraded"
	// ConditionUpgradeable is false while the operator had better not be replaced by another version. The Operator
	// Lifecycle Manager waits for it.
	ConditionUpgradeable = "Upgradeable"
)

// Reasons of the conditions.
const (
	ReasonAsExpected       = "AsExpected"
	ReasonAgentsRolledOut  = "AgentsRolledOut"
	ReasonAgentsRollout    = "AgentsRollingOut"
	ReasonAgentsNotReady   = "AgentsNotReady"
	ReasonAgentsNotCreated = "AgentsNotCreated"
	ReasonApplyFailed      = "ApplyFailed"
	ReasonUnmanaged        = "Unmanaged"
	ReasonRemoved          = "Removed"
	ReasonVolumesInUse     = "VolumesInUse"
	ReasonAgentsInUse      = "AgentsInUse"
	ReasonAgentsMoving     = "AgentsMoving"
	ReasonForeignObject    = "ForeignObject"
	ReasonRemovalFailed    = "RemovalFailed"
)

// ManagementState says whether the operator looks after what it installed.
//
// +kubebuilder:validation:Enum=Managed;Unmanaged;Removed
type ManagementState string

const (
	// Managed keeps the installed objects as they should be.
	Managed ManagementState = "Managed"
	// Unmanaged leaves the installed objects alone, until the configuration is deleted.
	Unmanaged ManagementState = "Unmanaged"
	// Removed takes the installed objects away, once no volume is in use.
	Removed ManagementState = "Removed"
)

// Preset names a set of ListenerClasses that are created if they are missing, and never overwritten.
//
// +kubebuilder:validation:Enum=ephemeral-nodes;stable-nodes;none
type Preset string

const (
	// PresetEphemeralNodes is for clusters whose nodes come and go: external-stable is a load balancer.
	PresetEphemeralNodes Preset = "ephemeral-nodes"
	// PresetStableNodes is for clusters whose nodes stay: external-stable is a pinned node port.
	PresetStableNodes Preset = "stable-nodes"
	// PresetNone creates no class.
	PresetNone Preset = "none"
)

// Placement says where node agents run, as far as nothing else does.
//
// +kubebuilder:validation:Enum=Everywhere;LikeOperator
type Placement string

const (
	// PlacementEverywhere runs agents on all nodes, whatever their taints.
	PlacementEverywhere Placement = "Everywhere"
	// PlacementLikeOperator runs agents where the operator's own Pods may run.
	PlacementLikeOperator Placement = "LikeOperator"
)

// NodeAgentSpec configures the DaemonSet listener-node-agent.
type NodeAgentSpec struct {
	// Where agents run, as far as nodeSelector, tolerations and affinity do not say. Everywhere: on all nodes, whatever
	// their taints. LikeOperator: by the node selector, tolerations and node affinity of the operator's Deployment,
	// which are those of its Subscription in the Operator Lifecycle Manager. Pods with listener volumes then start on
	// these nodes only. While Pods with listener volumes run on nodes that a change of this would take agents from, all
	// agents stay where they are, and the condition Degraded names these Pods.
	// +optional
	// +kubebuilder:default=Everywhere
	Placement Placement `json:"placement,omitempty"`

	// The nodes to run on; empty means all.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// The taints to tolerate; empty means all, because a Pod with a listener volume can only start where an agent runs.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Further constraints on the nodes to run on.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Compute resources of the agent's container; empty means the built-in requests.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// The priority class of the agent's Pods.
	// +optional
	// +kubebuilder:default=system-node-critical
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// The root directory of the kubelet on the nodes, the value of its --root-dir.
	// +optional
	// +kubebuilder:default=/var/lib/kubelet
	// +kubebuilder:validation:Pattern=`^/([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('/..') && !self.contains('/./')",message="must be a clean absolute path"
	KubeletDir string `json:"kubeletDir,omitempty"`

	// How much the agent logs: info, or debug for a line per call.
	// +optional
	// +kubebuilder:default=info
	// +kubebuilder:validation:Enum=info;debug
	LogLevel string `json:"logLevel,omitempty"`
}

// ListenerOperatorSpec is the operator's configuration.
type ListenerOperatorSpec struct {
	// Whether the operator looks after what it installed. Managed: it does. Unmanaged: it leaves everything as it is.
	// Removed: it takes everything away, but not while listener volumes are in use, which the condition Degraded then
	// tells. Deleting this object takes everything away in the same way, whatever is set here, and is finished only by
	// a running operator: uninstall the operator last.
	// +optional
	// +kubebuilder:default=Managed
	ManagementState ManagementState `json:"managementState,omitempty"`

	// Which ListenerClasses to create if they are missing.
	// +optional
	// +kubebuilder:default=ephemeral-nodes
	Preset Preset `json:"preset,omitempty"`

	// The DNS domain of the cluster, for the host names of ClusterIP classes.
	// +optional
	// +kubebuilder:default=cluster.local
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// The component that runs on each node.
	// +optional
	// +kubebuilder:default={}
	NodeAgent NodeAgentSpec `json:"nodeAgent,omitzero"`
}

// NodeAgentStatus counts the node agents.
type NodeAgentStatus struct {
	// The number of nodes that should run an agent.
	Desired int32 `json:"desired"`
	// The number of nodes whose agent is ready.
	Ready int32 `json:"ready"`
	// The number of nodes whose agent is of the wanted version.
	Updated int32 `json:"updated"`
	// The version that all agents were last rolled out with; empty until they were for the first time.
	// +optional
	Version string `json:"version,omitempty"`
}

// ListenerOperatorStatus reports what the operator installed.
type ListenerOperatorStatus struct {
	// The generation of the configuration that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The version of the operator.
	// +optional
	Version string `json:"version,omitempty"`
	// The node agents.
	// +optional
	NodeAgent NodeAgentStatus `json:"nodeAgent,omitzero"`
	// Available, Progressing, Degraded and Upgradeable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ListenerOperator configures the operator and reports on it. There is one, named "cluster", which the operator makes
// with its defaults when it first starts.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=listeneroperators,singular=listeneroperator
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the only ListenerOperator is named 'cluster'"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Agents",type=integer,JSONPath=`.status.nodeAgent.desired`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.nodeAgent.ready`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ListenerOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +kubebuilder:default={}
	Spec ListenerOperatorSpec `json:"spec,omitzero"`
	// +optional
	Status ListenerOperatorStatus `json:"status,omitzero"`
}

// ListenerOperatorList is a list of ListenerOperators.
//
// +kubebuilder:object:root=true
type ListenerOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ListenerOperator `json:"items"`
}
