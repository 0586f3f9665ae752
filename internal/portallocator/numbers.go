package portallocator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// AllocatedNodePorts returns the node ports of a Service, or those that the status of a Listener has while its Service
// is created again. Those that it had last are not reserved: no quota counts them. The API server allocates the port of
// a health check from the same range. An object of any other kind has none.
func AllocatedNodePorts(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	switch object := o.(type) {
	case *corev1.Service:
		numbers.Insert(object.Spec.HealthCheckNodePort)
		for _, p := range object.Spec.Ports {
			numbers.Insert(p.NodePort)
		}
	case *listenersv1alpha1.Listener:
		if object.Status != nil {
			numbers = Numbers(object.Status.NodePorts)
		}
	}
	return numbers.Delete(0)
}

// RecordedSharedPorts returns the numbers at a shared address in the status of a Listener with a Service: no quota
// counts other ones. An object of any other kind has none.
func RecordedSharedPorts(o client.Object) sets.Set[int32] {
	listener, ok := o.(*listenersv1alpha1.Listener)
	if !ok || listener.Status == nil || listener.Status.ServiceName == nil {
		return sets.New[int32]()
	}
	return Numbers(listener.Status.SharedPorts)
}
