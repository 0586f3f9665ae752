package walk

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// fromWorkload follows each Pod of a workload. If there is none, what Kubernetes says last about it may be the cause.
func (w *Walk) fromWorkload(ctx context.Context, workload client.Object) {
	pods, owners := w.PodsOfWorkload(ctx, workload)
	for i := range pods {
		w.fromPod(ctx, &pods[i])
	}
	found := len(pods) > 0
	f := w.About(workload)
	for _, o := range owners {
		event := w.LastEvent(ctx, o, func(e *corev1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Reason == reasons.FailedCreate
		})
		if event != nil && (!found || missingReplicas(workload)) {
			w.Add(f.FailedBy(reasons.FailedCreate, event.Message))
			return
		}
	}
	if !found {
		w.Add(withoutPods(f, workload))
	}
}

// PodsOfWorkload returns the Pods of a workload, and what controls them: itself, or ReplicaSets of a Deployment, too.
func (w *Walk) PodsOfWorkload(ctx context.Context, workload client.Object) (pods []corev1.Pod, owners []client.Object) {
	var all corev1.PodList
	var replicaSets appsv1.ReplicaSetList
	w.List(ctx, &all, client.InNamespace(workload.GetNamespace()))
	owners = []client.Object{workload}
	if _, ok := workload.(*appsv1.Deployment); ok {
		w.List(ctx, &replicaSets, client.InNamespace(workload.GetNamespace()))
		for i := range replicaSets.Items {
			if metav1.IsControlledBy(&replicaSets.Items[i], workload) {
				owners = append(owners, &replicaSets.Items[i])
			}
		}
	}
	for i := range all.Items { // which is shared
		if slices.ContainsFunc(owners, func(o client.Object) bool { return metav1.IsControlledBy(&all.Items[i], o) }) {
			pods = append(pods, all.Items[i])
		}
	}
	return pods, owners
}

func withoutPods(f check.Finding, workload client.Object) check.Finding {
	if !missingReplicas(workload) {
		return f.Warning("", "has no Pod, and is to have none")
	}
	return f.Failed("", "has no Pod", "See why: "+Describe(strings.ToLower(f.Kind), workload))
}

func missingReplicas(workload client.Object) bool {
	switch o := workload.(type) {
	case *appsv1.StatefulSet:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.Deployment:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.ReplicaSet:
		return o.Status.Replicas < ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		return o.Status.CurrentNumberScheduled < o.Status.DesiredNumberScheduled
	case *batchv1.Job:
		return o.Status.Active+o.Status.Succeeded+o.Status.Failed == 0
	default:
		return false
	}
}
