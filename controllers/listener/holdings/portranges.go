package holdings

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"

	"github.com/listener-operator/listener-operator/internal/registry"
)

// sharedPorts returns the numbers at a shared address that a Listener has or, without a Service, had, by port name, or
// nil.
func (h *Holdings) sharedPorts(listener *listenersv1alpha1.Listener) map[string]int32 {
	pass, numbers := h.Registry.Begin(names.ServiceKey(listener)), map[string]int32{}
	maps.Copy(numbers, ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).SharedPorts)
	maps.DeleteFunc(numbers, func(_ string, number int32) bool {
		_, taken := pass.HolderOf(registry.Number(listenersv1alpha1.WaitingKindSharedPort, number))
		return taken
	})
	maps.Copy(numbers, pass.Reserved(listenersv1alpha1.WaitingKindSharedPort))
	if len(numbers) == 0 {
		return nil
	}
	return numbers
}

// allocateSharedPorts gives the ports of a Service at a shared address numbers, preferably those that it has, or had in
// a backup. No other Listener of the cluster has them, whatever its class: several classes may have the same address.
//
// Numbers are allocated here and nowhere else. What a Service has is none: users of its namespace may have written it.
func allocateSharedPorts(pass *registry.Pass, s *observe.Snapshot,
	service *corev1ac.ServiceApplyConfiguration) (map[string]int32, error) {
	last := s.SharedPorts
	if len(last) == 0 && s.Class.SharedPortRange() != "" {
		last = inRange(s.Remembered.SharedPorts, SharedPortRange(s.Class))
	}
	present := func(taken func(int32) bool) map[string]int32 {
		numbers := map[string]int32{}
		for i := range service.Spec.Ports {
			name := ptr.Deref(service.Spec.Ports[i].Name, "")
			if number, ok := last[name]; ok && !taken(number) {
				numbers[name] = number
			}
		}
		return numbers
	}
	if !sharesAddress(s, service) {
		return nil, nil //nolint:nilnil // it has none
	}
	if s.Class.SharedPortRange() == "" {
		return pass.Allocate(registry.Range{Kind: listenersv1alpha1.WaitingKindSharedPort},
			func(taken func(int32) bool) (map[string]int32, error) {
				return present(taken), nil
			})
	}
	return SharedPortRange(s.Class).Allocate(pass,
		func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
			numbers := present(taken)
			allocated, without := exposure.AllocatePorts(service, numbers, from, taken)
			maps.Copy(numbers, allocated)
			return numbers, without
		})
}

// sharesAddress reports whether the Service shares the address of its load balancer with others: because the class says
// so or, while a previous exposure depends on the type of the Service, because it does.
func sharesAddress(s *observe.Snapshot, service *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case ptr.Deref(service.Spec.Type, "") != corev1.ServiceTypeLoadBalancer:
		return false
	case s.Class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer:
		return s.Class.SharedPortRange() != ""
	}
	return len(s.SharedPorts) > 0
}

// PortRange is a range of a class from which the operator allocates numbers to the ports of Services.
type PortRange struct {
	Class, numbers string
	// Scarce is what Listeners without a number wait for, and what metrics call it.
	Scarce listenersv1alpha1.WaitingKind
	// maxPerNamespace is how many of the numbers a namespace may have, or nil if that is not limited.
	maxPerNamespace *int32
	// field and limitField are the fields of the spec of the class that have the range and the limit.
	field, limitField string
	// exhausted is the reason of the refusal if holders have all numbers, so that nothing of this kind is left.
	exhausted, kind, holders string
}

// NodePortRange returns the range of node ports of a class, without numbers if it has none.
func NodePortRange(class *listenersv1alpha1.ListenerClass) PortRange {
	return PortRange{
		Class: class.Name, numbers: class.NodePortRange(), Scarce: listenersv1alpha1.WaitingKindNodePort,
		maxPerNamespace: ptr.Deref(class.Spec.NodePorts, listenersv1alpha1.NodePorts{}).MaxPortsPerNamespace,
		field:           "nodePorts.range", limitField: "nodePorts.maxPortsPerNamespace",
		exhausted: listenersv1alpha1.ReasonNodePortsExhausted, kind: "node port", holders: "Services and Listeners",
	}
}

// SharedPortRange returns the range of ports at a shared address of a class, without numbers if it has none.
func SharedPortRange(class *listenersv1alpha1.ListenerClass) PortRange {
	return PortRange{
		Class: class.Name, numbers: class.SharedPortRange(), Scarce: listenersv1alpha1.WaitingKindSharedPort,
		maxPerNamespace: ptr.Deref(class.Spec.LoadBalancer,
			listenersv1alpha1.LoadBalancer{}).Sharing.MaxPortsPerNamespace,
		field: "loadBalancer.sharing.portRange", limitField: "loadBalancer.sharing.maxPortsPerNamespace",
		exhausted: listenersv1alpha1.ReasonSharedPortsExhausted, kind: "port of the shared address",
		holders: "Listeners",
	}
}

// Parse returns the numbers. An empty range has none.
func (r PortRange) Parse() (registry.Range, error) {
	numbers, err := utilnet.ParsePortRange(r.numbers)
	if err != nil {
		return registry.Range{}, fmt.Errorf("reading spec.%s of listener class %s: %w", r.field, r.Class, err)
	}
	return registry.Range{PortRange: *numbers, Kind: r.Scarce, MaxPerNamespace: int(ptr.Deref(r.maxPerNamespace, 0))},
		nil
}

// Allocate reserves the chosen numbers, by port name. without is a port for which choose finds none, or "". The error
// is a *exposure.Refusal if no number is left, or if the namespace may not have more.
func (r PortRange) Allocate(pass *registry.Pass,
	choose func(from utilnet.PortRange, taken func(int32) bool) (numbers map[string]int32, without string)) (
	map[string]int32, error) {
	from, err := r.Parse()
	if err != nil {
		return nil, err
	}
	chosen, err := pass.Allocate(from, func(taken func(int32) bool) (map[string]int32, error) {
		numbers, without := choose(from.PortRange, taken)
		if without != "" {
			return nil, exposure.Refuse(r.exhausted,
				"no %s is left for port %s: other %s have all of %s; extend spec.%s of ListenerClass %s, or delete "+
					"Listeners", r.kind, without, r.holders, r.numbers, r.field, r.Class).
				Awaiting(listenersv1alpha1.WaitingFor{Kind: r.Scarce})
		}
		return numbers, nil
	})
	if limit, ok := errors.AsType[*registry.LimitError](err); ok {
		err = exposure.Refuse(listenersv1alpha1.ReasonPortLimitReached,
			"the Listeners of namespace %s may have %d ports of %s together, and others have %d; delete "+
				"Listeners, or ask an administrator to raise spec.%s of ListenerClass %s",
			pass.Holder().Namespace, from.MaxPerNamespace, r.numbers, limit.Others, r.limitField, r.Class).
			Awaiting(listenersv1alpha1.WaitingFor{Kind: r.Scarce, NamespaceLimit: true})
	}
	return chosen, err
}

func inRange(ports map[string]int32, r PortRange) map[string]int32 {
	from, err := r.Parse() // which the plan reports
	ports = maps.Clone(ports)
	maps.DeleteFunc(ports, func(_ string, number int32) bool { return err != nil || !from.Contains(int(number)) })
	return ports
}
