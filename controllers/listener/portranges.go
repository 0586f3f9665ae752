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
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// sharedAllocator has the numbers that Listeners have at shared addresses. No other Listener of the cluster has them,
// whatever its class: several classes may have the same address.
type sharedAllocator struct {
	*portallocator.Allocator
	client   client.Reader
	recovery sync.Once
}

// of returns the numbers of a Listener, by port name, or nil. The class may be nil.
func (p *sharedAllocator) of(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) map[string]int32 {
	if class != nil && class.SharedPortRange() != "" {
		p.recovery.Do(func() { p.recover(ctx) })
	}
	pending := p.Pending(names.ServiceKey(listener))
	numbers := maps.Clone(ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).SharedPorts)
	if numbers == nil {
		return pending
	}
	maps.Copy(numbers, pending)
	return numbers
}

// recover learns the numbers of Services that an earlier process has not written to a status.
func (p *sharedAllocator) recover(ctx context.Context) {
	var classes listenersv1alpha1.ListenerClassList
	index.List(ctx, p.client, &classes)
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.SharedPortRange() == "" {
			continue
		}
		var listeners listenersv1alpha1.ListenerList
		index.List(ctx, p.client, &listeners, client.MatchingFields{index.ListenersByClass: class.Name})
		for j := range listeners.Items {
			p.recoverOne(ctx, &listeners.Items[j], class)
		}
	}
}

func (p *sharedAllocator) recoverOne(ctx context.Context, listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) {
	key, service := names.ServiceKey(listener), &corev1.Service{}
	if p.client.Get(ctx, key, service) != nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer || !controls(listener, service) {
		return // only a Service that does not exist is an error of the cache
	}
	numbers, recorded := inRange(portsOf(service), sharedPortRange(class)), portallocator.RecordedSharedPorts(listener)
	maps.DeleteFunc(numbers, func(_ string, number int32) bool { return recorded.Has(number) })
	p.SetPending(key, numbers)
}

// portsOf returns the ports of a Service by name.
func portsOf(service *corev1.Service) map[string]int32 {
	numbers := map[string]int32{}
	for _, port := range service.Spec.Ports {
		numbers[port.Name] = port.Port
	}
	return numbers
}

// allocate gives the ports of a Service at a shared address numbers, preferably those that the Listener has.
func (p *sharedAllocator) allocate(s *snapshot, service *corev1ac.ServiceApplyConfiguration) (map[string]int32, error) {
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
		class: class.Name, numbers: class.NodePortRange(), metric: "NodePort",
		maxPerNamespace: ptr.Deref(class.Spec.NodePorts, listenersv1alpha1.NodePorts{}).MaxPortsPerNamespace,
		field:           "nodePorts.range", limitField: "nodePorts.maxPortsPerNamespace",
		exhausted: listenersv1alpha1.ReasonNodePortsExhausted, kind: "node port", holders: "Services and Listeners",
	}
}

func sharedPortRange(class *listenersv1alpha1.ListenerClass) portRange {
	return portRange{
		class: class.Name, numbers: class.SharedPortRange(), metric: "SharedPort",
		maxPerNamespace: ptr.Deref(class.Spec.LoadBalancer, listenersv1alpha1.LoadBalancer{}).Sharing.MaxPortsPerNamespace,
		field:           "loadBalancer.sharing.portRange", limitField: "loadBalancer.sharing.maxPortsPerNamespace",
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

// allocate makes the chosen numbers, by port name, those of a Listener. without is a port for which choose finds none,
// or "". The error is a *exposure.Refusal if no number is left, or if the namespace may not have more.
func (r portRange) allocate(allocator *portallocator.Allocator, listener types.NamespacedName,
	choose func(from utilnet.PortRange, taken func(int32) bool) (numbers map[string]int32, without string),
) (map[string]int32, error) {
	from, err := r.parse()
	if err != nil {
		return nil, err
	}
	chosen, err := allocator.Allocate(listener, from, func(taken func(int32) bool) (map[string]int32, error) {
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
	return chosen, err
}

// inRange returns the ports, by name, whose numbers are in a range.
func inRange(ports map[string]int32, r portRange) map[string]int32 {
	from, err := r.parse() // which the plan reports
	ports = maps.Clone(ports)
	maps.DeleteFunc(ports, func(_ string, number int32) bool { return err != nil || !from.Contains(int(number)) })
	return ports
}
