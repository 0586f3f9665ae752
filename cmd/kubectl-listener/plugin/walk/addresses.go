package walk

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// podAddresses follows the volumes of a Pod whose claim or Listener matches, into PodListeners and files.
func (w *Walk) podAddresses(ctx context.Context, pod *corev1.Pod, matches func(claim, listener string) bool) {
	node := w.pod(ctx, pod)
	if pod.Spec.NodeName == "" || claim.PodFinished(pod) {
		return // it has no addresses of its own
	}
	addresses := &listenersv1alpha1.PodListeners{}
	f := check.Finding{Kind: "PodListeners", Namespace: pod.Namespace,
		Name: listenersv1alpha1.PodListenersName(pod.UID)}.Since(waitsSince(pod))
	missing := f.LeftToOperator("",
		fmt.Sprintf("does not exist, although Pod %s is bound to node %s", pod.Name, pod.Spec.NodeName))
	missing = w.said(ctx, pod, check.HasReason(listenersv1alpha1.ReasonQuotaExceeded,
		listenersv1alpha1.ReasonRequestRejected), missing)
	if !w.Require(ctx, addresses, missing) {
		return
	}
	for volume := range check.Each(pod.Spec.Volumes) {
		entry, known := addresses.Spec.Listeners[volume.Name]
		switch {
		case !matches(claim.NameOf(pod, volume), entry.ListenerName):
		case !known:
			w.Add(f.LeftToOperator("", fmt.Sprintf("has no entry for volume %q", volume.Name)))
		case len(entry.IngressAddresses) == 0:
			waiting := f.FailedBy(listenersv1alpha1.ReasonWaitingForAddress,
				fmt.Sprintf("volume %q has no address yet", volume.Name)).Symptom()
			w.Add(w.said(ctx, pod, check.HasReason(waiting.Reason), waiting))
		default:
			w.Add(w.addressFinding(ctx, f, &addresses.Spec, volume.Name, pod))
			service := w.ServiceOf(ctx, pod.Namespace, entry.ListenerName)
			w.policies(ctx, pod, entry.ListenerName, service)
			w.otherTargets(pod, entry.ListenerName, service, addresses.Spec.Listeners)
			w.files(ctx, pod, volume.Name, node)
		}
	}
}

// addressFinding returns the address of a volume, or that it has changed since the Pod started.
func (w *Walk) addressFinding(ctx context.Context, f check.Finding, spec *listenersv1alpha1.PodListenersSpec,
	volume string, pod *corev1.Pod) check.Finding {
	now, start := columns.Address(spec.Listeners[volume].IngressAddresses), columns.Address(spec.StartAddresses[volume])
	if !slices.Contains(spec.Outdated(), volume) {
		return f.OK("volume %q: %s", volume, now)
	}
	f = f.Failed(listenersv1alpha1.ReasonPodsOutdated,
		fmt.Sprintf("volume %q: %s, but the Pod started with %s", volume, now, start),
		"If its program uses the address that it read at its start, restart the Pod; otherwise there is nothing to "+
			"do: docs/address-changes.md")
	if slices.Contains(spec.NeedsRestart(), volume) {
		f.Remedy = "Its class restarts the Pods of a controller one after the other. See the events of all of them " +
			"for what keeps it from doing so: kubectl events --namespace " + pod.Namespace + " --types Warning"
	}
	restarts := check.HasReason(listenersv1alpha1.ReasonEvictionRefused, listenersv1alpha1.ReasonEvictionDelayed,
		listenersv1alpha1.ReasonNotEvicted)
	if event := w.LastEvent(ctx, pod, restarts); event != nil {
		return f.FailedBy(event.Reason, f.Message+"; the operator says: "+event.Message)
	}
	return f
}

// otherTargets follows node ports that are container ports, too. A program cannot listen there alone if another
// Listener of the Pod leads to another port of the same name.
func (w *Walk) otherTargets(pod *corev1.Pod, name string, service *corev1.Service,
	all map[string]listenersv1alpha1.PodListener) {
	for _, volume := range slices.Sorted(maps.Keys(all)) {
		for _, port := range ptr.Deref(service, corev1.Service{}).Spec.Ports {
			other, differs := all[volume], func(a listenersv1alpha1.IngressAddress) bool {
				number, ok := a.Ports[port.Name]
				return ok && number != port.NodePort
			}
			if other.ListenerName != name && exposure.TargetsNodePort(&port) &&
				slices.ContainsFunc(other.IngressAddresses, differs) {
				w.Add(check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}.Warning("",
					fmt.Sprintf("clients of Listener %s reach it at port %d, by target: Same of the ListenerClass, "+
						"and clients of Listener %s at another port: the program has to listen on both, or one of "+
						"the Listeners needs another class: %s", name, port.NodePort, other.ListenerName, targetSame)))
			}
		}
	}
}

// files follows the addresses of a volume into the Pod. No container starts before the volume has its files.
func (w *Walk) files(ctx context.Context, pod *corev1.Pod, volume string, node nodeState) {
	f := check.Finding{Kind: "Volume", Name: volume}
	ofVolume := func(e *corev1.Event) bool {
		return e.Reason == reasons.FailedMount && strings.Contains(e.Message, fmt.Sprintf("%q", volume))
	}
	switch {
	case node == notResponding:
	case pod.Status.Phase == corev1.PodRunning && node == withoutAgent:
		w.Add(f.Warning("", fmt.Sprintf("the files in Pod %s stay as they are until a node agent runs on its node",
			pod.Name)))
	case pod.Status.Phase == corev1.PodRunning:
		w.Add(mountFinding(f, pod, volume))
	default:
		f = f.Warning("", fmt.Sprintf("Pod %s does not run yet, so the files may not be there", pod.Name))
		if event := w.LastEvent(ctx, pod, ofVolume); event != nil {
			f = f.FailedBy(reasons.FailedMount, event.Message, "{node}", pod.Spec.NodeName).Since(waitsSince(pod))
		}
		w.Add(f)
	}
}

// mountFinding returns whether the containers of a Pod see the files of a volume. Kubernetes mounts a part of it only
// once, and probes should not read files that change.
func mountFinding(f check.Finding, pod *corev1.Pod, volume string) check.Finding {
	var containers, parts, probes []string
	for c := range check.Each(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)) {
		for _, m := range c.VolumeMounts {
			if m.Name != volume {
				continue
			}
			containers = append(containers, c.Name)
			if m.SubPath != "" || m.SubPathExpr != "" {
				parts = append(parts, c.Name)
			}
			if probeReads(c.ReadinessProbe, m.MountPath) || probeReads(c.LivenessProbe, m.MountPath) {
				probes = append(probes, c.Name)
			}
		}
	}
	switch {
	case len(containers) == 0:
		return f.Warning("", fmt.Sprintf("no container of Pod %s mounts it, so no program sees its files: add it to "+
			"volumeMounts", pod.Name))
	case len(parts) > 0:
		return f.Warning("", fmt.Sprintf("container %s of Pod %s mounts it with subPath, where files do not follow "+
			"changes of the address: mount the whole volume", parts[0], pod.Name))
	case len(probes) > 0:
		return f.Warning("", fmt.Sprintf("a probe of container %s of Pod %s reads it, and fails in all Pods at once "+
			"when their ports change, because programs still listen on the port that they read at their start: use "+
			"that port in the probe: %s", probes[0], pod.Name, targetSame))
	}
	return f.OK("has its files in Pod %s", pod.Name)
}

// paths matches what may be a path in a command.
var paths = regexp.MustCompile(`[\pL\p{Nd}/._-]+`)

// probeReads reports whether the command of a probe names a directory, or something in it.
func probeReads(probe *corev1.Probe, directory string) bool {
	if probe == nil || probe.Exec == nil {
		return false
	}
	return slices.ContainsFunc(paths.FindAllString(strings.Join(probe.Exec.Command, " "), -1), func(word string) bool {
		return strings.HasPrefix(path.Clean(word)+"/", path.Clean(directory)+"/")
	})
}
