package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListenerOperatorName is the name of the only ListenerOperator that a cluster may have.
const ListenerOperatorName = "cluster"

// FinalizerNodeAgent is set on the ListenerOperator while something is installed. With it, a deletion removes the
// installed objects in order, and not before the last listener volume is out of use.
const FinalizerNodeAgent = "listener-operator.dev/node-agent"

// DefaultClusterDomain is the default of spec.clusterDomain.
const DefaultClusterDomain = "cluster.local"

// Condition types of a ListenerOperator, with the meaning that OpenShift gives them.
const (
	// ConditionAvailable is true when volumes can be provisioned and mounted on the nodes that have an agent.
	ConditionAvailable = "Available"
	// ConditionProgressing is true while the installed objects or the node agents differ from the desired state.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true when there is a problem that the operator cannot resolve by itself.
	ConditionDegraded = "Degraded"
	// ConditionUpgradeable is false while the operator should not be upgraded. The Operator Lifecycle Manager delays
	// upgrades until it is true.
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
	// ReasonOtherConfinement is the reason while policies that confine the operator differ from its version's.
	ReasonOtherConfinement = "OtherConfinement"
	// ReasonOtherClusterDomain is the reason while only spec.clusterDomain may be wrong.
	ReasonOtherClusterDomain = "OtherClusterDomain"
	// ReasonRepaired is the reason of an event, for an object that another client has changed.
	ReasonRepaired = "Repaired"

	// ReasonCertificateAuthorityDamaged is the reason of an event while the Secret with the certificate authorities
	// cannot be read, so that no certificates are issued.
	ReasonCertificateAuthorityDamaged = "CertificateAuthorityDamaged"

	// ReasonSlowRequest is the reason of an event on a namespace, one of whose objects has occupied a controller for
	// long.
	ReasonSlowRequest = "SlowRequest"

	// ReasonOtherOperatorRunning is the reason while Stackable's listener operator runs.
	ReasonOtherOperatorRunning = "OtherOperatorRunning"
)

// ManagementState states whether the operator manages the objects that it installs.
//
// +kubebuilder:validation:Enum=Managed;Unmanaged;Removed
type ManagementState string

const (
	// Managed keeps the installed objects in the desired state.
	Managed ManagementState = "Managed"
	// Unmanaged neither changes nor repairs the installed objects, until the ListenerOperator is deleted.
	Unmanaged ManagementState = "Unmanaged"
	// Removed deletes the installed objects, once no listener volume is in use.
	Removed ManagementState = "Removed"
)

// Preset is a set of ListenerClasses that the operator creates if they do not exist, and never overwrites.
//
// +kubebuilder:validation:Enum=ephemeral-nodes;stable-nodes;none
type Preset string

const (
	// PresetEphemeralNodes is for clusters whose nodes are replaced often: external-stable uses a load balancer.
	PresetEphemeralNodes Preset = "ephemeral-nodes"
	// PresetStableNodes is for clusters with long-lived nodes: external-stable uses pinned node ports.
	PresetStableNodes Preset = "stable-nodes"
	// PresetNone is the empty set.
	PresetNone Preset = "none"
)

// Placement is the default for the scheduling constraints of node agents.
//
// +kubebuilder:validation:Enum=Everywhere;LikeOperator
type Placement string

const (
	// PlacementEverywhere runs agents on all nodes, whatever their taints.
	PlacementEverywhere Placement = "Everywhere"
	// PlacementLikeOperator runs agents on the nodes that the operator's own Pods may run on.
	PlacementLikeOperator Placement = "LikeOperator"
)

// Injection states whether Pods get a listener volume by an annotation.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type Injection string

const (
	// InjectionEnabled is for annotated Pods in namespaces that opt in.
	InjectionEnabled Injection = "Enabled"
	// InjectionDisabled leaves all Pods as they are.
	InjectionDisabled Injection = "Disabled"
)

// NodeAgentSpec configures the DaemonSet listener-node-agent.
type NodeAgentSpec struct {
	// placement is the default for nodeSelector, tolerations and affinity where they are not set. Everywhere: all
	// nodes, whatever their taints. LikeOperator: the node selector, tolerations and node affinity of the operator's
	// Deployment, which the Operator Lifecycle Manager takes from its Subscription. Pods with listener volumes then
	// start on these nodes only. While a change would remove agents from nodes on which Pods with listener volumes run,
	// no agent moves, and the condition Degraded lists these Pods. Defaults to Everywhere.
	// +optional
	// +kubebuilder:default=Everywhere
	Placement Placement `json:"placement,omitempty"`

	// nodeSelector selects the Linux nodes that agents run on. Defaults to all nodes, or as placement determines.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are the tolerations of the agents' Pods. Defaults to tolerating all taints, or as placement
	// determines: a Pod with a listener volume can start only on a node with an agent.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity is the affinity of the agents' Pods. Defaults to none, or as placement determines.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// resources are the compute resources of the agent's container. Defaults to requests and a memory limit that the
	// operator chooses. Without a memory limit, an agent may use as much as its node has.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// priorityClassName is the priority class of the agents' Pods. Defaults to system-node-critical.
	// +optional
	// +kubebuilder:default=system-node-critical
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// kubeletDir is the root directory of the kubelet on the nodes, the value of its flag --root-dir. Defaults to
	// /var/lib/kubelet.
	// +optional
	// +kubebuilder:default=/var/lib/kubelet
	// +kubebuilder:validation:Pattern=`^/([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('/..') && !self.contains('/./')",message="must be a clean absolute path"
	KubeletDir string `json:"kubeletDir,omitempty"`

	// preventPodSchedulingIfMissing states whether the scheduler keeps Pods with listener volumes from nodes on which
	// no agent is registered with the kubelet, such as a node that has just joined. It has no effect before Kubernetes
	// 1.37. Set it to false if an autoscaler adds no node for such Pods, because it does not know that a new node gets
	// an agent. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	PreventPodSchedulingIfMissing *bool `json:"preventPodSchedulingIfMissing,omitempty"`

	// logLevel is the verbosity of the agent's log: info, or debug for a line per call. Defaults to info.
	// +optional
	// +kubebuilder:default=info
	// +kubebuilder:validation:Enum=info;debug
	LogLevel string `json:"logLevel,omitempty"`
}

// ListenerOperatorSpec is the configuration of the operator.
type ListenerOperatorSpec struct {
	// managementState states whether the operator manages the objects that it installs. Managed: it keeps them in the
	// desired state. Unmanaged: it does not change them. Removed: it deletes them, but not while listener volumes are
	// in use, which the condition Degraded then reports. Deleting the ListenerOperator deletes them in the same way,
	// whatever the management state, and needs a running operator: uninstall the operator last. Defaults to Managed.
	// +optional
	// +kubebuilder:default=Managed
	ManagementState ManagementState `json:"managementState,omitempty"`

	// preset is the set of ListenerClasses that the operator creates if they do not exist: ephemeral-nodes,
	// stable-nodes or none. Defaults to ephemeral-nodes.
	// +optional
	// +kubebuilder:default=ephemeral-nodes
	Preset Preset `json:"preset,omitempty"`

	// clusterDomain is the DNS domain of the cluster, which the host names of ClusterIP classes end with. The default,
	// cluster.local, stands for the domain that the resolver of the operator's Pod has, if it has one. The status
	// states which domain is used.
	// +optional
	// +kubebuilder:default=cluster.local
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// nodeAgent configures the component that runs on each node.
	// +optional
	// +kubebuilder:default={}
	NodeAgent NodeAgentSpec `json:"nodeAgent,omitzero"`

	// injection states whether new Pods with the annotation listener-operator.dev/inject get a listener volume, in
	// namespaces with the label listener-operator.dev/injection=enabled. It has no effect before an administrator has
	// applied the admission policy listener-operator-injection of the release. Defaults to Disabled.
	// +optional
	// +kubebuilder:default=Disabled
	Injection Injection `json:"injection,omitempty"`

	// certificateAuthorities states how the certificate authorities are replaced that issue the certificates for
	// addresses of Pods. There is one for each namespace.
	// +optional
	CertificateAuthorities CertificateAuthoritiesSpec `json:"certificateAuthorities,omitzero"`
}

// CertificateAuthoritiesSpec states how certificate authorities are replaced. Each is valid for two years, and replaced
// after one.
type CertificateAuthoritiesSpec struct {
	// notBefore replaces all authorities that were created before this time. To replace them now, set it to the
	// current time. Defaults to none.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// overlap is how long clients have to trust a new authority before it issues certificates. The previous one is
	// trusted for another day or, if overlap is shorter, for as long as that, but at least an hour. After a leak, set
	// it to ten minutes, which is the least. At most half a year. Defaults to 720h, which are 30 days.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m') && duration(self) <= duration('4380h')",message="must be from 10m to 4380h"
	Overlap metav1.Duration `json:"overlap,omitzero"`
}

// NodeAgentStatus reports on the node agents.
type NodeAgentStatus struct {
	// desired is the number of nodes that should run an agent.
	Desired int32 `json:"desired"`
	// ready is the number of nodes whose agent is ready.
	Ready int32 `json:"ready"`
	// updated is the number of nodes whose agent has the desired version.
	Updated int32 `json:"updated"`
	// version is the version of the last completed rollout of the agents. It is empty until the first one is complete.
	// +optional
	Version string `json:"version,omitempty"`
}

// ListenerOperatorStatus reports on the installed objects.
type ListenerOperatorStatus struct {
	// observedGeneration is the generation of the ListenerOperator that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// version is the version of the operator.
	// +optional
	Version string `json:"version,omitempty"`
	// clusterDomain is the DNS domain that the host names of ClusterIP classes end with.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// nodeAgent reports on the node agents.
	// +optional
	NodeAgent NodeAgentStatus `json:"nodeAgent,omitzero"`
	// conditions are the current conditions: Available, Progressing, Degraded and Upgradeable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ListenerOperator configures the operator and reports its status. The only one is named "cluster"; the operator
// creates it with defaults when it starts for the first time.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=listeneroperators,singular=listeneroperator,shortName=lsnop,categories=listener-operator
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

// ClusterDomain returns the DNS domain of the cluster: spec.clusterDomain or, if that is empty or the default, the
// resolver's domain, which is empty if it is unknown.
func (o *ListenerOperator) ClusterDomain(resolver string) string {
	if o.Spec.ClusterDomain != "" && o.Spec.ClusterDomain != DefaultClusterDomain {
		return o.Spec.ClusterDomain
	}
	return cmp.Or(resolver, DefaultClusterDomain)
}

// ListenerOperatorList is a list of ListenerOperators.
//
// +kubebuilder:object:root=true
type ListenerOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ListenerOperator `json:"items"`
}
