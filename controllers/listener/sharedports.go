package listener

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
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

func newSharedPorts(reader client.Reader) *sharedPorts {
	return &sharedPorts{Allocator: portallocator.New(recordedSharedPorts), client: reader}
}

// recordedSharedPorts returns the numbers in the status of a Listener. Those of one without a Service are not reserved:
// no quota counts them.
func recordedSharedPorts(o client.Object) sets.Set[int32] {
	listener, ok := o.(*listenersv1alpha1.Listener)
	if !ok || listener.Status == nil || listener.Status.ServiceName == nil {
		return sets.New[int32]()
	}
	return portallocator.Numbers(listener.Status.SharedPorts)
}

// of returns the numbers of a Listener, by port name, or nil if it has none. The class may be nil.
func (p *sharedPorts) of(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) (numbers map[string]int32, _ error) {
	if class != nil && class.SharedPortRange() != "" {
		if err := p.recover(ctx); err != nil {
			return nil, err
		}
	}
	pending := p.Pending(client.ObjectKeyFromObject(listener))
	if listener.Status != nil {
		numbers = maps.Clone(listener.Status.SharedPorts)
	}
	if numbers == nil {
		return pending, nil
	}
	maps.Copy(numbers, pending)
	return numbers, nil
}

// recover makes the numbers of Services known, once in a process, that are not in the status of their Listener, because
// an earlier process ended in between.
func (p *sharedPorts) recover(ctx context.Context) error {
	p.recovery.Lock()
	defer p.recovery.Unlock()
	if p.recovered {
		return nil
	}
	var services corev1.ServiceList
	if err := p.client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing services: %w", err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || controllingListener(service) == nil {
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

// unrecorded returns the ports of a Service, by name, that are in the range of the class of its Listener, if the status
// of the Listener does not have them all.
func (p *sharedPorts) unrecorded(ctx context.Context, service *corev1.Service) (map[string]int32, error) {
	listener, class := &listenersv1alpha1.Listener{}, &listenersv1alpha1.ListenerClass{}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(service), listener)
	if err == nil && controls(listener, service) {
		err = p.client.Get(ctx, client.ObjectKey{Name: listener.Class()}, class)
	}
	if err != nil || class.SharedPortRange() == "" {
		return nil, client.IgnoreNotFound(err)
	}
	from, err := sharedPortRange(class)
	if err != nil {
		return nil, err
	}
	recorded, numbers := recordedSharedPorts(listener), map[string]int32{}
	for _, port := range service.Spec.Ports {
		if from.Contains(int(port.Port)) && !recorded.Has(port.Port) {
			numbers[port.Name] = port.Port
		}
	}
	return numbers, nil
}
