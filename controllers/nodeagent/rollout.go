package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// rollout is what is known about the rollout of the agents besides the status of the DaemonSet.
type rollout struct {
	// since is the first generation of the DaemonSet with its current template.
	since int64
	// down are the nodes that are not ready, like their agents. Nobody can replace these agents, so a rollout does not
	// wait for them. outdated is how many of them are not up to date.
	down     []string
	outdated int32
	// unready has since when each other agent is not ready, and late are the Pods of those for which that is too long,
	// each with its node.
	unready []time.Time
	late    []string
	// unsuitable are the nodes where no agent can run, each with the reason.
	unsuitable []string
}

// observeRollout reads the nodes, and the Pods of the agents.
func (r *Reconciler) observeRollout(ctx context.Context, agents *appsv1.DaemonSet) (found rollout, err error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy), r.Client.List(ctx, &pods, client.InNamespace(r.Namespace))); err != nil {
		return found, fmt.Errorf("listing nodes, and pods of agents: %w", err)
	}
	down, back := map[string]bool{}, map[string]time.Time{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		down[node.Name] = !claim.NodeReady(node)
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				back[node.Name] = c.LastTransitionTime.Time
			}
		}
		if label := installation.Unsuitable(node); label != "" {
			found.unsuitable = append(found.unsuitable, node.Name+" ("+label+")")
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case !names.IsNodeAgent(pod) || claim.PodReady(pod) && pod.DeletionTimestamp == nil:
		case !down[pod.Spec.NodeName]:
			since := unreadySince(pod)
			if ready := back[pod.Spec.NodeName]; ready.After(since) {
				since = ready
			}
			found.unready = append(found.unready, since)
			if r.Clock.Since(since) >= rolloutTimeout {
				found.late = append(found.late, fmt.Sprintf("Pod %s on node %s", pod.Name, cmp.Or(pod.Spec.NodeName, "?")))
			}
		default:
			found.down = append(found.down, pod.Spec.NodeName)
			if pod.Labels[names.LabelTemplateGeneration] != agents.Annotations[appsv1.DeprecatedTemplateGeneration] {
				found.outdated++
			}
		}
	}
	return found, nil
}

// unreadySince returns since when a Pod that is not ready, or is being deleted, cannot be used.
func unreadySince(pod *corev1.Pod) time.Time {
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Time
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// observeTemplate records since which generation the DaemonSet has its template. Other changes of the DaemonSet replace
// no agent.
func (r *Reconciler) observeTemplate(agents *appsv1.DaemonSet) int64 {
	template := string(agents.UID) + "/" + agents.Annotations[appsv1.DeprecatedTemplateGeneration]
	if template != r.template {
		r.template, r.templateSince = template, agents.Generation
	}
	return r.templateSince
}
