package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// rolloutTimeout is how long a rollout of the agents may take before the operator is degraded. It suits clusters of any
// size, because a rollout replaces a tenth of the agents at a time.
const rolloutTimeout = 15 * time.Minute

// creationTimeout is how long Pods of agents may be missing without one more being created. The DaemonSet controller
// creates them at once, some hundred at a time, so then they are rejected, of which only its events tell.
const creationTimeout = 10 * time.Second

type rollout struct {
	// daemonSet is of the agents, or empty if there is none.
	daemonSet *appsv1.DaemonSet
	// since is the first generation of the DaemonSet with its current template.
	since int64
	// uncreatedSince is since when the same number of Pods of agents is missing.
	uncreatedSince time.Time
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

func (r *Reconciler) observeRollout(ctx context.Context, daemonSet *appsv1.DaemonSet) (*rollout, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy),
		r.Client.List(ctx, &pods, client.InNamespace(r.Namespace))); err != nil {
		return nil, fmt.Errorf("listing nodes, and pods of agents: %w", err)
	}
	found, byName := &rollout{daemonSet: daemonSet}, map[string]*corev1.Node{}
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
			found.add(pod, byName[pod.Spec.NodeName], r.Clock.Now())
		}
	}
	if uncreated := found.uncreated(); uncreated != r.uncreated || r.uncreatedSince.IsZero() {
		r.uncreated, r.uncreatedSince = uncreated, r.Clock.Now()
	}
	found.uncreatedSince = r.uncreatedSince
	return found, nil
}

// add adds an agent that is not ready, or is being deleted. node is nil if the Pod is bound to none that exists.
func (f *rollout) add(agent *corev1.Pod, node *corev1.Node, now time.Time) {
	if node != nil && !claim.NodeReady(node) {
		f.down = append(f.down, node.Name)
		if agent.Labels[names.LabelTemplateGeneration] != f.daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration] {
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
	if node == nil {
		return since
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// observeTemplate records since which generation the DaemonSet has its template. No other change replaces an agent.
func (r *Reconciler) observeTemplate(f *rollout, daemonSet *appsv1.DaemonSet) {
	template := string(daemonSet.UID) + "/" + daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]
	if template != r.template {
		r.template, r.templateSince = template, daemonSet.Generation
	}
	f.daemonSet, f.since = daemonSet, r.templateSince
}

func (f *rollout) uncreated() int32 {
	return f.daemonSet.Status.DesiredNumberScheduled - f.daemonSet.Status.CurrentNumberScheduled
}

// ended reports whether a rollout has ended: once, each node that should have an agent had an up-to-date one that was
// ready, except nodes that are down, and agents that have not become ready for long. From then on, only another
// template starts a rollout, not an agent that is deleted, or a node that joins or restarts.
func (f *rollout) ended(before *metav1.Condition) bool {
	status := f.daemonSet.Status
	updated := status.UpdatedNumberScheduled + f.outdated
	switch {
	case status.ObservedGeneration < f.since:
		return false
	case before != nil && before.Reason == operatorv1alpha1.ReasonAgentsRolledOut:
		return updated >= status.CurrentNumberScheduled
	default:
		return updated >= status.DesiredNumberScheduled &&
			int(status.NumberReady)+len(f.down)+len(f.late) >= int(status.DesiredNumberScheduled)
	}
}

func (f *rollout) message() string {
	status := f.daemonSet.Status
	if status.ObservedGeneration < f.since {
		return "the DaemonSet controller has not observed the latest change yet"
	}
	text := fmt.Sprintf("of the agents of %d nodes, %d are up to date and %d ready", status.DesiredNumberScheduled,
		status.UpdatedNumberScheduled, status.NumberReady)
	if min(status.UpdatedNumberScheduled, status.NumberReady) >= status.DesiredNumberScheduled {
		text = fmt.Sprintf("the agents of all %d nodes are ready", status.DesiredNumberScheduled)
	}
	return joined(text, listed("nodes that are down: ", f.down), listed("agents that do not become ready: ", f.late),
		listed("nodes where no agent can run: ", f.unsuitable))
}

// stalled returns why the agents need intervention, or "". current is the condition Progressing.
func (f *rollout) stalled(current metav1.Condition, now time.Time, deadlines *requests.Deadlines) (reason string) {
	if r := current.Reason; r != operatorv1alpha1.ReasonAgentsRollout && r != operatorv1alpha1.ReasonAgentsRolledOut {
		return ""
	}
	check := func(since time.Time, timeout time.Duration, late string) {
		if left := since.Add(timeout).Sub(now); left <= 0 {
			reason = cmp.Or(reason, late)
		} else {
			deadlines.Add(left, late)
		}
	}
	if f.uncreated() > 0 {
		check(f.uncreatedSince, creationTimeout, operatorv1alpha1.ReasonAgentsNotCreated)
	}
	if current.Status == metav1.ConditionTrue {
		check(current.LastTransitionTime.Time, rolloutTimeout, operatorv1alpha1.ReasonAgentsNotReady)
	}
	for _, since := range f.unready {
		check(since, rolloutTimeout, operatorv1alpha1.ReasonAgentsNotReady)
	}
	return reason
}

func listed(text string, all []string) string {
	if len(all) == 0 {
		return ""
	}
	return text + message.List(all)
}

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}
