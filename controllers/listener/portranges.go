package listener

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// portRange returns the range of numbers in a field of the spec of a class, and how many a namespace may have.
func portRange(class *listenersv1alpha1.ListenerClass, field, value string, perNamespace *int32) (portallocator.Range, error) {
	numbers, err := utilnet.ParsePortRange(value)
	if err != nil {
		return portallocator.Range{}, fmt.Errorf("reading spec.%s of listener class %s: %w", field, class.Name, err)
	}
	return portallocator.Range{PortRange: *numbers, MaxPerNamespace: int(ptr.Deref(perNamespace, 0))}, nil
}

func nodePortRange(class *listenersv1alpha1.ListenerClass) (portallocator.Range, error) {
	return portRange(class, "nodePorts.range", class.NodePortRange(), class.Spec.NodePorts.MaxPortsPerNamespace)
}

func sharedPortRange(class *listenersv1alpha1.ListenerClass) (portallocator.Range, error) {
	sharing := class.Spec.LoadBalancer.Sharing
	return portRange(class, "loadBalancer.sharing.portRange", sharing.PortRange, sharing.MaxPortsPerNamespace)
}

// portRefusal returns the error of an allocation as a refusal: that of the caller or, if the namespace has as many
// ports as the limit in a field of the spec of the class allows, one that says so.
func portRefusal(err error, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass, field string, from portallocator.Range) *exposure.Refusal {
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal
	}
	others := 0
	if limit, ok := errors.AsType[*portallocator.LimitError](err); ok {
		others = limit.Others
	}
	return exposure.Refuse(listenersv1alpha1.ReasonPortLimitReached, "the Listeners of namespace %s may have %d ports of %s together, and others have %d; "+
		"delete Listeners, or ask an administrator to raise spec.%s of ListenerClass %s", listener.Namespace, from.MaxPerNamespace, from.String(), others, field, class.Name)
}

// allocatedNodePorts returns the node ports of a Service, or those that the status of a Listener has while its Service
// is created again. Those that it had last are not reserved: no quota counts them.
func allocatedNodePorts(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	switch object := o.(type) {
	case *corev1.Service:
		for _, p := range object.Spec.Ports {
			numbers.Insert(p.NodePort)
		}
	case *listenersv1alpha1.Listener:
		if object.Status != nil {
			numbers = portallocator.Numbers(object.Status.NodePorts)
		}
	}
	return numbers.Delete(0)
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status *listenersv1alpha1.ListenerStatus) map[string]int32 {
	switch {
	case status == nil:
		return nil
	case len(status.NodePorts) > 0:
		return status.NodePorts
	default:
		return status.LastNodePorts
	}
}
