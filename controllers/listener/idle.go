package listener

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// idle is why nothing responds at the addresses of a Listener, if that lasts, or empty.
type idle struct{ idleReason, idleMessage string }

// nothingListens returns why nothing can respond at an address of the Listener, or empty strings: no Pod mounts it, no
// Pod has the labels that it selects, or no container declares a port. Programs may listen on ports that no container
// declares, so that is no error; no container can declare a number that its program reads from its volume. If overrides
// replace the selector of the Service, other Pods respond.
func nothingListens(s *snapshot, p *plan, w *written, placement exposure.Placement) idle {
	if s.class == nil || w.service == nil || s.serviceTerminating() || replacesSelector(s, p) {
		return idle{}
	}
	selected := slices.DeleteFunc(slices.Clone(placement.Mounting), func(pod *corev1.Pod) bool {
		return !labels.SelectorFromSet(s.listener.Spec.ExtraPodSelectorLabels).Matches(labels.Set(pod.Labels))
	})
	switch undeclared := undeclaredPorts(w.service, selected, s.class.TargetsNodePorts()); {
	case len(placement.Mounting) == 0:
		return idle{listenersv1alpha1.ReasonReserved, "reserved; no Pod mounts it"}
	case len(selected) == 0:
		return idle{listenersv1alpha1.ReasonNoMatchingPods, "no Pod that mounts it has the labels of spec.extraPodSelectorLabels: " + labels.FormatLabels(s.listener.Spec.ExtraPodSelectorLabels)}
	case len(undeclared) > 0:
		return idle{listenersv1alpha1.ReasonPortNotDeclared, "no container of its Pods declares these ports, on which a program has to listen: " + strings.Join(undeclared, ", ")}
	default:
		return idle{}
	}
}

// notReady returns the names of the nodes of the Listener that are not ready, and whether these are all of them.
func notReady(p *exposure.Placement) (nodes []string, all bool) {
	for _, node := range p.Nodes {
		if !claim.NodeReady(node) {
			nodes = append(nodes, node.Name)
		}
	}
	return nodes, len(nodes) > 0 && len(nodes) == len(p.Nodes)
}

// undeclaredPorts returns the ports of a Service that no container of the Pods declares, by its number or by its name.
// targetsNodePorts states that target ports which are node ports do not count.
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

// idleFor returns why nothing responds at the addresses, if that lasts, and the rest of the period after which it is
// reported, or 0. Kubernetes has waited before it says that a node is not ready.
func (x *settler) idleFor(s *snapshot, p *plan, w *written, placement exposure.Placement) (idle, time.Duration) {
	found, ready := nothingListens(s, p, w, placement), condition(s.listener, listenersv1alpha1.ListenerReady)
	isReported := ready.Status == metav1.ConditionTrue &&
		slices.Contains([]string{listenersv1alpha1.ReasonReserved, listenersv1alpha1.ReasonNoMatchingPods, listenersv1alpha1.ReasonPortNotDeclared}, ready.Reason)
	if nodes, all := notReady(&placement); all {
		found = idle{listenersv1alpha1.ReasonNodesNotReady, "no node of its addresses is ready, so they may not respond: " + columns.Names(nodes)}
	} else if found.idleReason != "" && !isReported {
		if remaining := x.idle - x.age(unresponsive(s.listener.UID), ""); remaining > 0 {
			return idle{}, remaining
		}
	}
	x.Delete(unresponsive(s.listener.UID))
	return found, 0
}
