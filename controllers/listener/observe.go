package listener

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
)

// defaultClusterDomain holds until ListenerOperator/cluster says otherwise.
const defaultClusterDomain = "cluster.local"

// observed is all that a Listener's objects and status depend on. The objects are the cache's and must not be changed.
type observed struct {
	listener *listenersv1alpha1.Listener
	// class is nil if the Listener names none or one that does not exist.
	class *listenersv1alpha1.ListenerClass
	// backend is that of the class, or nil.
	backend exposure.Backend
	// service is the Listener's own, or nil.
	service *corev1.Service
	// foreign is a Service that has the Listener's name but is not its own, or nil.
	foreign *corev1.Service
	// objects are the Listener's own of the backends' kinds, by name. A kind is not in it while its objects are not
	// known.
	objects map[schema.GroupVersionKind]map[string]exposure.Object
	// desired are the names of those that there should be, once that is decided.
	desired map[schema.GroupVersionKind]sets.Set[string]
	// pods are the names of the Pods that mount the claim that the Listener was made for, sorted.
	pods []string
	// nodes are those with reservations for the Listener, by name; only for Services of type NodePort.
	nodes []*corev1.Node
	// missingNodes are the names of those that no longer exist, sorted.
	missingNodes  []string
	clusterDomain string
}

func (r *Reconciler) observe(ctx context.Context, listener *listenersv1alpha1.Listener) (*observed, error) {
	o := &observed{
		listener: listener,
		objects:  map[schema.GroupVersionKind]map[string]exposure.Object{},
		desired:  map[schema.GroupVersionKind]sets.Set[string]{},
	}
	for _, observe := range []func(context.Context, *observed) error{
		r.observeClass, r.observeService, r.observeObjects, r.observePods, r.observeNodes, r.observeClusterDomain,
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
	class := &listenersv1alpha1.ListenerClass{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, class); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading listener class %s: %w", name, err)
	}
	o.class = class
	o.backend = r.Backends[slices.IndexFunc(r.Backends, func(b exposure.Backend) bool { return b.Exposes(class) })]
	return nil
}

// observeService finds the Service of the Listener's name. If the cache has none it asks the API server, because a
// Service that is made by someone else at this moment must not be mistaken for our own.
func (r *Reconciler) observeService(ctx context.Context, o *observed) error {
	service, key := &corev1.Service{}, client.ObjectKeyFromObject(o.listener)
	err := r.Client.Get(ctx, key, service)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, service)
	}
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading service %s: %w", key, err)
	case controls(o.listener, service):
		o.service = service
	default:
		o.foreign = service
	}
	return nil
}

// observeObjects finds the Listener's objects of the backends' kinds. Those of a kind that the cluster does not serve
// are none; those of one whose API does not answer are unknown, which only concerns Listeners that are exposed through
// them.
func (r *Reconciler) observeObjects(ctx context.Context, o *observed) error {
	for kind, reader := range r.kinds {
		list, err := r.newList(kind)
		if err != nil {
			return err
		}
		err = reader.List(ctx, list, client.InNamespace(o.listener.Namespace), client.MatchingFields{index.ObjectsByController: string(o.listener.UID)})
		if err != nil && !meta.IsNoMatchError(err) {
			if o.exposedBy(kind) {
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

// exposedBy tells whether the Listener's backend generates objects of the kind.
func (o *observed) exposedBy(kind schema.GroupVersionKind) bool {
	return o.backend != nil && slices.ContainsFunc(o.backend.Kinds(), func(k exposure.Kind) bool { return k.GroupVersionKind == kind })
}

// controls tells whether the Listener controls the object, whatever version of the API it was made by.
func controls(listener *listenersv1alpha1.Listener, o metav1.Object) bool {
	owner := metav1.GetControllerOf(o)
	return isListener(owner) && owner.UID == listener.UID
}

func isListener(owner *metav1.OwnerReference) bool {
	if owner == nil || owner.Kind != "Listener" {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == listenersv1alpha1.GroupVersion.Group
}

// observePods finds the Pods that mount the claim that the Listener was made for. One that is going away counts only as
// long as there is no other.
func (r *Reconciler) observePods(ctx context.Context, o *observed) error {
	if !claim.OwnsListener(o.listener) {
		return nil
	}
	var pods corev1.PodList
	key := client.ObjectKeyFromObject(o.listener)
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{index.PodsByClaim: key.Name}); err != nil {
		return fmt.Errorf("listing pods of claim %s: %w", key, err)
	}
	var staying, all []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		all = append(all, pod.Name)
		if pod.DeletionTimestamp.IsZero() && !claim.PodFinished(pod) {
			staying = append(staying, pod.Name)
		}
	}
	o.pods = staying
	if len(staying) == 0 {
		o.pods = all
	}
	slices.Sort(o.pods)
	return nil
}

// observeNodes finds the nodes of the Listener's reservations, which matter while there are node ports.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	if o.class == nil || o.class.Spec.ServiceType != listenersv1alpha1.ServiceTypeNodePort && (o.service == nil || o.service.Spec.Type != corev1.ServiceTypeNodePort) {
		return nil
	}
	reserved, err := r.reservedNodes(ctx, client.ObjectKeyFromObject(o.listener))
	if err != nil {
		return err
	}
	for _, name := range reserved {
		node := &corev1.Node{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, node); {
		case apierrors.IsNotFound(err):
			o.missingNodes = append(o.missingNodes, name)
		case err != nil:
			return fmt.Errorf("reading node %s: %w", name, err)
		default:
			o.nodes = append(o.nodes, node)
		}
	}
	return nil
}

func (r *Reconciler) observeClusterDomain(ctx context.Context, o *observed) error {
	o.clusterDomain = defaultClusterDomain
	configuration := &operatorv1alpha1.ListenerOperator{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, configuration)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading listener operator %s: %w", operatorv1alpha1.ListenerOperatorName, err)
	}
	if configuration.Spec.ClusterDomain != "" {
		o.clusterDomain = configuration.Spec.ClusterDomain
	}
	return nil
}

// forBackend returns what a backend decides from.
func (o *observed) forBackend(b exposure.Backend) *exposure.Listener {
	l := &exposure.Listener{
		Listener: o.listener, Class: o.class, Service: o.service, Pods: o.pods,
		Nodes: o.nodes, MissingNodes: o.missingNodes, ClusterDomain: o.clusterDomain,
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
