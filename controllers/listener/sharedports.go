package listener

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// sharedPorts has the numbers that Listeners have at shared addresses. No other Listener of the cluster has them,
// whatever its class: several classes may have the same address.
type sharedPorts struct {
	*portallocator.Allocator
	client client.Reader
	// recovered is set when the Allocator has the numbers that an earlier process has not recorded.
	recovery  sync.Mutex
	recovered bool
}

// of returns the numbers of a Listener, by port name, or nil. The class may be nil.
func (p *sharedPorts) of(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) (numbers map[string]int32, _ error) {
	if class != nil && class.SharedPortRange() != "" {
		if err := p.recover(ctx); err != nil {
			return nil, err
		}
	}
	pending := p.Pending(names.ServiceKey(listener))
	numbers = maps.Clone(ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).SharedPorts)
	if numbers == nil {
		return pending, nil
	}
	maps.Copy(numbers, pending)
	return numbers, nil
}

// recover learns, once, the numbers of Services that an earlier process has not written to a status.
func (p *sharedPorts) recover(ctx context.Context) error {
	p.recovery.Lock()
	defer p.recovery.Unlock()
	if p.recovered {
		return nil
	}
	services, err := allServices(ctx, p.client)
	if err != nil {
		return err
	}
	for i := range services {
		service := &services[i]
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || exposure.ListenerOf(service) == "" {
			continue
		}
		numbers, err := p.unrecorded(ctx, service)
		if err != nil {
			return err
		}
		p.SetPending(client.ObjectKeyFromObject(service), numbers)
	}
	p.recovered = true
	return nil
}

// allServices returns the Services of the cluster, which must not be changed.
func allServices(ctx context.Context, cache client.Reader) ([]corev1.Service, error) {
	var services corev1.ServiceList
	if err := cache.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing services: %w", err)
	}
	return services.Items, nil
}

// unrecorded returns the ports of a Service in the range of its class that the status of its Listener lacks.
func (p *sharedPorts) unrecorded(ctx context.Context, service *corev1.Service) (map[string]int32, error) {
	listener, class := &listenersv1alpha1.Listener{}, &listenersv1alpha1.ListenerClass{}
	key, _ := listenerOf(service)
	err := p.client.Get(ctx, key, listener)
	if err == nil && controls(listener, service) {
		err = p.client.Get(ctx, client.ObjectKey{Name: listener.Class()}, class)
	}
	if err != nil || class.SharedPortRange() == "" {
		return nil, client.IgnoreNotFound(err)
	}
	numbers, err := inRange(portsOf(service), sharedPortRange(class))
	recorded := portallocator.RecordedSharedPorts(listener)
	maps.DeleteFunc(numbers, func(_ string, number int32) bool { return recorded.Has(number) })
	return numbers, err
}

// portsOf returns the ports of a Service by name.
func portsOf(service *corev1.Service) map[string]int32 {
	numbers := map[string]int32{}
	for _, port := range service.Spec.Ports {
		numbers[port.Name] = port.Port
	}
	return numbers
}

// allocate gives the ports of a Service at a shared address numbers, preferably those that the Listener has. The status
// gets them when the Service has them, so that none is reserved that no Service has.
func (p *sharedPorts) allocate(s *snapshot, service *corev1ac.ServiceApplyConfiguration) (map[string]int32, error) {
	present := func(taken func(int32) bool) map[string]int32 {
		numbers := map[string]int32{}
		for i := range service.Spec.Ports {
			name := ptr.Deref(service.Spec.Ports[i].Name, "")
			if number, ok := s.sharedPorts[name]; ok && !taken(number) {
				numbers[name] = number
			}
		}
		return numbers
	}
	switch {
	case !sharesAddress(s, service):
		return nil, nil //nolint:nilnil // it has none
	case s.class.SharedPortRange() == "":
		return present(func(int32) bool { return false }), nil
	}
	return sharedPortRange(s.class).allocate(p.Allocator, s.serviceKey(), func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
		numbers := present(taken)
		allocated, without := exposure.AllocatePorts(service, numbers, from, taken)
		maps.Copy(numbers, allocated)
		return numbers, without
	})
}

// sharesAddress reports whether the Service shares the address of its load balancer with others: because the class says
// so or, while a previous exposure depends on the type of the Service, because it does.
func sharesAddress(s *snapshot, service *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case ptr.Deref(service.Spec.Type, "") != corev1.ServiceTypeLoadBalancer:
		return false
	case s.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return s.class.SharedPortRange() != ""
	default:
		return len(s.sharedPorts) > 0
	}
}
