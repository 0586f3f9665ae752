// Package podlisteners writes the addresses of each Pod with listener volumes. When the Pod is bound to a node, it
// creates the Listeners of class-based claims, labels the Pod, which the Service of its Listener then selects, and its
// PersistentVolumes, and creates the PodListeners of the Pod with the addresses that lead to it. Meanwhile, the kubelet
// sets the Pod up. The node agent only reads the object.
//
// It must never keep an object that does not match its Pod. Of one that does, it keeps addresses only while the Pod's
// claims, Listeners and classes are not known well enough to compute others.
package podlisteners

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Reconciler writes PodListeners. Its requests are names of PodListeners objects, which need not exist.
type Reconciler struct {
	// Client reads from the cache, with the indexes of package index, and writes.
	Client client.Client
	// APIReader reads Pods that are not in the cache yet.
	APIReader client.Reader
	// Events emits the events of Pods.
	Events events.EventRecorder
	// Backends are the backends that expose Listeners.
	Backends backends.List
	// Applier writes PersistentVolumes, and the Listeners of class-based claims.
	Applier *apply.Applier

	// pods has the names of the Pods that requests are for.
	pods podNames
	// writes has the podWrites of Pods, by the name of their PodListeners. Those of one Pod are not accessed
	// concurrently, because a request is not processed twice at a time.
	writes sync.Map
	// warnings are those of Pods, by the name of their PodListeners.
	warnings message.Warnings[string, cause]
}

// cause identifies the warnings about a volume with the same reason.
type cause struct{ volume, reason string }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	existing, pod, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		r.warnings.Forget(req.Name)
		r.writes.Delete(req.Name)
		r.pods.forget(listenersv1alpha1.PodUID(req.Name))
	}
	var wait time.Duration
	switch decide(existing, pod) {
	case remove:
		err = r.delete(ctx, existing)
	case replace:
		if err = r.delete(ctx, existing); err == nil {
			wait, err = r.publish(ctx, nil, pod)
		}
	case publish:
		wait, err = r.publish(ctx, existing, pod)
	case watchScheduling:
		wait, err = r.remindScheduler(ctx, pod)
	case keep:
	}
	if err == nil && wait == 0 {
		wait = r.warnings.RepeatAfter(req.Name)
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// decision is what to do with the PodListeners of a Pod.
type decision int

const (
	// keep means that there is nothing to do yet, or nothing any more.
	keep decision = iota
	// remove means that the object matches no Pod, or a Pod that needs none.
	remove
	// replace means that the object does not match the Pod.
	replace
	// publish means that the addresses have to be written, into a new object if there is none.
	publish
	// watchScheduling means that the Pod will need addresses when it is bound to a node.
	watchScheduling
)

// decide compares a PodListeners with its Pod. Either is nil if it does not exist.
func decide(existing *listenersv1alpha1.PodListeners, pod *corev1.Pod) decision {
	switch {
	case pod == nil || !mountsClaims(pod):
		return remove
	case existing == nil || pod.Spec.NodeName == "":
		return decideNew(pod)
	case existing.DeletionTimestamp != nil:
		return remove // it is created again when it is deleted
	case deletedWhileWaiting(pod, existing):
		return remove
	case !matches(existing, pod):
		return replace
	default:
		return publish
	}
}

// decideNew decides whether a Pod without PodListeners needs one: the kubelet is going to mount its volumes, or has
// mounted them. A Pod that is not bound to a node yet is reconciled again when it is.
func decideNew(pod *corev1.Pod) decision {
	switch {
	case pod.DeletionTimestamp != nil || claim.PodFinished(pod):
		return keep
	case pod.Spec.NodeName == "":
		return watchScheduling
	default:
		return publish
	}
}

// maxMetadata is the number of labels and annotations above which an object is no one's who had a reason to label it.
// Labels without number leave no room for addresses in an object.
const maxMetadata = 100

// matches reports whether the object is one that the operator or Stackable's listener operator creates for the Pod.
func matches(existing *listenersv1alpha1.PodListeners, pod *corev1.Pod) bool {
	return len(existing.Labels)+len(existing.Annotations) <= maxMetadata &&
		(existing.Spec.NodeName == "" || existing.Spec.NodeName == pod.Spec.NodeName) &&
		len(existing.OwnerReferences) == 1 &&
		existing.OwnerReferences[0].Kind == "Pod" && existing.OwnerReferences[0].UID == pod.UID
}

// deletedWhileWaiting reports whether a Pod is being deleted before it has started, while one of its volumes waits for
// an address. The node agent stops waiting when the object is deleted; otherwise the wait would delay the deletion of
// the Pod.
func deletedWhileWaiting(pod *corev1.Pod, existing *listenersv1alpha1.PodListeners) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase != corev1.PodPending {
		return false
	}
	for _, entry := range existing.Spec.Listeners {
		if len(entry.IngressAddresses) == 0 {
			return true
		}
	}
	return len(existing.Spec.Listeners) == 0
}

// delete deletes the observed version of an object, unless it is nil or is being deleted. It removes finalizers, except
// those of Kubernetes: nobody has a reason to delay the deletion of an object that only reports addresses.
func (r *Reconciler) delete(ctx context.Context, existing *listenersv1alpha1.PodListeners) error {
	if existing == nil {
		return nil
	}
	existing, err := r.removeFinalizers(ctx, existing)
	if err != nil || existing == nil || existing.DeletionTimestamp != nil {
		return err
	}
	err = r.Client.Delete(ctx, existing, client.Preconditions{UID: &existing.UID, ResourceVersion: &existing.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PodListeners %s, which does not match its Pod: %w", client.ObjectKeyFromObject(existing), err)
	}
	withdrawn.Inc()
	r.setCreated(existing.Name, time.Time{})
	return nil
}

// removeFinalizers removes the finalizers of an object, except those of Kubernetes, and returns the object as it is
// then, or nil if it does not exist any more.
func (r *Reconciler) removeFinalizers(ctx context.Context, existing *listenersv1alpha1.PodListeners) (*listenersv1alpha1.PodListeners, error) {
	desired := existing.DeepCopy()
	desired.Finalizers = slices.DeleteFunc(desired.Finalizers, func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
	if len(desired.Finalizers) == len(existing.Finalizers) {
		return existing, nil
	}
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	switch err := r.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerDefault)); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // an object that does not exist is no error
	case err != nil:
		return nil, fmt.Errorf("removing the finalizers of PodListeners %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	return desired, nil
}

// publish labels the Pod and its volumes, writes the addresses that lead to the Pod, and emits events about missing
// ones. existing is nil if there is no object yet. None is created while no listener volume of the Pod is bound, or
// while the addresses will be known in a moment, so that it need not be written twice: the node agent waits anyway.
// wait is how long that moment may last, or 0.
func (r *Reconciler) publish(ctx context.Context, existing *listenersv1alpha1.PodListeners, pod *corev1.Pod) (wait time.Duration, _ error) {
	mounts, err := r.mounts(ctx, pod)
	if err != nil || existing == nil && len(mounts) == 0 {
		return 0, err
	}
	desired := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, pod.Spec.NodeName)
	observed := desired.Spec.Listeners
	if existing != nil {
		desired = existing.DeepCopy()
		observed = existing.Spec.Listeners
	}
	node, err := r.node(ctx, pod.Spec.NodeName)
	if err != nil {
		return 0, err
	}
	if err := r.ensureMounts(ctx, observed, pod, node, mounts); err != nil {
		return 0, err
	}
	desired.Spec.NodeName = pod.Spec.NodeName
	desired.Spec.Listeners, wait = r.entries(observed, pod, node, mounts)
	desired.Spec.StartAddresses = startAddresses(desired.Spec.StartAddresses, desired.Spec.Listeners, mounts)
	desired.Spec.Summary = columns.Volumes(desired.Spec.Listeners)
	switch {
	case existing != nil:
		r.setCreated(existing.Name, time.Time{}) // if it is deleted now, it is created again
		return 0, r.update(ctx, existing, desired)
	case wait > 0:
		return wait, nil // usually, the Listener changes earlier, which is watched
	default:
		return r.create(ctx, desired)
	}
}

// update changes the observed version of an object, if the desired one differs.
func (r *Reconciler) update(ctx context.Context, existing, desired *listenersv1alpha1.PodListeners) error {
	if equality.Semantic.DeepEqual(desired.Spec, existing.Spec) {
		return nil
	}
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerDefault))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("updating PodListeners %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	return nil
}

// create creates an object. One that exists already is reconciled when the cache has it, and a namespace that is being
// deleted takes no new objects. wait is when to create the object again unless the cache has it then, or 0.
func (r *Reconciler) create(ctx context.Context, desired *listenersv1alpha1.PodListeners) (wait time.Duration, _ error) {
	if wait := time.Until(r.podWrites(desired.Name).created.Add(cacheLag)); wait > 0 {
		return wait, nil
	}
	err := r.Client.Create(ctx, desired, client.FieldOwner(names.FieldManagerDefault))
	switch {
	case err == nil:
		r.setCreated(desired.Name, time.Now())
		return 0, nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	default:
		return 0, fmt.Errorf("creating PodListeners %s: %w", client.ObjectKeyFromObject(desired), err)
	}
}

// entries returns the desired entries of all listener volumes of a Pod, and emits events about missing addresses. wait
// is how long those may be missing without a reason, or 0.
func (r *Reconciler) entries(
	observed map[string]listenersv1alpha1.PodListener, pod *corev1.Pod, node *corev1.Node, mounts []mount,
) (desired map[string]listenersv1alpha1.PodListener, wait time.Duration) {
	desired = map[string]listenersv1alpha1.PodListener{}
	for i := range mounts {
		m := &mounts[i]
		entry := m.entry(pod, node, observed[m.volume])
		desired[m.volume] = entry
		if len(entry.IngressAddresses) > 0 {
			r.warningDue(pod, m, listenersv1alpha1.ReasonWaitingForAddress, "")
			r.emitEvent(pod, m, listenersv1alpha1.ReasonListenerNotFound, actionMount, m.deletedListener())
		} else if action, text := m.waitReason(pod, node); text != "" {
			r.emitEvent(pod, m, listenersv1alpha1.ReasonWaitingForAddress, action,
				fmt.Sprintf("Volume %q waits for an address of Listener %s/%s: %s", m.volume, pod.Namespace, m.listenerName(), text))
		} else {
			wait = max(wait, m.maxWait())
		}
	}
	keepUnobserved(desired, observed, pod, mounts)
	return desired, wait
}

// emitEvent emits a warning about a volume of a Pod, unless it is equal to the last one, which is repeated later.
func (r *Reconciler) emitEvent(pod *corev1.Pod, m *mount, reason, action, text string) {
	if !r.warningDue(pod, m, reason, text) {
		return
	}
	r.Events.Eventf(pod, m.listenerRef(), corev1.EventTypeWarning, reason, action, "%s", message.Printable(text, message.MaxEvent))
}

// warningDue records the text of a warning about a volume, and reports whether it is to be emitted. An empty text means
// that the reason does not hold any more.
func (r *Reconciler) warningDue(pod *corev1.Pod, m *mount, reason, text string) bool {
	return r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), cause{m.volume, reason}, text, time.Now())
}

// keepUnobserved keeps the entries of volumes of the Pod whose claims or PersistentVolumes were not observed.
func keepUnobserved(desired, observed map[string]listenersv1alpha1.PodListener, pod *corev1.Pod, mounts []mount) {
	seen := map[string]bool{}
	for i := range mounts {
		seen[mounts[i].volume] = true
	}
	inPod := map[string]bool{}
	for i := range pod.Spec.Volumes {
		inPod[pod.Spec.Volumes[i].Name] = true
	}
	kept := maps.Clone(observed)
	maps.DeleteFunc(kept, func(volume string, _ listenersv1alpha1.PodListener) bool { return seen[volume] || !inPod[volume] })
	maps.Copy(desired, kept)
}
