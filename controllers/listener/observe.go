package listener

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// defaultClusterDomain holds until ListenerOperator/cluster says otherwise.
const defaultClusterDomain = "cluster.local"

// observed is all that a Listener's Service and status depend on. The objects are the cache's and must not be changed.
type observed struct {
	listener *v1alpha1.Listener
	// class is nil if the Listener names none or one that does not exist.
	class *v1alpha1.ListenerClass
	// service is the Listener's own, or nil.
	service *corev1.Service
	// foreign is a Service that has the Listener's name but is not its own, or nil.
	foreign *corev1.Service
	// nodes are those with reservations for the Listener, by name; only for classes of type NodePort.
	nodes []*corev1.Node
	// missingNodes are the names of those that no longer exist, sorted.
	missingNodes  []string
	clusterDomain string
}

func (r *Reconciler) observe(ctx context.Context, listener *v1alpha1.Listener) (*observed, error) {
	o := &observed{listener: listener}
	if err := r.observeClass(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeService(ctx, o); err != nil {
		return nil, err
	}
	if o.class != nil && o.class.Spec.ServiceType == v1alpha1.ServiceTypeNodePort {
		if err := r.observeNodes(ctx, o); err != nil {
			return nil, err
		}
	}
	return o, r.observeClusterDomain(ctx, o)
}

func (r *Reconciler) observeClass(ctx context.Context, o *observed) error {
	name := o.listener.Class()
	if name == "" {
		return nil
	}
	class := &v1alpha1.ListenerClass{}
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, class); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading listener class %s: %w", name, err)
	}
	o.class = class
	return nil
}

// observeService finds the Service of the Listener's name. If the cache has none it asks the API server, because a Service that
// is made by someone else at this moment must not be mistaken for our own.
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

// controls tells whether the Listener controls the Service, whatever version of the API it was made by.
func controls(listener *v1alpha1.Listener, service *corev1.Service) bool {
	owner := metav1.GetControllerOf(service)
	if owner == nil || owner.Kind != "Listener" || owner.UID != listener.UID {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == v1alpha1.GroupVersion.Group
}

// observeNodes finds the nodes of the Listener's reservations: for each of its volumes those that it is pinned to, else those of
// the Pods that mount it, else the one that it was last mounted on.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	key := client.ObjectKeyFromObject(o.listener)
	var volumes corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &volumes, client.MatchingFields{index.VolumesByListener: index.VolumeListenerKey(key)}); err != nil {
		return fmt.Errorf("listing volumes of listener %s: %w", key, err)
	}
	var mounts v1alpha1.PodListenersList
	err := r.Client.List(ctx, &mounts, client.InNamespace(key.Namespace), client.MatchingFields{index.PodListenersByListener: key.Name})
	if err != nil {
		return fmt.Errorf("listing pod listeners of listener %s: %w", key, err)
	}
	for _, name := range reservedNodes(volumes.Items, mounts.Items) {
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

// reservedNodes returns the sorted names of the nodes that the volumes are reserved on.
func reservedNodes(volumes []corev1.PersistentVolume, mounts []v1alpha1.PodListeners) []string {
	mounted := map[string][]string{} // nodes by volume
	for i := range mounts {
		spec := &mounts[i].Spec
		if !mounts[i].Trusted() || spec.NodeName == "" {
			continue
		}
		for _, l := range spec.Listeners {
			mounted[l.PersistentVolumeName] = append(mounted[l.PersistentVolumeName], spec.NodeName)
		}
	}
	reserved := sets.New[string]()
	for i := range volumes {
		volume := &volumes[i]
		if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != names.Driver {
			continue
		}
		if on := mounted[volume.Name]; len(on) > 0 && len(index.PinnedNodes(volume)) == 0 {
			reserved.Insert(on...)
		} else {
			reserved.Insert(index.VolumeNodes(volume)...)
		}
	}
	return slices.Sorted(maps.Keys(reserved))
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
