package v1alpha1

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ListenerScope is the set of Pods that an address leads to.
//
// +kubebuilder:validation:Enum=Node;Cluster
type ListenerScope string

const (
	// ListenerScopeNode is the scope of an address that leads only to Pods on the node of the Pod.
	ListenerScopeNode ListenerScope = "Node"
	// ListenerScopeCluster is the scope of an address that leads to Pods on any node.
	ListenerScopeCluster ListenerScope = "Cluster"
)

// PodListener describes one listener volume of a Pod.
type PodListener struct {
	// scope is Node if the addresses lead only to Pods on the node of this Pod, and Cluster otherwise.
	Scope ListenerScope `json:"scope"`

	// ingressAddresses are the addresses at which clients reach this Pod, the preferred one first. They are the same as
	// in the mounted files. Null means that they are not known yet.
	// +optional
	// +nullable
	// +listType=atomic
	IngressAddresses []IngressAddress `json:"ingressAddresses,omitempty"`

	// persistentVolumeName is the name of the PersistentVolume of the Pod's volume, by which the node agent identifies
	// the volume. An inline volume has none.
	// +optional
	PersistentVolumeName string `json:"persistentVolumeName,omitempty"`

	// listenerName is the name of the Listener, in the namespace of the Pod, that the addresses belong to.
	// +optional
	ListenerName string `json:"listenerName,omitempty"`
}

// PodListenersSpec lists the addresses of one Pod.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeName) || (has(self.nodeName) && self.nodeName == oldSelf.nodeName)",message="nodeName is immutable"
type PodListenersSpec struct {
	// listeners are the addresses of the Pod, by the name of the volume in the Pod (not of the PersistentVolumeClaim or
	// the PersistentVolume).
	Listeners map[string]PodListener `json:"listeners"`

	// startAddresses are the first addresses that the Pod had, by the name of the volume: those that its programs have
	// read when they started. While they differ from ingressAddresses, programs that do not follow their files use
	// outdated addresses. A volume is absent while it has had no address.
	// +optional
	StartAddresses map[string][]IngressAddress `json:"startAddresses,omitempty"`

	// copies are the names of the volumes, sorted, with the claim of another Pod that the Pod is a copy of, so that no
	// requests lead to it.
	// +optional
	// +listType=set
	Copies []string `json:"copies,omitempty"`

	// restartOnChange are the names of the volumes whose changed addresses restart the Pod, because the class of the
	// Listener says so. A Pod whose addresses had changed before the class said so is not restarted for that change.
	// +optional
	// +listType=set
	RestartOnChange []string `json:"restartOnChange,omitempty"`

	// summary lists the volumes with their addresses in the form in which `kubectl get` prints them: the first address
	// of each volume with one of its ports, and how many other pairs of address and port there are, for example
	// "bootstrap=192.0.2.1:9092, broker=203.0.113.7:30092 +1". It is for people; programs read listeners.
	// +optional
	Summary string `json:"summary,omitempty"`

	// nodeName is the name of the node that the Pod runs on. Immutable once set.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
}

// Admitted reports whether a volume has had an address. From then on nothing refuses it, until the Pod ends.
func (s *PodListenersSpec) Admitted(volume string) bool {
	return len(s.StartAddresses[volume])+len(s.Listeners[volume].IngressAddresses) > 0
}

// Outdated returns the names of the volumes whose addresses have changed since the Pod started, sorted. Volumes without
// addresses are left out: their files keep the last ones.
func (s *PodListenersSpec) Outdated() []string {
	var outdated []string
	for volume, start := range s.StartAddresses {
		if now := s.Listeners[volume].IngressAddresses; len(start) > 0 && len(now) > 0 &&
			!equality.Semantic.DeepEqual(start, now) {
			outdated = append(outdated, volume)
		}
	}
	slices.Sort(outdated)
	return outdated
}

// NeedsRestart returns the outdated volumes that restart the Pod, sorted.
func (s *PodListenersSpec) NeedsRestart() []string {
	return slices.DeleteFunc(s.Outdated(), func(volume string) bool {
		return !slices.Contains(s.RestartOnChange, volume)
	})
}

// Limits of what a Pod has in its PodListeners. With them, the node agent needs little memory for all Pods of a node.
const (
	// MaxVolumes is the number of listener volumes.
	MaxVolumes = 16
	// MaxAddressBytes is the memory that all addresses need, as estimated: enough for three addresses with the 1,024
	// ports that a class can permit.
	MaxAddressBytes = 256 << 10
)

// Limit removes the volumes that exceed the limits, and returns their names. order has the names of all volumes, the
// ones that are kept first.
func (s *PodListenersSpec) Limit(order []string) []string {
	kept, total := 0, 0
	return slices.DeleteFunc(slices.Clone(order), func(volume string) bool {
		entry, ok := s.Listeners[volume]
		size := 0
		for i := range entry.IngressAddresses {
			size += 512 + len(entry.IngressAddresses[i].Address)
			for port := range entry.IngressAddresses[i].Ports {
				size += 64 + len(port)
			}
		}
		switch {
		case !ok: // it is no listener volume
		case kept < MaxVolumes && total+size <= MaxAddressBytes:
			kept, total = kept+1, total+size
		default:
			delete(s.Listeners, volume)
			return false
		}
		return true
	})
}

// PodListeners reports the addresses at which clients reach one Pod. Its name is "pod-" followed by the UID of the Pod.
// The operator creates it when the Pod is bound to a node, and an admission policy keeps others from writing it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podlisteners,singular=podlisteners,shortName=podlsn,categories=listener-operator
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.metadata.ownerReferences[0].name`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.summary`
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

// podListenersPrefix and the uid of a Pod are the name of its PodListeners (contract: PodListeners).
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
