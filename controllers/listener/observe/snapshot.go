// Package observe reads what exists for a Listener: the snapshot that all decisions of a reconciliation follow from. It
// writes nothing and decides nothing.
package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Snapshot is what exists before a reconciliation writes anything. It does not change. Its objects belong to the cache.
type Snapshot struct {
	Listener *listenersv1alpha1.Listener
	// Class is nil if the Listener names no class, or one that does not exist or that it may not use.
	Class *listenersv1alpha1.ListenerClass
	// NotAllowed is why the Listener may not use the class that it names, or nil.
	NotAllowed *exposure.Refusal
	// KeepsClass states that the Listener keeps its class although the class no longer allows the namespace.
	KeepsClass bool
	Backend    *exposure.Backend
	Others     []*exposure.Backend
	// Served has the version of each of the backends' kinds that the cluster serves, "" if none.
	Served map[schema.GroupVersionKind]string

	Objects Objects
	// earlier states that a Service of an earlier Listener of this name exists, which Kubernetes will delete.
	earlier bool
	// Foreign is any other Service with the Listener's name that the Listener does not control, or nil.
	Foreign *corev1.Service
	// referenced are the objects that a backend reads, by its name.
	referenced map[string][]exposure.Object
	// namespaceLabels are nil unless referenced objects may select them.
	namespaceLabels map[string]string
	// pods are the names of the Pods that mount the claim that the Listener was created for, sorted.
	pods []string
	// Finished states that the Listener belongs to an ephemeral claim whose Pod has finished, and will not run again.
	Finished bool
	// Awaiting states that the Listener is kept for the next Pod of a name: neither its claim nor a Pod of it exists.
	Awaiting      bool
	clusterDomain string
	// SharedPorts are the port numbers that the Listener has at the address of a shared load balancer, by port name.
	SharedPorts map[string]int32
	Remembered  Numbers

	// ForeignPolicy has the name of the Listener's NetworkPolicy, but another owner.
	ForeignPolicy *networkingv1.NetworkPolicy
	// OtherPolicies is what the other NetworkPolicies of the namespace say about mounting, the Pods of the Listener.
	// Both are empty unless clients are restricted.
	OtherPolicies exposure.OtherPolicies
	Mounting      []*corev1.Pod
}

// Objects are what exposes a Listener.
type Objects struct {
	Service *corev1.Service
	// OfBackend are those of each backend by its name, and by their own; a backend has none while they are unknown.
	OfBackend map[string]map[ObjectKey]exposure.Object
	Policy    *networkingv1.NetworkPolicy
}

// ObjectKey identifies an object of a backend.
type ObjectKey struct {
	Kind schema.GroupKind
	types.NamespacedName
}

// KeyOf returns the key of an object that has to exist.
func KeyOf(desired exposure.Desired) ObjectKey {
	return ObjectKey{desired.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(desired)}
}

// ForBackend returns the input of a backend, with what exposes the Listener now, and the Service that has to.
func (s *Snapshot) ForBackend(b *exposure.Backend, now Objects,
	desired *corev1ac.ServiceApplyConfiguration) *exposure.Listener {
	l := &exposure.Listener{
		Listener: s.Listener, Remembered: s.Remembered.Addresses, Class: s.Class, Desired: desired,
		Service: now.Service, Pods: s.pods, ClusterDomain: s.clusterDomain,
		Referenced: s.referenced[b.Name], NamespaceLabels: s.namespaceLabels,
		Objects: slices.Collect(maps.Values(now.OfBackend[b.Name])),
	}
	slices.SortFunc(l.Objects, func(a, b exposure.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return l
}

// ServiceTerminating reports whether the Service of the Listener, or of an earlier one of this name, is being deleted.
func (s *Snapshot) ServiceTerminating() bool {
	return s.earlier || s.Objects.Service != nil && !s.Objects.Service.DeletionTimestamp.IsZero()
}

// Key returns the key of the Listener.
func (s *Snapshot) Key() client.ObjectKey { return client.ObjectKeyFromObject(s.Listener) }

// ServiceKey returns the key of the Service of the Listener, which may not exist.
func (s *Snapshot) ServiceKey() client.ObjectKey { return names.ServiceKey(s.Listener) }

// Condition returns a condition of a Listener, or an empty one.
func Condition(listener *listenersv1alpha1.Listener, conditionType string) metav1.Condition {
	status := ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, conditionType), metav1.Condition{})
}

// PublishedOf returns the addresses of a type that lead to the Pods of a Listener by its status.
func PublishedOf(listener *listenersv1alpha1.Listener, addressType listenersv1alpha1.AddressType) (published []string) {
	for _, a := range listener.Status.TargetAddresses() {
		if a.AddressType == addressType {
			published = append(published, a.Address)
		}
	}
	return published
}

// Controls reports whether an object belongs to the Listener: the Listener controls it, whatever API version its owner
// reference names, or it comes from a backup. One of another namespace never does, although it may name the UID.
func Controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.UID == listener.UID && o.GetNamespace() == listener.Namespace ||
		IsRestored(listener, o)
}

// IsRestored reports whether an object was generated for a Listener of this name, and comes from a backup.
func IsRestored(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return exposure.RestoredFor(o) == names.ListenerLabel(listener.Name) && o.GetNamespace() == listener.Namespace
}

// controlledByNamesake reports whether a Listener of the same name, but not this one, controls the object.
func controlledByNamesake(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.Name == listener.Name && owner.UID != listener.UID
}

// BeingDeleted reports whether an object of the Listener, or of an earlier Listener of this name, is being deleted.
func BeingDeleted(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return controlledByNamesake(listener, o) || Controls(listener, o) && !o.GetDeletionTimestamp().IsZero()
}

// ListenerOf returns the key of the Listener that an object belongs to by exposure.ListenerOf, if there is one.
func ListenerOf(o metav1.Object) (listener types.NamespacedName, ok bool) {
	name := exposure.ListenerOf(o)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// DescribeController says for a message what controls an object.
func DescribeController(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "has no controller"
	}
	return fmt.Sprintf("is controlled by %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
}
