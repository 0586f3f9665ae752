package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// portRange is a range of a class, of which the operator allocates numbers to the ports of Services.
type portRange struct {
	class, numbers string
	// metric is what metrics call the kind of numbers.
	metric string
	// maxPerNamespace is how many of the numbers a namespace may have, or nil if that is not limited.
	maxPerNamespace *int32
	// field and limitField are the fields of the spec of the class that have the range and the limit.
	field, limitField string
	// exhausted is the reason of the refusal if holders have all numbers, so that nothing of this kind is left.
	exhausted, kind, holders string
}

func nodePortRange(class *listenersv1alpha1.ListenerClass) portRange {
	return portRange{
		class: class.Name, numbers: class.NodePortRange(), metric: "NodePort", maxPerNamespace: class.Spec.NodePorts.MaxPortsPerNamespace,
		field: "nodePorts.range", limitField: "nodePorts.maxPortsPerNamespace",
		exhausted: listenersv1alpha1.ReasonNodePortsExhausted, kind: "node port", holders: "Services and Listeners",
	}
}

func sharedPortRange(class *listenersv1alpha1.ListenerClass) portRange {
	return portRange{
		class: class.Name, numbers: class.SharedPortRange(), metric: "SharedPort", maxPerNamespace: class.Spec.LoadBalancer.Sharing.MaxPortsPerNamespace,
		field: "loadBalancer.sharing.portRange", limitField: "loadBalancer.sharing.maxPortsPerNamespace",
		exhausted: listenersv1alpha1.ReasonSharedPortsExhausted, kind: "port of the shared address", holders: "Listeners",
	}
}

func (r portRange) parse() (portallocator.Range, error) {
	numbers, err := utilnet.ParsePortRange(r.numbers)
	if err != nil {
		return portallocator.Range{}, fmt.Errorf("reading spec.%s of listener class %s: %w", r.field, r.class, err)
	}
	return portallocator.Range{PortRange: *numbers, MaxPerNamespace: int(ptr.Deref(r.maxPerNamespace, 0))}, nil
}

// allocate makes the chosen numbers, by port name, those of a Listener. without is the name of a port for which choose
// finds no number, or "". release gives the numbers back, for the case that the API server rejects the Service. The
// error is a *exposure.Refusal if no number is left, or if the namespace may not have more.
func (r portRange) allocate(allocator *portallocator.Allocator, listener types.NamespacedName,
	choose func(from utilnet.PortRange, taken func(int32) bool) (numbers map[string]int32, without string),
) (chosen map[string]int32, release func(), _ error) {
	from, err := r.parse()
	if err != nil {
		return nil, nil, err
	}
	chosen, release, err = allocator.Allocate(listener, from, func(taken func(int32) bool) (map[string]int32, error) {
		numbers, without := choose(from.PortRange, taken)
		if without != "" {
			return nil, exposure.Refuse(r.exhausted, "no %s is left for port %s: other %s have all of %s; extend spec.%s of ListenerClass %s, or delete Listeners",
				r.kind, without, r.holders, r.numbers, r.field, r.class)
		}
		return numbers, nil
	})
	if limit, ok := errors.AsType[*portallocator.LimitError](err); ok {
		err = exposure.Refuse(listenersv1alpha1.ReasonPortLimitReached, "the Listeners of namespace %s may have %d ports of %s together, and others have %d; delete "+
			"Listeners, or ask an administrator to raise spec.%s of ListenerClass %s", listener.Namespace, from.MaxPerNamespace, r.numbers, limit.Others, r.limitField, r.class)
	}
	return chosen, release, err
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status listenersv1alpha1.ListenerStatus) map[string]int32 {
	if len(status.NodePorts) > 0 {
		return status.NodePorts
	}
	return status.LastNodePorts
}

// sharedPorts has the numbers that Listeners have at shared addresses. No other Listener of the cluster has them,
// whatever its class: several classes may have the same address.
type sharedPorts struct {
	*portallocator.Allocator
	client client.Reader
	// recovered is set when the Allocator has the numbers that an earlier process has not recorded.
	recovery  sync.Mutex
	recovered bool
}

// of returns the numbers of a Listener, by port name, or nil if it has none. The class may be nil.
func (p *sharedPorts) of(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) (numbers map[string]int32, _ error) {
	if class != nil && class.SharedPortRange() != "" {
		if err := p.recover(ctx); err != nil {
			return nil, err
		}
	}
	pending := p.Pending(client.ObjectKeyFromObject(listener))
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

// unrecorded returns the ports of a Service, by name, in the range of its class that the status of its Listener lacks.
func (p *sharedPorts) unrecorded(ctx context.Context, service *corev1.Service) (map[string]int32, error) {
	listener, class := &listenersv1alpha1.Listener{}, &listenersv1alpha1.ListenerClass{}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(service), listener)
	if err == nil && controls(listener, service) {
		err = p.client.Get(ctx, client.ObjectKey{Name: listener.Class()}, class)
	}
	if err != nil || class.SharedPortRange() == "" {
		return nil, client.IgnoreNotFound(err)
	}
	from, err := sharedPortRange(class).parse()
	if err != nil {
		return nil, err
	}
	recorded, numbers := portallocator.RecordedSharedPorts(listener), map[string]int32{}
	for _, port := range service.Spec.Ports {
		if from.Contains(int(port.Port)) && !recorded.Has(port.Port) {
			numbers[port.Name] = port.Port
		}
	}
	return numbers, nil
}
