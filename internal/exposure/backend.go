// Package exposure computes the objects that expose a Listener, and its addresses. Every Listener has a Service, which
// function Service builds. A Backend adds further objects, if it needs any, and chooses the addresses. The backends are
// the packages below this one; package backends lists them and describes how to add one.
//
// It is pure: it never talks to the API server, and depends on neither clock nor environment.
package exposure

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// Backend exposes Listeners of some classes. All that is specific to a backend is in its package and in its field of
// the ListenerClass: the controller applies, watches and deletes its objects, and leaves objects of other owners alone,
// without knowing any backend. Fields that are not required are left out by backends that do not need them.
type Backend struct {
	// Name is unique among the backends and never changes. It is required.
	Name string
	// Exposes reports whether the backend exposes Listeners of the class. It is required.
	Exposes func(class *listenersv1alpha1.ListenerClass) bool
	// Addresses returns the addresses that the Service and the objects of a Listener provide. It is required.
	Addresses func(l *Listener, p Placement) Exposed

	// Generates are the kinds of the objects that the backend generates in addition to the Service, and Objects returns
	// those of a Listener, in the order of the kinds: they follow from the class, the Service and the state of the
	// Listener. Both are nil if it generates none.
	Generates []*Kind
	Objects   func(l *Listener, others Others) ([]Desired, *Refusal)
	// Published returns what only this Listener can have by the addresses in its status, without those of hosts. Nil is
	// nothing.
	Published func(l *Listener) []registry.Key
	// Reads is the kind of the objects of others that the backend reads, and References names those that a class and
	// the existing objects of a Listener refer to. Both are nil if it reads none.
	Reads      *Kind
	References func(class *listenersv1alpha1.ListenerClass, objects []Object) []types.NamespacedName
	// Assumed returns kind and name of what a class names and the backend does not read. A Listener may wait because it
	// does not exist. Nil: nothing.
	Assumed func(class *listenersv1alpha1.ListenerClass) (kind schema.GroupVersionKind, name string)
	// PlainService states that clients connect to the Service, whose type does not matter for any other backend.
	PlainService bool
	// Headless states that the Services of its Listeners have no cluster IP: clients connect to the Pods.
	Headless bool
	// NodeScoped reports whether each address of a Listener of the class leads only to the Pods of one node. Nil: none.
	NodeScoped func(class *listenersv1alpha1.ListenerClass) bool
	// PodAddresses returns the addresses that lead to a Pod of the Listener, which is bound to the node. If nil, they
	// follow from the status of the Listener: its addresses or, with node ports, that of the node.
	PodAddresses func(l *Listener, pod *corev1.Pod, node *corev1.Node) *Exposed
	Clients      Clients
	// Scarce is what each Listener takes from others in addition to what its Service does, or "".
	Scarce string
}

type Clients struct {
	// Problem returns why the Service with all overrides would not restrict them, and what to do about it, or "". If
	// nil, the backend cannot restrict clients.
	Problem func(l *Listener, service *corev1ac.ServiceApplyConfiguration, ranges []netip.Prefix) string
	// ByPolicy reports whether a NetworkPolicy for the Pods, which see their addresses, restricts them. Nil: never.
	ByPolicy func(service *corev1ac.ServiceApplyConfiguration) bool
	// Ports returns the ports of the Pods that clients are led to. If nil, they are the target ports of the Service.
	Ports func(l *Listener) []listenersv1alpha1.ListenerPort
}

// RestrictsPods reports whether a NetworkPolicy has to restrict the clients of a Listener with the Service.
func (b *Backend) RestrictsPods(service *corev1ac.ServiceApplyConfiguration) bool {
	return b.Clients.ByPolicy != nil && b.Clients.ByPolicy(service)
}

// ScarceOf returns what each Listener of a class takes from others: Scarce, LoadBalancer, NodePort, or "".
func (b *Backend) ScarceOf(class *listenersv1alpha1.ListenerClass) string {
	switch {
	case b.Scarce != "":
		return b.Scarce
	case class.Spec.ServiceType == listenersv1alpha1.ServiceTypeClusterIP:
		return ""
	}
	return string(class.Spec.ServiceType)
}

func (b *Backend) Kinds() []*Kind {
	return slices.DeleteFunc(append(slices.Clone(b.Generates), b.Reads), func(k *Kind) bool { return k == nil })
}

func (b *Backend) KindsFor(class *listenersv1alpha1.ListenerClass) []*Kind {
	return slices.DeleteFunc(b.Kinds(), func(k *Kind) bool { return k.NeededBy != nil && !k.NeededBy(class) })
}

// Generated returns one of the kinds that the backend generates, by its name.
func (b *Backend) Generated(kind string) *Kind {
	return b.Generates[slices.IndexFunc(b.Generates, func(k *Kind) bool { return k.Kind == kind })]
}

func (b *Backend) IsExclusive() bool {
	return slices.ContainsFunc(b.Generates, func(k *Kind) bool { return k.Exclusive != "" })
}

// IsNodeScoped reports whether each address of a Listener of the class leads only to the Pods of one node.
func (b *Backend) IsNodeScoped(class *listenersv1alpha1.ListenerClass) bool {
	return b.NodeScoped != nil && b.NodeScoped(class)
}

// Kind is a kind of object that a backend generates or reads. Not every cluster serves it, unless it is BuiltIn.
type Kind struct {
	schema.GroupVersionKind
	// OtherVersions are other versions of the kind, the preferred one first, which are used if the cluster does not
	// serve that of GroupVersionKind. They must have the same fields, as far as the backend uses them.
	OtherVersions []string
	Resource      string
	// Aggregated states that on some platforms an aggregated API server serves the kind, without a CRD.
	Aggregated bool
	// BuiltIn states that Kubernetes itself serves the kind, on every cluster.
	BuiltIn bool
	// NeededBy reports whether Listeners of a class of the backend need the kind. If nil, all do.
	NeededBy func(class *listenersv1alpha1.ListenerClass) bool
	// Owns reports whether an object is one of this backend, for a kind that others generate, too. If nil, all are.
	Owns func(o Object) bool
	// Holds returns what an object has, or requests, that only one Listener can have, such as hosts. Nil is nothing.
	Holds func(o Object) []registry.Key
	// Exclusive is the kind of what objects of other clients may have, too, or "". Objects gets all of these objects,
	// and Listeners that wait for something of the kind are reconciled when one of them changes.
	Exclusive listenersv1alpha1.WaitingKind
	// Trim removes from objects that no Listener controls, of which a cluster may have many, what the backend does not
	// need. If nil, only what identifies them remains.
	Trim        func(o Object)
	AddToScheme func(scheme *runtime.Scheme) error
	// Annotated states that classes annotate the objects. The policy of the kind limits the annotations that request
	// things from other controllers.
	Annotated bool
	// InReasons is the word for the kind in reasons.Foreign and reasons.Rejected. Empty is the kind itself.
	InReasons string
	// Remedy returns what to do about a rejection by the API server, or "" if its message suffices. Nil is always "".
	Remedy func(rejection string) string
}

// ForeignReason is the reason of listenersv1alpha1.ListenerAccepted for an object that the Listener does not control.
func (k *Kind) ForeignReason() string { return reasons.Foreign(cmp.Or(k.InReasons, k.Kind)) }

// RejectedReason is the one for an object that the API server rejects.
func (k *Kind) RejectedReason() string { return reasons.Rejected(cmp.Or(k.InReasons, k.Kind)) }

// Object is an object of a backend's kinds, of the type that the scheme has for it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Listener is a Listener with what its objects and addresses depend on. Backends must not change any of it.
type Listener struct {
	*listenersv1alpha1.Listener
	// Remembered are the addresses that it had in a backup.
	Remembered []listenersv1alpha1.IngressAddress
	// Class is the class that applies. It is never nil.
	Class *listenersv1alpha1.ListenerClass
	// Desired is the Service by the class and the overrides, or nil if there can be none.
	Desired *corev1ac.ServiceApplyConfiguration
	// Service is the Service that the Listener controls. For Objects it is what is applied before them.
	Service *corev1.Service
	// Objects are the existing objects of the backend that the Listener controls, sorted by name.
	Objects []Object
	// Referenced are the objects that References names, as far as they exist.
	Referenced []Object
	// NamespaceLabels are the labels of the Listener's namespace, if there are Referenced objects.
	NamespaceLabels map[string]string
	// Pods are the names of the Pods that mount the claim that the Listener was created for, if it was, sorted.
	Pods          []string
	ClusterDomain string
}

// Others are who has what a Listener cannot have.
type Others struct {
	// Objects are those of the backend's Exclusive kinds that belong to no Listener, sorted by namespace and name.
	Objects    []Object
	Namespaces map[string]map[string]string
	// Taken reports whether another Listener has a key, and Holder names it. If nil, none has any.
	Taken  func(key registry.Key) bool
	Holder func(key registry.Key) string
}

// HasTaken reports whether another Listener has a key.
func (o Others) HasTaken(key registry.Key) bool { return o.Taken != nil && o.Taken(key) }

type Placement struct {
	// Nodes are the nodes with reservations for the Listener, sorted by name, and MissingNodes are the names of those
	// that no longer exist. Both are empty unless the class publishes addresses or ports of nodes.
	Nodes        []*corev1.Node
	MissingNodes []string
	// UnusedNodes are further ones, sorted, which are left out: no Pod has mounted the Listener there for a while.
	UnusedNodes []string
	// DrainedNodes are others, sorted, which are left out: they are being drained.
	DrainedNodes []string
	// EmptyNodes are the names of those of Nodes at which nothing responds, sorted: no Pod has mounted the Listener
	// there for a moment, and nodes do not forward to each other.
	EmptyNodes []string
	// Mounting are the Pods that mount volumes of the Listener and have not finished, on any node, sorted by name.
	Mounting []*corev1.Pod
	// Outdated are the names of those of these Pods that started with other addresses of the Listener, sorted.
	Outdated []string
}

// Last returns the addresses in the status, in whose place others may be advertised, or those that it had in a backup.
func (l *Listener) Last() []listenersv1alpha1.IngressAddress {
	if published := l.Status.TargetAddresses(); len(published) > 0 {
		return published
	}
	return l.Remembered
}

// Publishes reports whether an address is in the status of the Listener, or another one is advertised in its place.
func (l *Listener) Publishes(address string) bool {
	return slices.ContainsFunc(l.Status.TargetAddresses(),
		func(a listenersv1alpha1.IngressAddress) bool { return a.Address == address })
}

func (l *Listener) DNSName() string {
	return l.Service.Name + "." + l.Service.Namespace + ".svc." + l.ClusterDomain
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
}

// Rejected is an object that another controller has rejected, and accepts at its next change if the cause is remedied.
type Rejected struct {
	Object
	Since metav1.Time
}

// Usable returns those of the addresses that another controller reports which clients outside the cluster can use, and
// a list of the others with the reasons, or "". If the class advertises others, administrators lead clients to these.
func (l *Listener) Usable(reported ...listenersv1alpha1.IngressAddress) (
	usable []listenersv1alpha1.IngressAddress, leftOut string) {
	var others []string
	for _, a := range reported {
		if problem := l.unusable(a); problem == "" {
			usable = append(usable, a)
		} else {
			others = append(others, describeLeftOut(a.Address, problem))
		}
	}
	return usable, message.List(others)
}

func UnusableMessage(object, leftOut string) string {
	return object + " has no address that clients outside the cluster can use; its controller reports " + leftOut
}

// unusable returns why clients outside the cluster cannot use an address that is published as it is, or "".
func (l *Listener) unusable(a listenersv1alpha1.IngressAddress) string {
	advertised, _ := l.Class.Advertised()
	template := string(ptr.Deref(advertised, listenersv1alpha1.Advertise{}).AddressTemplate)
	isIP := a.AddressType == listenersv1alpha1.AddressTypeIP && address.IsIP(a.Address)
	isHostname := a.AddressType == listenersv1alpha1.AddressTypeHostname && address.IsHostname(a.Address)
	switch {
	case !isIP && !isHostname:
		return fmt.Sprintf("not a valid address of type %s", a.AddressType)
	case template != "" && !strings.Contains(template, "{address}"):
		return ""
	}
	return address.Inside(a.Address, l.ClusterDomain)
}

// maxQuote is the number of characters of what another controller says that a message quotes.
const maxQuote = 500

// Quote returns what another controller says in its reason and its message, as messages quote it.
func Quote(reason, text string) string {
	return message.Printable(strings.TrimSuffix(strings.TrimPrefix(reason+": "+text, ": "), ": "), maxQuote)
}

func describeLeftOut(address, why string) string {
	return fmt.Sprintf("%s (%s)", message.Printable(address, maxValue), why)
}

// Refusal is why a Listener cannot be exposed. Its reason is one of those of listenersv1alpha1.ListenerAccepted. Its
// message names the cause, and what the author of the Listener or of its class has to change.
type Refusal struct {
	Reason  string
	Message string
	// WaitingFor is what others have, without a time. Nil if the Listener waits for nothing that others have.
	WaitingFor *listenersv1alpha1.WaitingFor
}

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

func Refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Awaiting returns the Refusal of a Listener that waits for what others have, or for nothing without a kind.
func (r Refusal) Awaiting(w listenersv1alpha1.WaitingFor) *Refusal {
	if w.Kind != "" {
		r.WaitingFor = &w
	}
	return &r
}

// RefuseTaken returns the Refusal of a Listener that needs a value, such as a host, which another Listener has.
func RefuseTaken(reason, need string, w listenersv1alpha1.WaitingFor, remedy string) *Refusal {
	return Refuse(reason, "%s %s, which Listener %s has already; %s", need, w.Value, w.Holder, remedy).Awaiting(w)
}
