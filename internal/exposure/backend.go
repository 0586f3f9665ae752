package exposure

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Backend is one way in which Listeners are reached. All that is special about it is here and in its fields of the
// ListenerClass: the controller applies, watches and removes its objects, and guards those of others, without knowing
// them.
type Backend interface {
	// Exposes tells whether Listeners of the class are reached in this way.
	Exposes(class *listenersv1alpha1.ListenerClass) bool
	// Kinds are those of the objects that it generates next to the Service; none means that the Service, with the type
	// that the class says, is all.
	Kinds() []Kind
	// AddToScheme registers the types of these kinds.
	AddToScheme(scheme *runtime.Scheme) error
	// Objects returns the objects that there should be. The error is a *Refusal if there is something that the author
	// of the Listener or of the class has to mend.
	Objects(l *Listener) ([]Desired, error)
	// Addresses returns where the Listener can be reached by what there is.
	Addresses(l *Listener) Exposed
}

// Kind is a kind of object that a backend generates, on clusters that serve it.
type Kind struct {
	schema.GroupVersionKind
	// ForeignReason and RejectedReason are those of listenersv1alpha1.ListenerAccepted for an object that belongs to
	// somebody else, and for one that the API server does not want.
	ForeignReason, RejectedReason string
	// Remedy says what to do about what the API server said against an object, or is "" if that speaks for itself.
	Remedy func(rejection string) string
}

// Object is an object of a backend's kinds, of the type that the scheme has for it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Listener is a Listener with all that a backend decides from. Nothing of it may be changed.
type Listener struct {
	*listenersv1alpha1.Listener
	// Class is the class whose policy holds. It is never nil.
	Class *listenersv1alpha1.ListenerClass
	// Service is the Listener's own, as it is; nil if there is none yet.
	Service *corev1.Service
	// Objects are those of the backend's kinds that the Listener controls, sorted by name.
	Objects []Object
	// Pods are the names of the Pods that mount the claim which the Listener was made for, sorted. It is empty for a
	// Listener that was not made for a claim.
	Pods []string
	// Nodes are those with reservations for the Listener, sorted by name. They are there while the Service has node
	// ports.
	Nodes []*corev1.Node
	// MissingNodes are the names of those that no longer exist, sorted.
	MissingNodes []string
	// ClusterDomain is the DNS domain of the cluster.
	ClusterDomain string
}

// Desired is an object as it is to be applied. It has apiVersion, kind, namespace and name.
type Desired struct {
	*unstructured.Unstructured
	// Anew says that the object that exists cannot become the desired one, and has to be deleted first.
	Anew bool
}

// Exposed is where a Listener can be reached.
type Exposed struct {
	// Addresses in the order in which consumers should prefer them; never nil.
	Addresses []listenersv1alpha1.IngressAddress
	// NodePorts is the port at each node, by port name, if the addresses belong to nodes; else nil.
	NodePorts map[string]int32
	// Complete says that everything that should have an address has one.
	Complete bool
	// Reason, one of those of listenersv1alpha1.ListenerReady, and Message say what is missing and who has to act. A
	// message without a reason is about something that is left out for good.
	Reason, Message string
	// Warn says that somebody has to act, rather than wait.
	Warn bool
}
