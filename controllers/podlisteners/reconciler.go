// Package podlisteners tells each Pod its own addresses. A PodListeners object without content is a hint by a node
// agent that a Pod is being mounted; this package checks it against the Pod, labels Pod and PersistentVolumes so that
// the Listener's Service finds them, and fills in the addresses that lead to the Pod.
//
// A hint may be forged with a stolen node token. Everything is therefore derived from the Pod, its claims and its
// Listeners, and nothing from the hint but which Pod to look at; a hint that does not fit that Pod is replaced or
// removed.
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

// Reconciler fills one PodListeners. Its requests are named after PodListeners, which need not exist (any more).
type Reconciler struct {
	// Client reads from the cache, with the indexes of package index, and writes.
	Client client.Client
	// APIReader reads Pods that the cache may not have seen yet.
	APIReader client.Reader
	// Events reports on Pods.
	Events events.EventRecorder
	// Applier writes PersistentVolumes, and the Listeners of class-based claims.
	Applier *apply.Applier

	// told has the words that were last said of what a volume lacks, by toldOf.
	told sync.Map
}

// toldOf names a volume of a Pod, and what it lacks.
type toldOf struct{ hint, volume, reason string }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	hint, pod, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch decide(hint, pod) {
	case withdraw:
		err = r.remove(ctx, hint)
	case renew:
		err = r.replace(ctx, hint, pod)
	case fill:
		err = r.fill(ctx, hint, pod)
	case leave:
	}
	if hint == nil {
		r.forget(req.Name)
	}
	return reconcile.Result{}, err
}

// verdict is what has to be done about a hint.
type verdict int

const (
	// leave it as it is: nobody asked for it, or it is on its way out.
	leave verdict = iota
	// withdraw it: it fits no Pod, or one that does not need it any more.
	withdraw
	// renew it: it is wrong or missing, and its Pod needs one.
	renew
	// fill in the addresses.
	fill
)

// decide compares a hint with its Pod. Both are nil if they do not exist.
func decide(hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) verdict {
	switch {
	case pod == nil || !mountsClaims(pod):
		return withdraw
	case hint == nil && recreatable(pod):
		return renew
	case hint == nil || hint.DeletionTimestamp != nil:
		return leave
	case stranded(pod, hint):
		return withdraw
	case !fits(hint, pod):
		return renew
	default:
		return fill
	}
}

// fill labels the Pod and its volumes, and writes the addresses that lead to the Pod.
func (r *Reconciler) fill(ctx context.Context, hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) error {
	mounts, err := r.mounts(ctx, pod)
	if err != nil {
		return err
	}
	if err := r.mark(ctx, hint, pod, mounts); err != nil {
		return err
	}
	return r.publish(ctx, hint, pod, mounts)
}

// fits tells whether a hint is one that the agent on the Pod's own node would have made, or the peer, or one that has
// been filled since.
func fits(hint *listenersv1alpha1.PodListeners, pod *corev1.Pod) bool {
	forged := !hint.Trusted() && hint.Spec.NodeName != "" && len(hint.Spec.Listeners) > 0
	return !forged &&
		(hint.Spec.NodeName == "" || hint.Spec.NodeName == pod.Spec.NodeName) &&
		len(hint.OwnerReferences) == 1 &&
		hint.OwnerReferences[0].Kind == "Pod" && hint.OwnerReferences[0].UID == pod.UID
}

// stranded tells whether a Pod is going away before it ever started, with a volume that still waits for an address.
// Without the hint the agent stops waiting, which otherwise holds up the end of the Pod.
func stranded(pod *corev1.Pod, hint *listenersv1alpha1.PodListeners) bool {
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

// recreatable tells whether a Pod without PodListeners had one that somebody deleted: it carries the label of a mounted
// Listener.
func recreatable(pod *corev1.Pod) bool {
	return hasMountLabel(pod) && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && !claim.PodFinished(pod)
}

// replace makes the right hint for a Pod instead of a wrong one or none. It is filled in the pass that its creation
// causes.
func (r *Reconciler) replace(ctx context.Context, wrong *listenersv1alpha1.PodListeners, pod *corev1.Pod) error {
	if err := r.remove(ctx, wrong); err != nil || pod.Spec.NodeName == "" {
		return err
	}
	right := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, pod.Spec.NodeName)
	err := r.Client.Create(ctx, right, client.FieldOwner(names.FieldManagerDefault))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating PodListeners %s: %w", client.ObjectKeyFromObject(right), err)
	}
	return nil
}

// remove deletes a PodListeners that fits no Pod, but only in the version that was looked at. nil is fine.
func (r *Reconciler) remove(ctx context.Context, hint *listenersv1alpha1.PodListeners) error {
	if hint == nil || hint.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, hint, client.Preconditions{UID: &hint.UID, ResourceVersion: &hint.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PodListeners %s, which fits no Pod: %w", client.ObjectKeyFromObject(hint), err)
	}
	return nil
}

// publish writes the addresses that lead to the Pod, and tells the Pod's user what is still missing.
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
			r.said(pod, m, listenersv1alpha1.ReasonWaitingForAddress, "")
		} else if action, words := m.waitsFor(node); words != "" {
			r.tell(pod, m, listenersv1alpha1.ReasonWaitingForAddress, action,
				fmt.Sprintf("Volume %q waits for an address of Listener %s/%s: %s", m.volume, pod.Namespace, m.listenerName(), words))
		}
	}
	keepUndecided(desired.Spec.Listeners, hint.Spec.Listeners, pod, mounts)
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

// tell warns a Pod's user in an event, unless it is what was last said of the volume. The recorder does not see to
// that: to it, an event of another version of the Pod or of the Listener is another event.
func (r *Reconciler) tell(pod *corev1.Pod, m *mount, reason, action, words string) {
	if r.said(pod, m, reason, words) {
		return
	}
	r.Events.Eventf(pod, m.listenerRef(), corev1.EventTypeWarning, reason, action, "%s", message.Truncate(words, message.MaxEvent))
}

// said notes what is said of a volume of a Pod, and tells whether it was said before. Empty means that nothing is
// missing any more.
func (r *Reconciler) said(pod *corev1.Pod, m *mount, reason, words string) bool {
	key := toldOf{hint: listenersv1alpha1.PodListenersName(pod.UID), volume: m.volume, reason: reason}
	if words == "" {
		r.told.Delete(key)
		return true
	}
	before, _ := r.told.Swap(key, words)
	return before == words
}

// forget drops what was said of the volumes of a Pod that does not mount any more.
func (r *Reconciler) forget(hint string) {
	r.told.Range(func(key, _ any) bool {
		if key.(toldOf).hint == hint {
			r.told.Delete(key)
		}
		return true
	})
}

// keepUndecided keeps the entries of volumes of the Pod whose claims are not known at the moment.
func keepUndecided(desired, observed map[string]listenersv1alpha1.PodListener, pod *corev1.Pod, mounts []mount) {
	decided := map[string]bool{}
	for i := range mounts {
		decided[mounts[i].volume] = true
	}
	inPod := map[string]bool{}
	for i := range pod.Spec.Volumes {
		inPod[pod.Spec.Volumes[i].Name] = true
	}
	kept := maps.Clone(observed)
	maps.DeleteFunc(kept, func(volume string, _ listenersv1alpha1.PodListener) bool { return decided[volume] || !inPod[volume] })
	maps.Copy(desired, kept)
}
