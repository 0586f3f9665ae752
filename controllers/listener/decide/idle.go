package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Idle is why nothing responds at the addresses of a Listener, if that lasts, or empty.
type Idle struct{ Reason, Message string }

// NothingListens returns why nothing can respond at an address of the Listener, or empty strings: no Pod mounts it, no
// Pod has the labels that it selects, or no container declares a port. Programs may listen on ports that no container
// declares, so that is no error; no container can declare a number that its program reads from its volume. If overrides
// replace the selector of the Service, other Pods respond.
func NothingListens(s *observe.Snapshot, p *Plan, w *observe.Written, placement exposure.Placement) Idle {
	if s.Class == nil || w.Objects.Service == nil || s.ServiceTerminating() || ReplacesSelector(s, p) {
		return Idle{}
	}
	selected := slices.DeleteFunc(slices.Clone(placement.Mounting), func(pod *corev1.Pod) bool {
		return !labels.SelectorFromSet(s.Listener.Spec.ExtraPodSelectorLabels).Matches(labels.Set(pod.Labels))
	})
	switch undeclared := undeclaredPorts(w.Objects.Service, selected, s.Class.TargetsNodePorts()); {
	case len(placement.Mounting) == 0:
		return Idle{listenersv1alpha1.ReasonReserved, "reserved; no Pod mounts it"}
	case len(selected) == 0:
		return Idle{listenersv1alpha1.ReasonNoMatchingPods,
			"no Pod that mounts it has the labels of spec.extraPodSelectorLabels: " +
				labels.FormatLabels(s.Listener.Spec.ExtraPodSelectorLabels)}
	case len(undeclared) > 0:
		return Idle{listenersv1alpha1.ReasonPortNotDeclared,
			"no container of its Pods declares these ports, on which a program has to listen: " +
				strings.Join(undeclared, ", ")}
	}
	return Idle{}
}

// NotReady returns the names of the nodes of the Listener that are not ready, and whether these are all of them.
func NotReady(p *exposure.Placement) (nodes []string, all bool) {
	for _, node := range p.Nodes {
		if !claim.NodeReady(node) {
			nodes = append(nodes, node.Name)
		}
	}
	return nodes, len(nodes) > 0 && len(nodes) == len(p.Nodes)
}

// undeclaredPorts returns the ports of a Service that no container declares, except node ports if targetsNodePorts.
func undeclaredPorts(service *corev1.Service, pods []*corev1.Pod, targetsNodePorts bool) []string {
	declared := sets.New[string]()
	for _, pod := range pods {
		for _, p := range claim.ContainerPorts(pod) {
			protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
			declared.Insert(fmt.Sprintf("%d/%s", p.ContainerPort, protocol), fmt.Sprintf("%s/%s", p.Name, protocol))
		}
	}
	var undeclared []string
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		target := port.TargetPort.String()
		if port.TargetPort == (intstr.IntOrString{}) {
			target = strconv.Itoa(int(port.Port))
		}
		isDeclared := declared.Has(fmt.Sprintf("%s/%s", target, cmp.Or(port.Protocol, corev1.ProtocolTCP)))
		if !isDeclared && (!targetsNodePorts || !exposure.TargetsNodePort(port)) {
			undeclared = append(undeclared, fmt.Sprintf("%s (%s)", target, port.Name))
		}
	}
	return undeclared
}

// NodeNames returns the names of nodes, in their order.
func NodeNames(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Name
	}
	return names
}
