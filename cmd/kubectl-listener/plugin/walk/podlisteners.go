package walk

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// podAddresses follows the volumes of a Pod whose claim or Listener matches, into PodListeners and files.
func (w *Walk) podAddresses(ctx context.Context, pod *corev1.Pod, matches func(claim, listener string) bool) {
	node := w.pod(ctx, pod)
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) {
		return // it has no addresses of its own
	}
	addresses := &listenersv1alpha1.PodListeners{}
	f := check.Finding{Kind: "PodListeners", Namespace: pod.Namespace, Name: listenersv1alpha1.PodListenersName(pod.UID)}.Since(waitsSince(pod))
	missing := f.Failed("", fmt.Sprintf("does not exist, although Pod %s is bound to node %s", pod.Name, pod.Spec.NodeName), check.RemedyOperator)
	missing = w.said(ctx, pod, check.HasReason(listenersv1alpha1.ReasonQuotaExceeded, listenersv1alpha1.ReasonRequestRejected), missing)
	if !w.Require(ctx, addresses, missing) {
		return
	}
	for volume := range check.Each(pod.Spec.Volumes) {
		entry, known := addresses.Spec.Listeners[volume.Name]
		switch {
		case !matches(claim.NameOf(pod, volume), entry.ListenerName):
		case !known:
			w.Add(f.Failed("", fmt.Sprintf("has no entry for volume %q", volume.Name), check.RemedyOperator))
		case len(entry.IngressAddresses) == 0:
			waiting := f.FailedBy(listenersv1alpha1.ReasonWaitingForAddress, fmt.Sprintf("volume %q has no address yet", volume.Name)).Because()
			w.Add(w.said(ctx, pod, check.HasReason(waiting.Reason), waiting))
		default:
			w.Add(w.addressFinding(ctx, f, &addresses.Spec, volume.Name, pod))
			service := w.Service(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: names.Service(entry.ListenerName)})
			w.policies(ctx, pod, entry.ListenerName, service)
			w.otherTargets(pod, entry.ListenerName, service, addresses.Spec.Listeners)
			w.files(ctx, pod, volume.Name, node)
		}
	}
}

// addressFinding returns the address of a volume, or that it has changed since the Pod started.
func (w *Walk) addressFinding(ctx context.Context, f check.Finding, spec *listenersv1alpha1.PodListenersSpec, volume string, pod *corev1.Pod) check.Finding {
	now, start := columns.Address(spec.Listeners[volume].IngressAddresses), columns.Address(spec.StartAddresses[volume])
	if !slices.Contains(spec.Outdated(), volume) {
		return f.OK("volume %q: %s", volume, now)
	}
	f = f.Failed(listenersv1alpha1.ReasonPodsOutdated, fmt.Sprintf("volume %q: %s, but the Pod started with %s", volume, now, start),
		"If its program uses the address that it read at its start, restart the Pod; otherwise there is nothing to do: docs/address-changes.md")
	if slices.Contains(spec.NeedsRestart(), volume) {
		f.Remedy = "Its class restarts the Pods of a controller one after the other. See the events of all of them for what keeps it from doing so: " +
			"kubectl events --namespace " + pod.Namespace + " --types Warning"
	}
	restarts := check.HasReason(listenersv1alpha1.ReasonEvictionRefused, listenersv1alpha1.ReasonEvictionDelayed, listenersv1alpha1.ReasonNotEvicted)
	if event := w.LastEvent(ctx, pod, restarts); event != nil {
		return f.FailedBy(event.Reason, f.Message+"; the operator says: "+event.Message)
	}
	return f
}

// targetSame is where the page about target: Same of a class says which port a program listens on.
const targetSame = "docs/choosing-a-class.md#node-ports-that-the-pods-listen-on"

// otherTargets follows node ports that are container ports, too. A program cannot listen there alone if another
// Listener of the Pod leads to another port of the same name.
func (w *Walk) otherTargets(pod *corev1.Pod, name string, service *corev1.Service, all map[string]listenersv1alpha1.PodListener) {
	for _, volume := range slices.Sorted(maps.Keys(all)) {
		for _, port := range ptr.Deref(service, corev1.Service{}).Spec.Ports {
			other, differs := all[volume], func(a listenersv1alpha1.IngressAddress) bool {
				number, ok := a.Ports[port.Name]
				return ok && number != port.NodePort
			}
			if other.ListenerName != name && exposure.TargetsNodePort(&port) && slices.ContainsFunc(other.IngressAddresses, differs) {
				w.Add(check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}.Warning("", fmt.Sprintf("clients of Listener %s reach it at port %d, by target: "+
					"Same of the ListenerClass, and clients of Listener %s at another port: the program has to listen on both, or one of the Listeners needs another class: %s",
					name, port.NodePort, other.ListenerName, targetSame)))
			}
		}
	}
}
