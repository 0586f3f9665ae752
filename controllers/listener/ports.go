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

// refuseOverLimit returns the error of an allocation as a *exposure.Refusal if the limit in a field of the spec of the
// class does not allow it.
func refuseOverLimit(err error, o *observed, field string, from portallocator.Range) error {
	limit, ok := errors.AsType[*portallocator.LimitError](err)
	if !ok {
		return err
	}
	return exposure.Refuse(listenersv1alpha1.ReasonPortLimitReached, "the Listeners of namespace %s may have %d ports of %s together, and others have %d; "+
		"delete Listeners, or ask an administrator to raise spec.%s of ListenerClass %s",
		o.listener.Namespace, from.MaxPerNamespace, from.String(), limit.Others, field, o.class.Name)
}

// nodePortsOf returns the node ports of a Service, or those that the status of a Listener has while its Service is
// created again. Those that it had last are not reserved: no quota counts them.
func nodePortsOf(o client.Object) sets.Set[int32] {
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

// sharedPortsOf returns the numbers that a Listener has at a shared address. Those of one without a Service are not
// reserved: no quota counts them.
func sharedPortsOf(o client.Object) sets.Set[int32] {
	listener, ok := o.(*listenersv1alpha1.Listener)
	if !ok || listener.Status == nil || listener.Status.ServiceName == nil {
		return sets.New[int32]()
	}
	return portallocator.Numbers(listener.Status.SharedPorts)
}
