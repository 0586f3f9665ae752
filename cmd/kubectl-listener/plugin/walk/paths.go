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
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

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
		w.warn(w.About(o), misplacedKeys(w.About(o).Kind, o))
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
		f := w.claimFinding(ctx, o)
		w.warn(f, keys.Problems("a claim", o))
		if w.Add(f); o.Spec.VolumeName != "" && f.State != check.Failed {
			w.volume(ctx, o)
		}
	case *listenersv1alpha1.Listener:
		w.followListener(ctx, o, nil)
	}
}

func (w *Walk) fromPod(ctx context.Context, pod *corev1.Pod) {
	w.pod(ctx, pod)
	if pod.Status.Phase == corev1.PodSucceeded {
		return // it needs no address any more
	}
	f := check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	w.outdated(ctx, f, pod)
	mounts := false
	for volume := range check.Each(pod.Spec.Volumes) {
		if claim.IsInline(volume) {
			mounts = true
			w.inline(ctx, f, pod, volume)
			continue
		}
		name := claim.NameOf(pod, volume)
		if name == "" {
			continue
		}
		pvc := &corev1.PersistentVolumeClaim{}
		switch found := w.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pvc); {
		case found != check.Present:
			mounts = w.addAbsentClaim(ctx, pod, volume, name, found) || mounts
		case RequestsListener(pvc):
			mounts = true
			w.followClaim(ctx, pvc, pod)
		case pvc.Spec.VolumeName == "" && awaitsClaims(check.PodCondition(pod, corev1.PodScheduled).Message):
			// It does not wait for the Pod.
			w.Add(check.Finding{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}.Failed("",
				"has no volume, and is no claim for a listener volume", "See why: "+describe("pvc", pvc)))
		}
	}
	w.certificates(ctx, pod)
	w.meant(ctx, f, pod, mounts)
}

func (w *Walk) inline(ctx context.Context, f check.Finding, pod *corev1.Pod, volume *corev1.Volume) {
	name := claim.NameOf(pod, volume)
	published, _ := w.PodListeners(ctx, pod)
	if slices.Contains(published.Spec.Copies, volume.Name) {
		original := claim.Selector{Listener: published.Spec.Listeners[volume.Name].ListenerName}
		w.followSelected(ctx, pod, name, pod, original)
		return
	}
	refused := w.LastEvent(ctx, pod, check.HasReason(listenersv1alpha1.ReasonInvalidVolume,
		listenersv1alpha1.ReasonInvalidName))
	switch problem := inlineProblem(pod, volume); {
	case pod.Status.Phase == corev1.PodPending && problem != "":
		w.Add(f.FailedBy(listenersv1alpha1.ReasonInvalidVolume, fmt.Sprintf("volume %q: %s", volume.Name, problem)))
	case pod.Status.Phase == corev1.PodPending && refused != nil:
		w.Add(f.FailedBy(refused.Reason, refused.Message))
	default:
		selector, _ := claim.ParseSelector(volume.CSI.VolumeAttributes)
		w.followSelected(ctx, pod, name, pod, selector)
	}
}

func (w *Walk) fromClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) {
	if !RequestsListener(pvc) {
		w.Add(w.About(pvc).FailedBy(listenersv1alpha1.ReasonInvalidClaim, "is not for a listener volume"+
			claim.OfClaim(pvc, nil).DidYouMean()))
		return
	}
	w.followClaim(ctx, pvc, nil)
	if pvc.Spec.VolumeName == "" {
		return
	}
	for _, pod := range w.podsOfClaim(ctx, pvc) {
		w.podAddresses(ctx, &pod, func(claim, _ string) bool { return claim == pvc.Name })
	}
}

func (w *Walk) fromListener(ctx context.Context, listener *listenersv1alpha1.Listener) {
	w.followListener(ctx, listener, nil)
	var volumes corev1.PersistentVolumeList
	w.List(ctx, &volumes, client.MatchingLabels{names.LabelListenerNamespace: listener.Namespace,
		names.LabelListenerName: names.ListenerLabel(listener.Name)})
	for pv := range check.Each(volumes.Items) {
		if claim.IsListenerVolume(pv) && pv.Spec.ClaimRef != nil {
			w.pin(ctx, pv)
		}
	}
	w.unboundPods(ctx, listener)
	pods, _ := w.PodsOfListener(ctx, listener)
	for i := range pods {
		w.podAddresses(ctx, &pods[i], func(_, name string) bool { return name == listener.Name })
	}
}

// unboundPods follows the Pods that are going to mount a Listener when they are bound to a node, and their claims.
func (w *Walk) unboundPods(ctx context.Context, listener *listenersv1alpha1.Listener) {
	var claims corev1.PersistentVolumeClaimList
	w.List(ctx, &claims, client.InNamespace(listener.Namespace))
	for pvc := range check.Each(claims.Items) {
		if selector, err := claim.ParseSelector(pvc.Annotations); err != nil ||
			selector.ListenerName(pvc.Name) != listener.Name {
			continue
		}
		for _, pod := range w.podsOfClaim(ctx, pvc) {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !claim.PodFinished(&pod) {
				w.Add(w.claimFinding(ctx, pvc))
				w.pod(ctx, &pod)
			}
		}
	}
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

// followClaim follows a claim, its volume and its Listener. pod is the Pod that it was reached from, or nil.
func (w *Walk) followClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	f := w.claimFinding(ctx, pvc)
	w.warn(w.About(pvc), keys.Problems("a claim", pvc))
	if w.Add(f); pvc.Spec.VolumeName == "" || f.State == check.Failed {
		return
	}
	selector := w.volume(ctx, pvc)
	if pods := w.mountedBy(ctx, pvc); selector.Class != "" && len(pods) > 1 {
		w.Add(f.Warning("", fmt.Sprintf("its address leads to each of the Pods that mount it, %s; for an address of "+
			"its own, a Pod needs a claim of its own: docs/run-any-product.md", columns.Names(pods))))
	}
	w.followSelected(ctx, pvc, pvc.Name, pod, selector)
}

// followSelected follows the Listener of a claim, or of an inline volume of a Pod, which is by, and the addresses of
// pod, or of none. name is the name of the claim, or the one that the inline volume has in its place.
func (w *Walk) followSelected(ctx context.Context, by client.Object, name string, pod *corev1.Pod,
	selector claim.Selector) {
	pvc, _ := by.(*corev1.PersistentVolumeClaim)
	if selector != (claim.Selector{}) {
		listener := &listenersv1alpha1.Listener{}
		f := check.Finding{Kind: "Listener", Namespace: by.GetNamespace(), Name: selector.ListenerName(name)}
		switch w.Read(ctx, f, listener) {
		case check.Missing:
			w.Add(w.noListener(ctx, f, by, pod, selector))
		case check.Present:
			if pvc != nil { // the class of an inline volume cannot change
				w.otherClass(ctx, pvc, selector.Class, listener)
			}
			w.followListener(ctx, listener, pod)
		}
	}
	if pod != nil {
		w.podAddresses(ctx, pod, func(claim, _ string) bool { return claim == name })
	}
}

// noListener returns that the Listener of a claim, or of an inline volume of a Pod, which is by, does not exist.
func (w *Walk) noListener(ctx context.Context, f check.Finding, by client.Object, pod *corev1.Pod,
	selector claim.Selector) check.Finding {
	pvc, ofClaim := by.(*corev1.PersistentVolumeClaim)
	switch {
	case selector.Class == "":
		f = f.FailedBy(listenersv1alpha1.ReasonListenerNotFound, "does not exist")
		return w.mistakenListener(ctx, f, types.NamespacedName{Namespace: f.Namespace, Name: f.Name})
	case !w.bound(ctx, pvc, pod), !ofClaim && !claim.PodAccepted(pod):
		return f.Warning("", "does not exist: the operator creates it when a Pod that mounts it is bound to a node, "+
			"and accepted there if the volume is inline, and deletes it when the Pod has finished, if the volume is "+
			"inline or ephemeral")
	default:
		f = f.LeftToOperator(listenersv1alpha1.ReasonListenerNotFound, "does not exist, although the volume does")
		return w.said(ctx, by, ofOperator, f)
	}
}

// followListener follows a Listener, its class, and what exposes it. pod is the Pod that it was reached from, or nil.
func (w *Walk) followListener(ctx context.Context, listener *listenersv1alpha1.Listener, pod *corev1.Pod) {
	f := listenerFinding(listener)
	if f.Reason == listenersv1alpha1.ReasonClassNotFound {
		f = w.noClass(ctx, f, listener)
	}
	w.Add(f)
	w.warn(w.About(listener), keys.Problems("a Listener", listener))
	class := w.class(ctx, listener)
	service := w.service(ctx, listener)
	w.advertised(listener)
	w.nodePorts(ctx, listener, service)
	if class != nil {
		w.exposures(ctx, listener, class)
	}
	if service != nil {
		w.endpoints(ctx, listener, class, service, pod)
	}
	w.certManager(ctx, listener)
}
