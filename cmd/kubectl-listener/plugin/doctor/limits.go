package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

// ranges checks that ports are left in the ranges of classes.
func (d *doctor) ranges(ctx context.Context) {
	if !d.served {
		return
	}
	var services corev1.ServiceList
	if !d.read("ListenerClass", "Listener") || d.FollowAll(ctx, check.Finding{Kind: "Service"}, &services) != check.Present {
		return
	}
	nodePorts, sharedPorts := sets.New[int32](), sets.New[int32]()
	for i := range services.Items {
		nodePorts = nodePorts.Union(portallocator.AllocatedNodePorts(&services.Items[i]))
	}
	waiting := map[[2]string]int{} // by class and reason
	for i := range d.listeners.Items {
		l := &d.listeners.Items[i]
		nodePorts, sharedPorts = nodePorts.Union(portallocator.AllocatedNodePorts(l)), sharedPorts.Union(portallocator.RecordedSharedPorts(l))
		if l.Status != nil {
			waiting[[2]string{l.Class(), l.Status.Summary.Reason}]++
		}
	}
	var findings []check.Finding
	for i := range d.classes.Items {
		class := &d.classes.Items[i]
		for _, r := range []struct {
			numbers, field, reason string
			taken                  sets.Set[int32]
		}{
			{class.NodePortRange(), "nodePorts.range", listenersv1alpha1.ReasonNodePortsExhausted, nodePorts},
			{class.SharedPortRange(), "loadBalancer.sharing.portRange", listenersv1alpha1.ReasonSharedPortsExhausted, sharedPorts},
		} {
			if numbers, err := utilnet.ParsePortRange(r.numbers); r.numbers != "" && err == nil {
				f := check.Finding{Kind: "ListenerClass", Name: class.Name}
				findings = append(findings, rangeFinding(f, *numbers, r.field, r.reason, r.taken, waiting[[2]string{class.Name, r.reason}]))
			}
		}
	}
	d.AddAll(findings, "Ranges of ports", "%d have ports left")
}

// rangeFinding returns whether ports are left in a range of a class. It is the problem of an administrator if Listeners
// wait for one: a range may be as large as needed.
func rangeFinding(f check.Finding, numbers utilnet.PortRange, field, reason string, taken sets.Set[int32], waiting int) check.Finding {
	left := numbers.Size
	for number := range taken {
		if numbers.Contains(int(number)) {
			left--
		}
	}
	text := fmt.Sprintf("%d of %d ports are left in spec.%s (%d-%d)", left, numbers.Size, field, numbers.Base, numbers.Base+numbers.Size-1)
	switch {
	case waiting > 0:
		return f.FailedBy(reason, fmt.Sprintf("%s; Listeners that wait for one: %d", text, waiting))
	case left == 0:
		return f.Warning(reason, text)
	default:
		return f.OK("%s", text)
	}
}
