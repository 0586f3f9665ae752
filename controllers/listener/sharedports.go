package listener

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// observeSharedPorts gets the port numbers that the Listener has at a shared address, also those that the cache does
// not have yet.
func (r *Reconciler) observeSharedPorts(ctx context.Context, o *observed) error {
	if o.class != nil && o.class.SharedPortRange() != "" {
		if err := r.recoverSharedPorts(ctx); err != nil {
			return err
		}
	}
	pending := r.sharedPorts.Pending(client.ObjectKeyFromObject(o.listener))
	if o.listener.Status != nil {
		o.sharedPorts = maps.Clone(o.listener.Status.SharedPorts)
	}
	if o.sharedPorts == nil && len(pending) > 0 {
		o.sharedPorts = map[string]int32{}
	}
	maps.Copy(o.sharedPorts, pending)
	return nil
}

// recoverSharedPorts makes the numbers of Services known, once in a process, that are not in the status of their
// Listener, because an earlier process ended in between.
func (r *Reconciler) recoverSharedPorts(ctx context.Context) error {
	r.recovery.Lock()
	defer r.recovery.Unlock()
	if r.recovered {
		return nil
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing services: %w", err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || !isListener(metav1.GetControllerOf(service)) {
			continue
		}
		numbers, err := r.unrecordedPorts(ctx, service)
		if err != nil {
			return err
		}
		r.sharedPorts.SetPending(client.ObjectKeyFromObject(service), numbers)
	}
	r.recovered = true
	return nil
}

// unrecordedPorts returns the ports of a Service, by name, that are in the range of the class of its Listener, if the
// status of the Listener does not have them all.
func (r *Reconciler) unrecordedPorts(ctx context.Context, service *corev1.Service) (map[string]int32, error) {
	listener, class := &listenersv1alpha1.Listener{}, &listenersv1alpha1.ListenerClass{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(service), listener)
	if err == nil && controls(listener, service) {
		err = r.Client.Get(ctx, client.ObjectKey{Name: listener.Class()}, class)
	}
	if err != nil || class.SharedPortRange() == "" {
		return nil, client.IgnoreNotFound(err)
	}
	from, err := sharedPortRange(class)
	if err != nil {
		return nil, err
	}
	recorded, numbers := sharedPortsOf(listener), map[string]int32{}
	for _, p := range service.Spec.Ports {
		if from.Contains(int(p.Port)) && !recorded.Has(p.Port) {
			numbers[p.Name] = p.Port
		}
	}
	return numbers, nil
}

// withSharedPorts returns the Service with numbers of its own for its ports, and these numbers by port name, if the
// class has Listeners share the address of a load balancer. giveBack is for the case that the API server rejects the
// Service. The error is a *exposure.Refusal if there are no numbers. The status gets the numbers when the Service has
// them, so that none is reserved that no Service has.
//
// The Listener keeps the numbers that it has, also while a previous exposure depends on the type of the Service.
func (r *Reconciler) withSharedPorts(o *observed, desired *corev1ac.ServiceApplyConfiguration,
) (_ *corev1ac.ServiceApplyConfiguration, numbers map[string]int32, giveBack func(), _ error) {
	if !o.sharesAddress(desired) {
		return desired, nil, func() {}, nil
	}
	if o.class.SharedPortRange() == "" {
		numbers = o.presentSharedPorts(desired, func(int32) bool { return false })
		return exposure.WithPorts(desired, numbers), numbers, func() {}, nil
	}
	from, err := sharedPortRange(o.class)
	if err != nil {
		return nil, nil, nil, err
	}
	// No other Listener of the cluster has them, whatever its class: several classes may have the same address.
	numbers, giveBack, err = r.sharedPorts.Allocate(client.ObjectKeyFromObject(o.listener), from, func(taken func(int32) bool) (map[string]int32, error) {
		has := o.presentSharedPorts(desired, taken)
		allocated, without := exposure.AllocatePorts(desired, has, from.PortRange, taken)
		if without != "" {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonSharedPortsExhausted, "no port of the shared address is left for port %s: other Listeners have all of %s; "+
				"extend spec.loadBalancer.sharing.portRange of ListenerClass %s, or delete Listeners", without, o.class.SharedPortRange(), o.class.Name)
		}
		maps.Copy(has, allocated)
		return has, nil
	})
	if err != nil {
		return nil, nil, nil, refuseOverLimit(err, o, "loadBalancer.sharing.maxPortsPerNamespace", from)
	}
	return exposure.WithPorts(desired, numbers), numbers, giveBack, nil
}

// presentSharedPorts returns the numbers, by port name, that the Listener has for the ports of the Service. One that
// had no Service may have lost them to another Listener.
func (o *observed) presentSharedPorts(desired *corev1ac.ServiceApplyConfiguration, taken func(int32) bool) map[string]int32 {
	has := map[string]int32{}
	for i := range desired.Spec.Ports {
		name := ptr.Deref(desired.Spec.Ports[i].Name, "")
		if number, ok := o.sharedPorts[name]; ok && !taken(number) {
			has[name] = number
		}
	}
	return has
}

func sharedPortRange(class *listenersv1alpha1.ListenerClass) (portallocator.Range, error) {
	sharing := class.Spec.LoadBalancer.Sharing
	return portRange(class, "loadBalancer.sharing.portRange", sharing.PortRange, sharing.MaxPortsPerNamespace)
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

// setSharedPorts records the numbers that the Service has now, nil if it does not share an address.
func (r *Reconciler) setSharedPorts(o *observed, numbers map[string]int32) {
	o.sharedPorts = numbers
	if numbers == nil {
		r.sharedPorts.SetPending(client.ObjectKeyFromObject(o.listener), nil)
	}
}
