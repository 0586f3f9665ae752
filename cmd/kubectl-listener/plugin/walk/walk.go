// Package walk follows the path of an address from one object to the next, and says what it finds, with a file for each
// kind of object. `why` prints the walk from one object, `doctor` what the walks from all objects find, and `map` shows
// it. It must change nothing, and repeat no rule: what the operator knows is in conditions, events and its own
// packages, and what reasons mean is in package reasons.
package walk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Walk follows the path of an address, and adds what it finds to a report.
type Walk struct {
	*check.Examination
	// mounting are the Pods of namespaces by the claims that they mount. The walks of a command share it.
	mounting map[string]map[string][]corev1.Pod
	// asked states that a user asks about one object. Other walks read nothing that gather must not read.
	asked bool
}

func New(x *check.Examination) *Walk {
	return &Walk{Examination: x, mounting: map[string]map[string][]corev1.Pod{}}
}

// Apart returns a walk with a report of its own, which may use what this one has read, and stops after its error.
func (w *Walk) Apart() *Walk {
	x := &check.Examination{Client: w.Client, Report: check.Report{Gathered: w.Gathered}, Err: w.Err}
	return &Walk{Examination: x, mounting: w.mounting}
}

func (w *Walk) Examine(ctx context.Context, o client.Object) {
	w.asked = true
	namespace, name := tenancy.Namespace(), o.GetNamespace()
	if w.Get(ctx, types.NamespacedName{Name: name}, namespace) == check.Present && namespace.DeletionTimestamp != nil {
		w.Add(check.Finding{Kind: "Namespace", Name: name}.Failed("", deletion(namespace)+", so nothing can be "+
			"created in it",
			"Use another namespace. To see what its deletion waits for: kubectl get namespace "+name+" --output yaml"))
	}
	connect := w.Command("connect", o)
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		connect = "kubectl listener connect POD --namespace " + o.Namespace
		w.fromClaim(ctx, o)
	case *listenersv1alpha1.Listener:
		w.fromListener(ctx, o)
	default:
		w.warn(w.About(o), Misplaced(w.About(o).Kind, o))
		w.fromWorkload(ctx, o)
	}
	if w.operator(ctx); namespace.Name != "" {
		w.warn(check.Finding{Kind: "Namespace", Name: name}, keys.Problems("a Namespace", namespace))
	}
	w.Right = "No step is wrong. This command does not test whether the program responds. Run, from where the " +
		"clients are: " + connect
}

// Step follows the part of the path that no other object of its kind is on: of a claim, without its Pods and its
// Listener, and of a Listener, without its Pods.
func (w *Walk) Step(ctx context.Context, o client.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		w.fromPod(ctx, o)
	case *corev1.PersistentVolumeClaim:
		f := w.Claim(ctx, o)
		w.warn(f, keys.Problems("a claim", o))
		if w.Add(f); o.Spec.VolumeName != "" && f.State != check.Failed {
			w.volume(ctx, o)
		}
	case *listenersv1alpha1.Listener:
		w.listener(ctx, o, nil)
	}
}

// All lists the objects of these kinds, and reports those that the user may not list. It returns whether all were read.
func (w *Walk) All(ctx context.Context, lists ...client.ObjectList) bool {
	read := true
	for _, list := range lists {
		kind, _ := w.Client.GroupVersionKindFor(list) // which is of the scheme
		f := check.Finding{Kind: strings.TrimSuffix(kind.Kind, "List")}
		read = w.FollowAll(ctx, f, list) == check.Present && read
	}
	return read
}

func (w *Walk) Command(name string, o client.Object) string {
	f := w.About(o)
	return fmt.Sprintf("kubectl listener %s %s/%s --namespace %s", name, check.Argument(f.Kind), f.Name, f.Namespace)
}

func (w *Walk) PodListeners(ctx context.Context, pod client.Object) (*listenersv1alpha1.PodListeners, check.Presence) {
	addresses := &listenersv1alpha1.PodListeners{}
	return addresses,
		w.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(),
			Name: listenersv1alpha1.PodListenersName(pod.GetUID())}, addresses)
}

func describe(kind string, o client.Object) string {
	return fmt.Sprintf("kubectl describe %s %s --namespace %s", kind, o.GetName(), o.GetNamespace())
}

// fromWorkload follows each Pod of a workload. If there is none, what Kubernetes says last about it may be the cause.
func (w *Walk) fromWorkload(ctx context.Context, workload client.Object) {
	pods, owners := w.PodsOfWorkload(ctx, workload)
	for pod := range check.Each(pods) {
		w.fromPod(ctx, pod)
	}
	f, missing := w.About(workload), missingReplicas(workload)
	for _, o := range owners {
		if event := w.LastEvent(ctx, o, check.HasReason(reasons.FailedCreate)); event != nil &&
			(len(pods) == 0 || missing) {
			w.Add(f.FailedBy(reasons.FailedCreate, event.Message))
			return
		}
	}
	switch {
	case len(pods) > 0:
	case missing:
		w.Add(f.Failed("", "has no Pod", "See why: "+describe(strings.ToLower(f.Kind), workload)))
	default:
		w.Add(f.Warning("", "has no Pod, and is to have none"))
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
		for rs := range check.Each(replicaSets.Items) {
			if metav1.IsControlledBy(rs, workload) {
				owners = append(owners, rs)
			}
		}
	}
	for pod := range check.Each(all.Items) { // which is shared
		if slices.ContainsFunc(owners, func(o client.Object) bool { return metav1.IsControlledBy(pod, o) }) {
			pods = append(pods, *pod)
		}
	}
	return pods, owners
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
	}
	return false
}
