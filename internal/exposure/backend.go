package exposure

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Backend exposes Listeners of some classes. All that is specific to a backend is in its package and in its field of
// the ListenerClass: the controller applies, watches and deletes its objects, and leaves objects of other owners alone,
// without knowing any backend.
type Backend interface {
	// Name returns the name of the backend, which is unique among the backends and never changes.
	Name() string
	// Exposes reports whether the backend exposes Listeners of the class.
	Exposes(class *listenersv1alpha1.ListenerClass) bool
	// PlainService reports whether clients connect to the Service itself, at the addresses that its type provides. For
	// any other backend the type of the Service does not matter.
	PlainService() bool
	// Kinds returns the kinds of the objects that the backend generates in addition to the Service, and of those that
	// it only reads.
	Kinds() []Kind
	// References returns the objects of others, of the kinds that the backend only reads, which the class or the
	// Objects refer to. Of the observed state, only Class and Objects are set.
	References(l *Listener) []Reference
	// Objects returns the desired objects. The error is a *Refusal if the author of the Listener or of the class has to
	// change something.
	Objects(l *Listener) ([]Desired, error)
	// Addresses returns the addresses that the observed objects provide.
	Addresses(l *Listener) Exposed
	// Scope returns which Pods each address of a Listener of the class leads to. Nodes and mounting Pods of a Listener
	// are observed only if it is that of a node.
	Scope(class *listenersv1alpha1.ListenerClass) listenersv1alpha1.ListenerScope
	// PodAddresses returns the addresses that lead to a Pod of the Listener, which is bound to the node, or a nil
	// pointer if they follow from the status of the Listener: its addresses or, with node ports, that of the node. Only
	// Class of the observed state is set.
	PodAddresses(l *Listener, pod *corev1.Pod, node *corev1.Node) *Exposed
}

// Reference identifies an object that a backend reads.
type Reference struct {
	Kind schema.GroupVersionKind
	types.NamespacedName
}

// Kind is a kind of object that a backend generates or reads. Not every cluster serves it, unless it is BuiltIn.
type Kind struct {
	schema.GroupVersionKind
	// OtherVersions are other versions of the kind, the preferred one first, which are used if the cluster does not
	// serve that of GroupVersionKind. They must have the same fields, as far as the backend uses them.
	OtherVersions []string
	// Resource is the plural name of the kind in API paths.
	Resource string
	// Aggregated states that on some platforms an aggregated API server serves the kind, rather than a
	// CustomResourceDefinition.
	Aggregated bool
	// BuiltIn states that Kubernetes itself serves the kind, on every cluster.
	BuiltIn bool
	// ReadOnly states that the backend generates no objects of the kind, but reads those that its References name. The
	// fields below are then not used, apart from AddToScheme and Trim.
	ReadOnly bool
	// Contended states that objects of the kind exclude each other, whoever has them: Objects gets all of them, and is
	// called for one Listener at a time. A Listener that it refuses is reconciled again when one of them changes.
	Contended bool
	// Hosts returns the hosts that an object of the kind requests, of which each belongs to one Listener alone. It is
	// nil if objects of the kind have none.
	Hosts func(o Object) []string
	// Trim removes from objects that no Listener controls, of which a cluster may have many, what the backend does not
	// need. If nil, only what identifies them remains.
	Trim func(o Object)
	// AddToScheme registers the Go types of the kind and of its list.
	AddToScheme func(scheme *runtime.Scheme) error
	// ForeignReason and RejectedReason are the reasons of the condition listenersv1alpha1.ListenerAccepted for an
	// object that the Listener does not control, and for an object that the API server rejects.
	ForeignReason, RejectedReason string
	// Remedy returns what to do about a rejection by the API server, or "" if its message suffices.
	Remedy func(rejection string) string
}

// Object is an object of a backend's kinds, of the type that the scheme has for it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Listener is a Listener with the observed state that a backend depends on. Backends must not change any of it.
type Listener struct {
	*listenersv1alpha1.Listener
	// Class is the class that applies. It is never nil.
	Class *listenersv1alpha1.ListenerClass
	// Service is the observed Service that the Listener controls, or nil.
	Service *corev1.Service
	// Objects are the objects of the backend's kinds that the Listener controls, sorted by name.
	Objects []Object
	// Referenced are the objects that References names, as far as they exist.
	Referenced []Object
	// Others are all objects of a Contended kind that the Listener does not control, sorted by namespace and name. It
	// is set for Objects only.
	Others []Object
	// NamespaceLabels are the labels of the Listener's namespace, and OtherNamespaces those of the namespaces of
	// Others, by name.
	NamespaceLabels map[string]string
	OtherNamespaces map[string]map[string]string
	// Pods are the names of the Pods that mount the claim that the Listener was created for, sorted. It is empty for a
	// Listener that was not created for a claim.
	Pods []string
	// Nodes are the nodes with reservations for the Listener, sorted by name. It is empty unless the scope of the
	// backend is that of a node, or the Service is of type NodePort.
	Nodes []*corev1.Node
	// Mounting are the Pods that mount volumes of the Listener, on any node, sorted by name. Pods that have finished
	// are left out. It is observed together with Nodes.
	Mounting []*corev1.Pod
	// MissingNodes are the names of the nodes with reservations that no longer exist, sorted.
	MissingNodes []string
	// ClusterDomain is the DNS domain of the cluster.
	ClusterDomain string
}

// Publishes reports whether an address is in the status of the Listener.
func (l *Listener) Publishes(address string) bool {
	return l.Status != nil && slices.ContainsFunc(l.Status.IngressAddresses, func(a listenersv1alpha1.IngressAddress) bool { return a.Address == address })
}

// Desired is an object to apply. It has apiVersion, kind, namespace and name.
type Desired struct {
	*unstructured.Unstructured
	// Recreate states that the existing object cannot be changed to the desired one, and has to be deleted first.
	Recreate bool
}

// Exposed holds the addresses at which clients reach a Listener through one backend.
type Exposed struct {
	// Addresses are the addresses in the order of preference. It is never nil.
	Addresses []listenersv1alpha1.IngressAddress
	// NodePorts are the node ports by port name if the addresses are those of nodes, and nil otherwise.
	NodePorts map[string]int32
	// Complete states that no expected address is missing.
	Complete bool
	// Reason, one of those of listenersv1alpha1.ListenerReady, and Message describe which addresses are missing and who
	// has to act. A message without a reason lists what is permanently left out.
	Reason, Message string
	// Rejected are the objects that another controller has rejected for something that it does not watch.
	Rejected []Rejected
	// NeedsAction states that the missing addresses need an action of a user or administrator, not only time.
	NeedsAction bool
}

// Rejected is an object that another controller has rejected, and accepts at its next change if the cause is remedied.
type Rejected struct {
	Object
	// Since is the time of the rejection.
	Since metav1.Time
}
