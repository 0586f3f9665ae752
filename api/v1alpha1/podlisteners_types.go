package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ListenerScope says where an address leads to.
//
// +kubebuilder:validation:Enum=Node;Cluster
type ListenerScope string

const (
	// ListenerScopeNode is an address that only leads to Pods on the Pod's own node.
	ListenerScopeNode ListenerScope = "Node"
	// ListenerScopeCluster is an address that leads to Pods on any node.
	ListenerScopeCluster ListenerScope = "Cluster"
)

// PodListener is what one listener volume of a Pod leads to.
type PodListener struct {
	// Node if the addresses only lead to Pods on this Pod's node, otherwise Cluster.
	Scope ListenerScope `json:"scope"`

	// The addresses that lead to this Pod, the preferred one first: the same as in the mounted files. Null means that
	// they are not known yet.
	// +optional
	// +nullable
	// +listType=atomic
	IngressAddresses []IngressAddress `json:"ingressAddresses,omitempty"`

	// The PersistentVolume behind the Pod's volume; the node agent finds its volume by it.
	// +optional
	PersistentVolumeName string `json:"persistentVolumeName,omitempty"`

	// The Listener, in the Pod's namespace, that the addresses are those of.
	// +optional
	ListenerName string `json:"listenerName,omitempty"`
}

// PodListenersSpec holds a Pod's own addresses.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeName) || (has(self.nodeName) && self.nodeName == oldSelf.nodeName)",message="nodeName is immutable"
type PodListenersSpec struct {
	// The addresses that lead to the Pod, by the name of the volume in the Pod (not of the claim, nor of the
	// PersistentVolume).
	Listeners map[string]PodListener `json:"listeners"`

	// The node that the Pod runs on. Immutable once set.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
}

// PodListeners tells the addresses that lead to one Pod. Its name is "pod-" and the Pod's uid. It is made by the
// operator while the Pod's volumes are mounted, and is not meant to be written by users.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podlisteners,singular=podlisteners,shortName=podlsn
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.metadata.ownerReferences[0].name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Listeners",type=string,JSONPath=`.spec.listeners.*.listenerName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodListeners struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec PodListenersSpec `json:"spec"`
}

// PodListenersList is a list of PodListeners.
//
// +kubebuilder:object:root=true
type PodListenersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []PodListeners `json:"items"`
}

// Trusted tells whether the content is the operator's. A node agent creates the object empty, as a hint that the Pod is
// being mounted, and has no right to update it; so whatever a stolen token of a node puts into an object never gets
// beyond its first generation.
func (p *PodListeners) Trusted() bool { return p.Generation > 1 }

// NewPodListeners returns the empty PodListeners of a Pod on a node.
func NewPodListeners(pod types.NamespacedName, podUID types.UID, node string) *PodListeners {
	return &PodListeners{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "PodListeners"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       pod.Namespace,
			Name:            PodListenersName(podUID),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: podUID}},
		},
		Spec: PodListenersSpec{NodeName: node, Listeners: map[string]PodListener{}},
	}
}

// podListenersPrefix and the uid of a Pod are the name of its PodListeners (contract 1.2).
const podListenersPrefix = "pod-"

// PodListenersName returns the name of the PodListeners of the Pod with this uid.
func PodListenersName(podUID types.UID) string { return podListenersPrefix + string(podUID) }

// PodUID returns the uid of the Pod that a PodListeners of this name is for, or "" if it is for none.
func PodUID(podListenersName string) types.UID {
	uid, ok := strings.CutPrefix(podListenersName, podListenersPrefix)
	if !ok {
		return ""
	}
	return types.UID(uid)
}
