package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
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
	// unready has since when each other agent is not ready, and late the Pods of those for which that is too long.
	unready []time.Time
	late    []string
	// unsuitable are the nodes where no agent can run, each with the reason.
	unsuitable []string
}

func (r *Reconciler) observeRollout(ctx context.Context, agents *appsv1.DaemonSet) (found rollout, err error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy),
		r.Client.List(ctx, &pods, client.InNamespace(r.Namespace))); err != nil {
		return found, fmt.Errorf("listing nodes, and pods of agents: %w", err)
	}
	byName := map[string]*corev1.Node{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		byName[node.Name] = node
		if label := installation.Unsuitable(node); label != "" {
			found.unsuitable = append(found.unsuitable, node.Name+" ("+label+")")
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if names.IsNodeAgent(pod) && (!claim.PodReady(pod) || pod.DeletionTimestamp != nil) {
			found.add(pod, byName[pod.Spec.NodeName], agents.Annotations[appsv1.DeprecatedTemplateGeneration],
				r.Clock.Now())
		}
	}
	return found, nil
}

// add adds an agent that is not ready, or is being deleted. node is nil if the Pod is bound to none that exists.
func (f *rollout) add(agent *corev1.Pod, node *corev1.Node, template string, now time.Time) {
	if node != nil && !claim.NodeReady(node) {
		f.down = append(f.down, node.Name)
		if agent.Labels[names.LabelTemplateGeneration] != template {
			f.outdated++
		}
		return
	}
	since := unreadySince(agent, node)
	f.unready = append(f.unready, since)
	if now.Sub(since) >= rolloutTimeout {
		f.late = append(f.late, fmt.Sprintf("Pod %s on node %s", agent.Name, cmp.Or(agent.Spec.NodeName, "?")))
	}
}

// unreadySince returns since when a Pod that is not ready, or is being deleted, cannot be used on a node that is ready.
func unreadySince(pod *corev1.Pod, node *corev1.Node) time.Time {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			since = c.LastTransitionTime.Time
		}
	}
	if pod.DeletionTimestamp != nil {
		since = pod.DeletionTimestamp.Time
	}
	if node != nil {
		if _, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); ready != nil &&
			ready.LastTransitionTime.After(since) {
			since = ready.LastTransitionTime.Time
		}
	}
	return since
}

// observeTemplate records since which generation the DaemonSet has its template. No other change replaces an agent.
func (r *Reconciler) observeTemplate(agents *appsv1.DaemonSet) int64 {
	template := string(agents.UID) + "/" + agents.Annotations[appsv1.DeprecatedTemplateGeneration]
	if template != r.template {
		r.template, r.templateSince = template, agents.Generation
	}
	return r.templateSince
}

func (r *Reconciler) observeUncreated(uncreated int32) time.Time {
	if uncreated != r.uncreated || r.uncreatedSince.IsZero() {
		r.uncreated, r.uncreatedSince = uncreated, r.Clock.Now()
	}
	return r.uncreatedSince
}
