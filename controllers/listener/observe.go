package listener

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/v1alpha1"
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

// observeNodes finds the nodes of the Listener's reservations.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
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
