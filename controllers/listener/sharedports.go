package listener

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// observeSharedPorts gets the port numbers that the Listener has at a shared address, also those that the cache does
// not have yet.
func (r *Reconciler) observeSharedPorts(_ context.Context, o *observed) error {
	pending, _ := r.shared.pendingOf(client.ObjectKeyFromObject(o.listener))
	if o.listener.Status != nil {
		o.sharedPorts = maps.Clone(o.listener.Status.SharedPorts)
	}
	o.addSharedPorts(pending)
	return nil
}

// addSharedPorts adds numbers, by port name, to those that the Listener has.
func (o *observed) addSharedPorts(numbers map[string]int32) {
	if o.sharedPorts == nil && len(numbers) > 0 {
		o.sharedPorts = map[string]int32{}
	}
	maps.Copy(o.sharedPorts, numbers)
}

// withSharedPorts returns the Service with numbers of its own for its ports, and these numbers by port name, if the
// class has Listeners share the address of a load balancer. The numbers are in the status of the Listener before the
// Service has them, so that they survive the Service and the operator. The error is a *exposure.Refusal if the range is
// exhausted.
//
// The Listener keeps the numbers that it has, also while a previous exposure depends on the type of the Service.
func (r *Reconciler) withSharedPorts(ctx context.Context, o *observed, desired *corev1ac.ServiceApplyConfiguration,
) (*corev1ac.ServiceApplyConfiguration, map[string]int32, error) {
	if !o.sharesAddress(desired) {
		return desired, nil, nil
	}
	has := map[string]int32{}
	for i := range desired.Spec.Ports {
		name := ptr.Deref(desired.Spec.Ports[i].Name, "")
		if number, ok := o.sharedPorts[name]; ok {
			has[name] = number
		}
	}
	if err := r.allocateSharedPorts(o, desired, has); err != nil {
		return nil, nil, err
	}
	if err := r.storeSharedPorts(ctx, o, has); err != nil {
		return nil, nil, err
	}
	return exposure.WithPorts(desired, has), has, nil
}

// sharesAddress reports whether the Service shares the address of its load balancer with others: because the class says
// so or, while a previous exposure depends on the type of the Service, because it does.
func (o *observed) sharesAddress(desired *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeLoadBalancer:
		return false
	case o.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return o.class.SharedPortRange() != ""
	default:
		return len(o.sharedPorts) > 0
	}
}

// allocateSharedPorts adds numbers of the range of the class for the ports that have none. No other Listener of the
// cluster has them, whatever its class: several classes may have the same address.
func (r *Reconciler) allocateSharedPorts(o *observed, desired *corev1ac.ServiceApplyConfiguration, has map[string]int32) error {
	if o.class.SharedPortRange() == "" {
		return nil
	}
	numbers, err := utilnet.ParsePortRange(o.class.SharedPortRange())
	if err != nil {
		return fmt.Errorf("reading spec.loadBalancer.sharing.portRange of listener class %s: %w", o.class.Name, err)
	}
	var allocated map[string]int32
	var without string
	ok := r.shared.allocate(client.ObjectKeyFromObject(o.listener), func(taken func(int32) bool) (map[string]int32, bool) {
		allocated, without = exposure.AllocatePorts(desired, has, *numbers, taken)
		return allocated, without == ""
	})
	if !ok {
		return exposure.Refuse(listenersv1alpha1.ReasonSharedPortsExhausted, "no port of the shared address is left for port %s: other Listeners have all of %s; "+
			"extend spec.loadBalancer.sharing.portRange of ListenerClass %s, or delete Listeners", without, o.class.SharedPortRange(), o.class.Name)
	}
	maps.Copy(has, allocated)
	return nil
}

// storeSharedPorts writes the numbers to the status of the Listener, unless it has them. Others that it has stay there
// until the Service does not have them any more.
func (r *Reconciler) storeSharedPorts(ctx context.Context, o *observed, has map[string]int32) error {
	key := client.ObjectKeyFromObject(o.listener)
	pending, stored := r.shared.pendingOf(key)
	o.addSharedPorts(has)
	if len(pending) == 0 || stored {
		return nil
	}
	status := ownStatus(o.listener)
	status.SharedPorts = o.sharedPorts
	if status.IngressAddresses == nil {
		status.IngressAddresses = []listenersv1alpha1.IngressAddress{}
	}
	if _, err := r.statuses.ApplyStatus(ctx, o.listener, status); err != nil {
		return err
	}
	r.shared.setStored(key)
	return nil
}

// setSharedPorts records the numbers that the Service has now, nil if it does not share an address.
func (r *Reconciler) setSharedPorts(o *observed, numbers map[string]int32) {
	o.sharedPorts = numbers
	if numbers == nil {
		r.shared.forget(client.ObjectKeyFromObject(o.listener))
	}
}
