package listener

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// observed is the observed state that the objects and the status of a Listener depend on. The objects belong to the
// cache and must not be changed.
type observed struct {
	listener *listenersv1alpha1.Listener
	// class is nil if the Listener names no class, or one that does not exist or that it may not use.
	class *listenersv1alpha1.ListenerClass
	// notAllowed is why the Listener may not use the class that it names, or nil.
	notAllowed *exposure.Refusal
	// kept states that the Listener keeps its class although the class no longer allows the namespace.
	kept bool
	// backend is the backend of the class, or nil.
	backend exposure.Backend
	// service is the Service that the Listener controls, or nil.
	service *corev1.Service
	// earlier states that a Service of an earlier Listener of this name exists. Kubernetes deletes it, because its
	// controller does not exist any more.
	earlier bool
	// foreign is any other Service with the Listener's name that the Listener does not control, or nil.
	foreign *corev1.Service
	// objects are the objects of the backends' kinds that the Listener controls, by name. A kind has no entry while its
	// objects are unknown.
	objects map[schema.GroupVersionKind]map[string]exposure.Object
	// referenced are the objects that the backends only read, by the name of the backend.
	referenced map[string][]exposure.Object
	// namespaceLabels are the labels of the namespace. They are observed only if referenced objects may select them.
	namespaceLabels map[string]string
	// desired are the names of the desired objects, which ensureObjects sets.
	desired map[schema.GroupVersionKind]sets.Set[string]
	// applied states that all desired objects are as desired. terminating is one that is not, because it is being
	// deleted, or empty. ensureObjects sets both.
	applied     bool
	terminating string
	// pods are the names of the Pods that mount the claim that the Listener was created for, sorted.
	pods []string
	// nodes are the nodes with reservations for the Listener, sorted by name. They are observed only if the addresses
	// of the class are those of nodes, or the Service is of type NodePort.
	nodes []*corev1.Node
	// mounting are the Pods that mount volumes of the Listener, sorted by name.
	mounting []*corev1.Pod
	// missingNodes are the names of the nodes with reservations that no longer exist, sorted.
	missingNodes  []string
	clusterDomain string
	// idleReason and idleMessage state why nothing responds at the addresses, or are empty. observeIdle sets them.
	idleReason, idleMessage string
	// sharedPorts are the port numbers that the Listener has at the address of a shared load balancer, by port name.
	// ensure changes them.
	sharedPorts map[string]int32
	// rejectedNodePorts are the messages of the API server about node ports that it rejects, by port name, and
	// nodePortWait is the time until they are requested again, or 0. applyDesiredService sets both.
	rejectedNodePorts map[string]string
	nodePortWait      time.Duration
}

func (r *Reconciler) observe(ctx context.Context, listener *listenersv1alpha1.Listener) (*observed, error) {
	o := &observed{
		listener:   listener,
		objects:    map[schema.GroupVersionKind]map[string]exposure.Object{},
		referenced: map[string][]exposure.Object{},
		desired:    map[schema.GroupVersionKind]sets.Set[string]{},

		rejectedNodePorts: map[string]string{},
	}
	for _, observe := range []func(context.Context, *observed) error{
		r.observeClass, r.observeService, r.observeObjects, r.observeReferences, r.observePods, r.observeNodes, r.observeClusterDomain,
		r.observeSharedPorts,
	} {
		if err := observe(ctx, o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (r *Reconciler) observeClass(ctx context.Context, o *observed) error {
	name := o.listener.Class()
	if name == "" {
		return nil
	}
	class, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: name}, &listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return err
	}
	if err := r.observeAllowed(ctx, o, class); err != nil || o.notAllowed != nil {
		return err
	}
	o.class = class
	o.backend = r.Backends[slices.IndexFunc(r.Backends, func(b exposure.Backend) bool { return b.Exposes(class) })]
	return nil
}

// observeAllowed determines whether the Listener may use the class. A Listener that used it when its namespace was
// still allowed keeps it.
func (r *Reconciler) observeAllowed(ctx context.Context, o *observed, class *listenersv1alpha1.ListenerClass) error {
	problem, err := tenancy.Check(ctx, r.Client, class, o.listener.Namespace)
	if err != nil || problem == "" {
		return err
	}
	if o.kept = usedClass(o.listener); !o.kept {
		o.notAllowed = exposure.Refuse(listenersv1alpha1.ReasonNamespaceNotAllowed,
			"%s; name another class in spec.className, or ask an administrator to add the namespace to spec.allowedNamespaces of the class", problem)
	}
	return nil
}

// usedClass reports whether the Listener was accepted with the class that it names. A change of its spec after that may
// be a change of the class.
func usedClass(listener *listenersv1alpha1.Listener) bool {
	if listener.Status == nil {
		return false
	}
	accepted := meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted)
	return listener.Status.KeptClassName == listener.Class() ||
		accepted != nil && accepted.Status == metav1.ConditionTrue && accepted.ObservedGeneration == listener.Generation
}

// observeService gets the Service with the Listener's name. One that the cache does not have yet is not written to: the
// apply of a Service that was not observed is then in conflict with it.
func (r *Reconciler) observeService(ctx context.Context, o *observed) error {
	switch service, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(o.listener), &corev1.Service{}); {
	case err != nil || service == nil:
		return err
	case controls(o.listener, service):
		o.service = service
	case controlledByNamesake(o.listener, service):
		o.earlier = true
	default:
		o.foreign = service
	}
	return nil
}

// observeObjects lists the objects of the backends' kinds that the Listener controls. Of a kind that the cluster does
// not serve there are none. If the API of a kind does not respond, its objects are unknown, which is an error only if
// the Listener's backend generates this kind.
func (r *Reconciler) observeObjects(ctx context.Context, o *observed) error {
	for kind, reader := range r.kinds {
		if r.readOnly.Has(kind) {
			continue
		}
		list, err := r.newList(kind)
		if err != nil {
			return err
		}
		err = reader.List(ctx, list, client.InNamespace(o.listener.Namespace), client.MatchingFields{index.ObjectsByController: string(o.listener.UID)})
		if err != nil && !meta.IsNoMatchError(err) {
			if o.backendGenerates(kind) {
				return fmt.Errorf("listing objects of kind %s of listener %s: %w", kind.Kind, client.ObjectKeyFromObject(o.listener), err)
			}
			continue
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("reading a list of kind %s: %w", kind.Kind, err)
		}
		o.objects[kind] = map[string]exposure.Object{}
		for _, item := range items {
			if object := item.(exposure.Object); controls(o.listener, object) {
				o.objects[kind][object.GetName()] = object
			}
		}
	}
	return nil
}

// backendGenerates reports whether the Listener's backend generates objects of the kind.
func (o *observed) backendGenerates(kind schema.GroupVersionKind) bool {
	return o.backend != nil && slices.ContainsFunc(o.backend.Kinds(), func(k exposure.Kind) bool { return k.GroupVersionKind == kind })
}

// controls reports whether the Listener controls the object, whatever API version its owner reference names. An object
// of another namespace it never controls, although that may name its UID.
func controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := metav1.GetControllerOf(o)
	return isListener(owner) && owner.UID == listener.UID && o.GetNamespace() == listener.Namespace
}

// controlledByNamesake reports whether a Listener of the same name, but not this one, controls the object.
func controlledByNamesake(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := metav1.GetControllerOf(o)
	return isListener(owner) && owner.Name == listener.Name && owner.UID != listener.UID
}

// beingDeleted reports whether an object of the Listener, or of an earlier Listener of this name, is being deleted.
func beingDeleted(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	return controlledByNamesake(listener, o) || controls(listener, o) && !o.GetDeletionTimestamp().IsZero()
}

// isListener reports whether the owner reference, which may be nil, is to a Listener.
func isListener(owner *metav1.OwnerReference) bool {
	if owner == nil || owner.Kind != "Listener" {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == listenersv1alpha1.GroupVersion.Group
}

// observePods lists the Pods that mount the claim that the Listener was created for. Pods that are terminating or have
// finished are left out if there are others.
func (r *Reconciler) observePods(ctx context.Context, o *observed) error {
	if !claim.OwnsListener(o.listener) {
		return nil
	}
	var pods corev1.PodList
	key := client.ObjectKeyFromObject(o.listener)
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{index.PodsByClaim: key.Name}); err != nil {
		return fmt.Errorf("listing pods of claim %s: %w", key, err)
	}
	var running, all []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		all = append(all, pod.Name)
		if pod.DeletionTimestamp.IsZero() && !claim.PodFinished(pod) {
			running = append(running, pod.Name)
		}
	}
	o.pods = running
	if len(running) == 0 {
		o.pods = all
	}
	slices.Sort(o.pods)
	return nil
}

// observeNodes gets the Pods that mount the Listener and, if its addresses may be those of nodes, the nodes of its
// reservations.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	if o.class == nil {
		return nil
	}
	if o.backend.Scope(o.class) != listenersv1alpha1.ListenerScopeNode && (o.service == nil || o.service.Spec.Type != corev1.ServiceTypeNodePort) {
		var err error
		_, o.mounting, err = r.mountedNodes(ctx, client.ObjectKeyFromObject(o.listener))
		return err
	}
	reserved, mounting, err := r.reservedNodes(ctx, o.listener)
	if err != nil {
		return err
	}
	o.mounting, o.nodes, o.missingNodes = mounting, nil, nil
	for _, name := range reserved {
		switch node, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: name}, &corev1.Node{}); {
		case err != nil:
			return err
		case node == nil:
			o.missingNodes = append(o.missingNodes, name)
		default:
			o.nodes = append(o.nodes, node)
		}
	}
	return nil
}

func (r *Reconciler) observeClusterDomain(ctx context.Context, o *observed) error {
	configuration := &operatorv1alpha1.ListenerOperator{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, configuration)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading listener operator %s: %w", operatorv1alpha1.ListenerOperatorName, err)
	}
	o.clusterDomain = configuration.ClusterDomain(r.ClusterDomain)
	return nil
}

// forBackend returns the observed state as the backend's input.
func (o *observed) forBackend(b exposure.Backend) *exposure.Listener {
	l := &exposure.Listener{
		Listener: o.listener, Class: o.class, Service: o.service, Pods: o.pods,
		Nodes: o.nodes, MissingNodes: o.missingNodes, Mounting: o.mounting, ClusterDomain: o.clusterDomain,
		Referenced: o.referenced[b.Name()], NamespaceLabels: o.namespaceLabels,
	}
	for _, kind := range b.Kinds() {
		l.Objects = slices.AppendSeq(l.Objects, maps.Values(o.objects[kind.GroupVersionKind]))
	}
	slices.SortFunc(l.Objects, func(a, b exposure.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return l
}

// newList returns an empty list of a kind.
func (r *Reconciler) newList(kind schema.GroupVersionKind) (client.ObjectList, error) {
	list, err := r.Client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("making a list of kind %s: %w", kind.Kind, err)
	}
	return list.(client.ObjectList), nil
}

// newObject returns an empty object of a kind.
func (r *Reconciler) newObject(kind schema.GroupVersionKind) (client.Object, error) {
	o, err := r.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("making an object of kind %s: %w", kind.Kind, err)
	}
	return o.(client.Object), nil
}
