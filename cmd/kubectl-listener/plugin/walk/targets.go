package walk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// targets follows the node ports of a Service into its Pods, if they lead to the container ports of the same numbers.
// pod is the only Pod that matters, or nil.
func (w *Walk) targets(ctx context.Context, listener *listenersv1alpha1.Listener, service *corev1.Service, pod *corev1.Pod) {
	ports := slices.DeleteFunc(slices.Clone(service.Spec.Ports), func(p corev1.ServicePort) bool { return !exposure.TargetsNodePort(&p) })
	if len(ports) == 0 {
		return
	}
	pods := w.PodsOf(ctx, listener)
	for i := range pods {
		if pod != nil && pod.UID != pods[i].UID {
			continue
		}
		for j := range ports {
			w.target(ctx, listener, &ports[j], &pods[i])
		}
	}
}

// target reports what contradicts that the program in a Pod listens on a node port: a probe of the declared port, or
// another Listener that leads to another port of the same name.
func (w *Walk) target(ctx context.Context, listener *listenersv1alpha1.Listener, port *corev1.ServicePort, pod *corev1.Pod) {
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	const page = "docs/choosing-a-class.md#node-ports-that-the-pods-listen-on"
	if probe := probeOf(pod, port.Port); probe != "" && (!claim.PodReady(pod) || lastRestarted(pod, w.Now()) != nil) {
		w.Add(f.Failed("", fmt.Sprintf("%s connects to port %d, and by target: Same of ListenerClass %s, the program listens on %d instead", probe, port.Port, listener.Class(), port.NodePort),
			"Use exec in the probe, with the port that the program read when it started, and not the one in the volume, which may change: "+page).Aside())
	}
	addresses, _ := w.PodListeners(ctx, pod)
	for _, volume := range slices.Sorted(maps.Keys(addresses.Spec.Listeners)) {
		other := addresses.Spec.Listeners[volume]
		for _, a := range other.IngressAddresses {
			if number, ok := a.Ports[port.Name]; ok && number != port.NodePort && other.ListenerName != listener.Name {
				w.Add(f.Warning("", fmt.Sprintf("clients of Listener %s reach it at port %d, by target: Same of ListenerClass %s, and clients of Listener %s at another port: "+
					"the program has to listen on both, or one of the Listeners needs another class: %s", listener.Name, port.NodePort, listener.Class(), other.ListenerName, page)))
				break
			}
		}
	}
}

// probeOf describes a probe of a Pod that connects to a port, or returns "".
func probeOf(pod *corev1.Pod, number int32) string {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for i, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			var to int32
			switch {
			case probe == nil:
			case probe.HTTPGet != nil:
				to = exposure.ContainerPort(pod, probe.HTTPGet.Port, corev1.ProtocolTCP)
			case probe.TCPSocket != nil:
				to = exposure.ContainerPort(pod, probe.TCPSocket.Port, corev1.ProtocolTCP)
			case probe.GRPC != nil:
				to = probe.GRPC.Port
			}
			if to == number {
				return fmt.Sprintf("the %s of container %s", []string{"startupProbe", "livenessProbe", "readinessProbe"}[i], c.Name)
			}
		}
	}
	return ""
}
