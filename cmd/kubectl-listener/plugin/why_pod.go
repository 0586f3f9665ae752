package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// podFinding returns the state of a Pod. If it does not run, the cause may be one of its volumes.
func podFinding(pod *corev1.Pod) finding {
	f := finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	scheduled := podCondition(pod, corev1.PodScheduled)
	switch {
	case pod.DeletionTimestamp != nil:
		return f.warning("", "is being deleted")
	case claim.PodFinished(pod):
		return f.warning("", fmt.Sprintf("has finished (%s), and mounts nothing any more", pod.Status.Phase))
	case pod.Spec.NodeName == "" && scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return f.failed(scheduled.Reason, scheduled.Message, "Look at what the scheduler says: kubectl describe pod "+pod.Name).because()
	case pod.Spec.NodeName == "":
		return f.failed("", "is not bound to a node yet", "Wait for the scheduler. If it lasts: kubectl describe pod "+pod.Name).because()
	case pod.Status.Phase != corev1.PodRunning:
		return f.failed("", fmt.Sprintf("is %s on node %s", pod.Status.Phase, pod.Spec.NodeName),
			"Look at its containers and events: kubectl describe pod "+pod.Name).because()
	}
	if ready := podCondition(pod, corev1.PodReady); ready != nil && ready.Status != corev1.ConditionTrue {
		return f.warning(ready.Reason, fmt.Sprintf("runs on node %s, and is not ready", pod.Spec.NodeName))
	}
	return f.ok("runs on node %s", pod.Spec.NodeName)
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// mounted is a listener volume of a Pod.
type mounted struct{ volume, claim, listener string }

// podAddresses follows the addresses of those volumes of a Pod that match: into its PodListeners, and into the files.
func (w *walk) podAddresses(ctx context.Context, pod *corev1.Pod, matches func(mounted) bool) {
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) {
		return // it has no addresses of its own
	}
	addresses := &listenersv1alpha1.PodListeners{}
	f := finding{Kind: "PodListeners", Namespace: pod.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}
	switch w.follow(ctx, f, addresses) {
	case forbidden:
		return
	case missing:
		w.add(f.failed("", fmt.Sprintf("does not exist, although Pod %s is bound to node %s", pod.Name, pod.Spec.NodeName), remedyOperator))
		return
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		entry, known := addresses.Spec.Listeners[volume.Name]
		switch {
		case !matches(mounted{volume.Name, index.ClaimName(pod, volume), entry.ListenerName}):
		case !known:
			w.add(f.failed("", fmt.Sprintf("has no entry for volume %q", volume.Name), remedyOperator))
		case len(entry.IngressAddresses) == 0:
			w.add(f.failed(listenersv1alpha1.ReasonWaitingForAddress, fmt.Sprintf("volume %q has no address yet", volume.Name),
				remedyFor(listenersv1alpha1.ReasonWaitingForAddress)).because())
		default:
			w.add(f.ok("volume %q: %s", volume.Name, columns.Address(entry.IngressAddresses)))
			w.files(ctx, pod, volume.Name)
		}
	}
}

// files follows the addresses of a volume into the Pod. The kubelet starts no container before the volume has its
// files.
func (w *walk) files(ctx context.Context, pod *corev1.Pod, volume string) {
	w.agent(ctx, pod.Spec.NodeName)
	f := finding{Kind: "Volume", Name: volume}
	if pod.Status.Phase == corev1.PodRunning {
		w.add(f.ok("has its files in Pod %s", pod.Name))
		return
	}
	event := w.lastEvent(ctx, pod, func(e *corev1.Event) bool {
		return e.Reason == "FailedMount" && strings.Contains(e.Message, fmt.Sprintf("%q", volume))
	})
	if event == nil {
		w.add(f.warning("", fmt.Sprintf("Pod %s does not run yet, so the files may not be there", pod.Name)))
		return
	}
	w.add(f.failed(event.Reason, event.Message, "Look at the log of the node agent on node "+pod.Spec.NodeName+": kubectl logs --all-namespaces "+
		"--selector app.kubernetes.io/component=node-agent --prefix"))
}

// agent follows the node agent of a node: a driver that is not registered with the kubelet cannot mount volumes.
func (w *walk) agent(ctx context.Context, node string) {
	var csiNode storagev1.CSINode
	f := finding{Kind: "Node", Name: node}
	switch found := w.follow(ctx, f, &csiNode); {
	case found == forbidden:
	case found == missing || !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == names.Driver }):
		w.add(f.failed("NoNodeAgent", "no node agent is registered with its kubelet", "Find out why the node agent does not run there: kubectl listener doctor"))
	default:
		w.add(f.ok("has a node agent"))
	}
}

// portsOf describes the ports of a Service, sorted by name.
func portsOf(service *corev1.Service) string {
	ports := map[string]string{}
	for _, p := range service.Spec.Ports {
		text := fmt.Sprintf("%s %d", p.Name, p.Port)
		if p.NodePort != 0 {
			text += fmt.Sprintf(":%d", p.NodePort)
		}
		ports[p.Name] = text + "/" + string(p.Protocol)
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		all = append(all, ports[name])
	}
	return strings.Join(all, ", ")
}
