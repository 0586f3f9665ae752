package listener

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"

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
