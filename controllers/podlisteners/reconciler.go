// Package podlisteners writes the addresses of each Pod with listener volumes. A node agent creates a PodListeners
// object without content, a hint, when a Pod is being mounted. This package compares it with the Pod, labels the Pod,
// which the Service of its Listener then selects, and its PersistentVolumes, and writes the addresses that lead to the
// Pod.
//
// A stolen node token suffices to forge a hint. The package therefore takes nothing but the name of the Pod from it,
// and derives everything else from the Pod, its claims and its Listeners. It replaces or deletes a hint that does not
// match the Pod.
package podlisteners

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
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
	// Applier writes PersistentVolumes, and the Listeners of class-based claims.
	Applier *apply.Applier

	// lastEvents has the text of the last event by eventKey.
	lastEvents sync.Map
}

// eventKey identifies the events of a volume of a Pod with the same reason.
type eventKey struct{ podListeners, volume, reason string }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	hint, pod, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch decide(hint, pod) {
	case deleteHint:
		err = r.delete(ctx, hint)
	case replaceHint:
		err = r.replace(ctx, hint, pod)
	case fillHint:
		err = r.fill(ctx, hint, pod)
	case keepHint:
	}
	if hint == nil {
		r.forgetEvents(req.Name)
	}
	return reconcile.Result{}, err
}

// decision is what to do with a hint.
type decision int

const (
	// keepHint means that there is no hint and the Pod needs none, or that it is being deleted.
	keepHint decision = iota
	// deleteHint means that the hint matches no Pod, or a Pod that needs none.
	deleteHint
	// replaceHint means that the Pod needs a hint, and that there is none or that it does not match.
	replaceHint
	// fillHint means that the addresses can be written.
	fillHint
)

// decide compares a hint with its Pod. Either is nil if it does not exist.
func decide(hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) decision {
	switch {
	case pod == nil || !mountsClaims(pod):
		return deleteHint
	case hint == nil && lostHint(pod):
		return replaceHint
	case hint == nil || hint.DeletionTimestamp != nil:
		return keepHint
	case deletedWhileWaiting(pod, hint):
		return deleteHint
	case !matches(hint, pod):
		return replaceHint
	default:
		return fillHint
	}
}

// fill labels the Pod and its volumes, and writes the addresses that lead to the Pod.
func (r *Reconciler) fill(ctx context.Context, hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) error {
	mounts, err := r.mounts(ctx, pod)
	if err != nil {
		return err
	}
	if err := r.ensureMounts(ctx, hint, pod, mounts); err != nil {
		return err
	}
	return r.publish(ctx, hint, pod, mounts)
}

// matches reports whether a hint is one that the agent on the Pod's node or Stackable's listener operator creates, or
// one that the operator has filled since.
func matches(hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) bool {
	forged := !hint.Trusted() && hint.Spec.NodeName != "" && len(hint.Spec.Listeners) > 0
	return !forged &&
		(hint.Spec.NodeName == "" || hint.Spec.NodeName == pod.Spec.NodeName) &&
		len(hint.OwnerReferences) == 1 &&
		hint.OwnerReferences[0].Kind == "Pod" && hint.OwnerReferences[0].UID == pod.UID
}

// deletedWhileWaiting reports whether a Pod is being deleted before it has started, while one of its volumes waits for
// an address. The agent stops waiting when the hint is deleted; otherwise the wait would delay the deletion of the Pod.
func deletedWhileWaiting(pod *corev1.Pod, hint *listenersv1alpha1.PodListeners) bool {
	if pod.DeletionTimestamp == nil || pod.Status.Phase != corev1.PodPending {
		return false
	}
	for _, entry := range hint.Spec.Listeners {
		if len(entry.IngressAddresses) == 0 {
			return true
		}
	}
	return len(hint.Spec.Listeners) == 0
}

// lostHint reports whether the PodListeners of a Pod was deleted although the Pod needs it: the Pod has the label of a
// mounted Listener.
func lostHint(pod *corev1.Pod) bool {
	return hasMountLabel(pod) && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && !claim.PodFinished(pod)
}

// replace creates the hint of a Pod, in place of one that does not match. It is filled when its creation is reconciled.
func (r *Reconciler) replace(ctx context.Context, hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) error {
	if err := r.delete(ctx, hint); err != nil || pod.Spec.NodeName == "" {
		return err
	}
	matching := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, pod.Spec.NodeName)
	err := r.Client.Create(ctx, matching, client.FieldOwner(names.FieldManagerDefault))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodListeners %s: %w", client.ObjectKeyFromObject(matching), err)
	}
	return nil
}

// delete deletes the observed version of a hint, unless the hint is nil or is being deleted.
func (r *Reconciler) delete(ctx context.Context, hint *listenersv1alpha1.PodListeners) error {
	if hint == nil || hint.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, hint, client.Preconditions{UID: &hint.UID, ResourceVersion: &hint.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PodListeners %s, which does not match its Pod: %w", client.ObjectKeyFromObject(hint), err)
	}
	return nil
}

// publish writes the addresses that lead to the Pod, and emits events about missing ones.
func (r *Reconciler) publish(ctx context.Context, hint *listenersv1alpha1.PodListeners, pod *corev1.Pod, mounts []mount) error {
	node, err := r.node(ctx, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	desired := hint.DeepCopy()
	desired.Spec.NodeName = pod.Spec.NodeName
	desired.Spec.Listeners = map[string]listenersv1alpha1.PodListener{}
	for i := range mounts {
		m := &mounts[i]
		entry := m.entry(node, hint.Spec.Listeners[m.volume])
		desired.Spec.Listeners[m.volume] = entry
		if len(entry.IngressAddresses) > 0 {
			r.eventChanged(pod, m, listenersv1alpha1.ReasonWaitingForAddress, "")
		} else if action, text := m.waitReason(node); text != "" {
			r.emitEvent(pod, m, listenersv1alpha1.ReasonWaitingForAddress, action,
				fmt.Sprintf("Volume %q waits for an address of Listener %s/%s: %s", m.volume, pod.Namespace, m.listenerName(), text))
		}
	}
	keepUnobserved(desired.Spec.Listeners, hint.Spec.Listeners, pod, mounts)
	if equality.Semantic.DeepEqual(desired.Spec, hint.Spec) {
		return nil
	}
	patch := client.MergeFromWithOptions(hint, client.MergeFromWithOptimisticLock{})
	err = r.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerDefault))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("publishing the addresses of Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return nil
}

// emitEvent emits a warning about a volume of a Pod, unless it is equal to the last one. The recorder does not suppress
// it: to the recorder, an event about another version of the Pod or of the Listener is another event.
func (r *Reconciler) emitEvent(pod *corev1.Pod, m *mount, reason, action, text string) {
	if !r.eventChanged(pod, m, reason, text) {
		return
	}
	r.Events.Eventf(pod, m.listenerRef(), corev1.EventTypeWarning, reason, action, "%s", message.Truncate(text, message.MaxEvent))
}

// eventChanged records the text of an event of a volume, and reports whether it differs from that of the last event. An
// empty text means that the reason does not hold any more, and is never an event.
func (r *Reconciler) eventChanged(pod *corev1.Pod, m *mount, reason, text string) bool {
	key := eventKey{podListeners: listenersv1alpha1.PodListenersName(pod.UID), volume: m.volume, reason: reason}
	if text == "" {
		r.lastEvents.Delete(key)
		return false
	}
	last, _ := r.lastEvents.Swap(key, text)
	return last != text
}

// forgetEvents removes the events of the volumes of a Pod from memory.
func (r *Reconciler) forgetEvents(podListeners string) {
	r.lastEvents.Range(func(key, _ any) bool {
		if key.(eventKey).podListeners == podListeners {
			r.lastEvents.Delete(key)
		}
		return true
	})
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
