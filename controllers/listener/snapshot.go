package listener

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

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

// snapshot is what exists before a reconciliation writes anything. It does not change. Its objects belong to the cache.
type snapshot struct {
	listener *listenersv1alpha1.Listener
	// class is nil if the Listener names no class, or one that does not exist or that it may not use.
	class *listenersv1alpha1.ListenerClass
	// notAllowed is why the Listener may not use the class that it names, or nil.
	notAllowed *exposure.Refusal
	// kept states that the Listener keeps its class although the class no longer allows the namespace.
	kept bool
	// backend is the backend of the class, or nil. others are all others.
	backend *exposure.Backend
	others  []*exposure.Backend
	// served has the version of each of the backends' kinds that the cluster serves, "" if none.
	served map[schema.GroupVersionKind]string

	present
	// earlier states that a Service of an earlier Listener of this name exists, which Kubernetes will delete.
	earlier bool
	// foreign is any other Service with the Listener's name that the Listener does not control, or nil.
	foreign *corev1.Service
	// referenced are the objects that a backend reads, by its name.
	referenced map[string][]exposure.Object
	// namespaceLabels are nil unless referenced objects may select them.
	namespaceLabels map[string]string
	// pods are the names of the Pods that mount the claim that the Listener was created for, sorted.
	pods []string
	// scheduling states that one of them waits for a node.
	scheduling bool
	// finished states that the Listener belongs to an ephemeral claim whose Pod has finished, and will not run again.
	finished bool
	// awaiting states that the Listener is kept for the next Pod of a name: neither its claim nor a Pod of it exists.
	awaiting      bool
	clusterDomain string
	// sharedPorts are the port numbers that the Listener has at the address of a shared load balancer, by port name.
	sharedPorts map[string]int32
	// remembered are the numbers in the annotation of the Listener.
	remembered numbers

	// foreignPolicy has the name of the Listener's NetworkPolicy, but another owner.
	foreignPolicy *networkingv1.NetworkPolicy
	// otherPolicies is what the other NetworkPolicies of the namespace say about mounting, the Pods of the Listener.
	// Both are empty unless clients are restricted.
	otherPolicies exposure.OtherPolicies
	mounting      []*corev1.Pod
}

// present is what exposes a Listener at some moment.
type present struct {
	// service is the Service that the Listener controls, or nil.
	service *corev1.Service
	// objects are those of each backend by its name, and by their own; a backend has none while they are unknown.
	objects map[string]map[objectKey]exposure.Object
	// policy is the NetworkPolicy that the Listener controls, or nil.
	policy *networkingv1.NetworkPolicy
}

// objectKey identifies an object of a backend's kind.
type objectKey struct {
	kind schema.GroupKind
	types.NamespacedName
}

func keyOf(desired exposure.Desired) objectKey {
	return objectKey{desired.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(desired)}
}

// forBackend returns the input of a backend, with what exposes the Listener now, and the Service that has to.
func (s *snapshot) forBackend(b *exposure.Backend, now present, desired *corev1ac.ServiceApplyConfiguration) *exposure.Listener {
	l := &exposure.Listener{
		Listener: s.listener, Remembered: s.remembered.Addresses, Class: s.class, Desired: desired, Service: now.service, Pods: s.pods, ClusterDomain: s.clusterDomain,
		Referenced: s.referenced[b.Name], NamespaceLabels: s.namespaceLabels,
		Objects: slices.Collect(maps.Values(now.objects[b.Name])),
	}
	slices.SortFunc(l.Objects, func(a, b exposure.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return l
}

// serviceTerminating reports whether the Service of the Listener, or of an earlier one of this name, is being deleted.
func (s *snapshot) serviceTerminating() bool {
	return s.earlier || s.service != nil && !s.service.DeletionTimestamp.IsZero()
}

func (s *snapshot) key() client.ObjectKey { return client.ObjectKeyFromObject(s.listener) }

func (s *snapshot) serviceKey() client.ObjectKey { return names.ServiceKey(s.listener) }

// condition returns a condition of a Listener, or an empty one.
func condition(listener *listenersv1alpha1.Listener, conditionType string) metav1.Condition {
	status := ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{})
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, conditionType), metav1.Condition{})
}

// publishedOf returns the addresses of a type that lead to the Pods of a Listener by its status.
func publishedOf(listener *listenersv1alpha1.Listener, addressType listenersv1alpha1.AddressType) (published []string) {
	for _, a := range listener.Status.TargetAddresses() {
		if a.AddressType == addressType {
			published = append(published, a.Address)
		}
	}
	return published
}

// controls reports whether an object belongs to the Listener: the Listener controls it, whatever API version its owner
// reference names, or it comes from a backup. One of another namespace never does, although it may name the UID.
func controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.UID == listener.UID && o.GetNamespace() == listener.Namespace || isRestored(listener, o)
}

// isRestored reports whether an object was generated for a Listener of this name, and comes from a backup.
func isRestored(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return exposure.RestoredFor(o) == names.ListenerLabel(listener.Name) && o.GetNamespace() == listener.Namespace
}

// controlledByNamesake reports whether a Listener of the same name, but not this one, controls the object.
func controlledByNamesake(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := exposure.ControllingListener(o)
	return owner != nil && owner.Name == listener.Name && owner.UID != listener.UID
}

// beingDeleted reports whether an object of the Listener, or of an earlier Listener of this name, is being deleted.
func beingDeleted(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return controlledByNamesake(listener, o) || controls(listener, o) && !o.GetDeletionTimestamp().IsZero()
}

// listenerOf returns the key of the Listener that an object belongs to by exposure.ListenerOf, if there is one.
func listenerOf(o metav1.Object) (listener types.NamespacedName, ok bool) {
	name := exposure.ListenerOf(o)
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// describeController describes the controller of an object in a message.
func describeController(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "has no controller"
	}
	return fmt.Sprintf("is controlled by %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
}

// written is the result of writing the objects of a plan.
type written struct {
	// present is what exposes the Listener now.
	present
	// refusal is the plan's, or a rejection by the API server, or nil.
	refusal *exposure.Refusal
	// err is what is tried again. It may come with a refusal, if the API server may later accept what it rejects now,
	// for example a node port that is in use. Without one, the API server has not decided.
	err error
	// applied states that the backend's objects are as planned. terminating is one that is being deleted, or empty.
	applied     bool
	terminating string
	// sharedPorts are the numbers that the Listener has at a shared address, by port name.
	sharedPorts map[string]int32
	// rejectedNodePorts and releasing are those of appliedService.
	rejectedNodePorts map[string]string
	releasing         time.Duration
}
