// Package podlisteners writes the addresses of each Pod with listener volumes. When the Pod is bound to a node, it
// creates the Listeners of class-based claims, labels the Pod, which the Service of its Listener then selects, and its
// PersistentVolumes, and creates the PodListeners of the Pod with the addresses that lead to it. Meanwhile, the kubelet
// sets the Pod up. The node agent only reads the object.
//
// It must never keep an object that does not match its Pod. Of one that does, it keeps addresses only while the Pod's
// Listeners and classes are not known well enough to compute others, and only those that the Listener still has.
package podlisteners

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
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
	// Clock is the time.
	Clock clock.PassiveClock

	// podNames has the names of the Pods with claims that were in the cache, by uid: requests have no more than that.
	podNames sync.Map
	// created has when PodListeners were created that the cache may not have yet, by name.
	created sync.Map
	// labelled has the podLabels that were added to Pods, by uid.
	labelled sync.Map
	// warnings are those of Pods, by the name of their PodListeners.
	warnings message.Warnings[string, cause]
}

// cause identifies the warnings about a volume, or about the Pod itself, with the same reason.
type cause struct{ volume, reason string }

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	existing, err := lookup.Get(ctx, r.Client, req.NamespacedName, &listenersv1alpha1.PodListeners{})
	if err != nil {
		return reconcile.Result{}, err
	}
	pod, err := r.pod(ctx, req.NamespacedName, existing)
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod == nil {
		uid := listenersv1alpha1.PodUID(req.Name)
		r.warnings.Forget(req.Name)
		r.podNames.Delete(uid)
		r.created.Delete(req.Name)
		r.labelled.Delete(uid)
	}
	wait, err := r.reconcile(ctx, existing, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wait == 0 {
		wait = r.warnings.RepeatAfter(req.Name)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// reconcile compares a PodListeners with its Pod. Either is nil if it does not exist. A new object is needed when the
// kubelet is going to mount the volumes of the Pod, or has mounted them, and none when the Pod has finished. wait is
// when to look again, or 0.
func (r *Reconciler) reconcile(ctx context.Context, existing *listenersv1alpha1.PodListeners, pod *corev1.Pod) (wait time.Duration, _ error) {
	switch {
	case pod == nil || !mountsClaims(pod) || claim.PodFinished(pod):
		return 0, r.delete(ctx, existing)
	case existing != nil && pod.Spec.NodeName != "":
		switch {
		case existing.DeletionTimestamp != nil:
			return 0, r.delete(ctx, existing) // it is created again when it is deleted
		case deletedWhileWaiting(pod, existing):
			withdrawn.Inc()
			return 0, r.delete(ctx, existing)
		case !matches(existing, pod):
			if err := r.delete(ctx, existing); err != nil {
				return 0, err
			}
			withdrawn.Inc()
			existing = nil
		}
		return r.publish(ctx, existing, pod)
	case pod.DeletionTimestamp != nil:
		return 0, nil
	case pod.Spec.NodeName == "":
		return r.remindScheduler(ctx, pod)
	default:
		return r.publish(ctx, nil, pod)
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
	entries := slices.Collect(maps.Values(existing.Spec.Listeners))
	return pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending &&
		(len(entries) == 0 || slices.ContainsFunc(entries, func(l listenersv1alpha1.PodListener) bool { return len(l.IngressAddresses) == 0 }))
}

// delete deletes the observed version of an object, unless it is nil or is being deleted. It removes finalizers, except
// those of Kubernetes: nobody has a reason to delay the deletion of an object that only reports addresses.
func (r *Reconciler) delete(ctx context.Context, existing *listenersv1alpha1.PodListeners) error {
	if existing == nil {
		return nil
	}
	key, object := client.ObjectKeyFromObject(existing), existing.DeepCopy()
	object.Finalizers = slices.DeleteFunc(object.Finalizers, func(f string) bool {
		return f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents
	})
	if len(object.Finalizers) < len(existing.Finalizers) {
		patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, object, patch, client.FieldOwner(names.FieldManagerDefault)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizers of PodListeners %s: %w", key, err)
		}
	}
	if object.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting PodListeners %s, which does not match its Pod: %w", key, err)
	}
	r.created.Delete(key.Name)
	return nil
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
	desired := existing.DeepCopy()
	if existing == nil {
		desired = listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, pod.Spec.NodeName)
	}
	observed := desired.Spec.Listeners
	node, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
	if err != nil {
		return 0, err
	}
	if err := r.ensureMounts(ctx, observed, pod, node, mounts); err != nil {
		r.reportRejection(pod, err)
		return 0, err
	}
	desired.Spec.NodeName = pod.Spec.NodeName
	since := desired.CreationTimestamp
	if existing == nil {
		since = metav1.NewTime(r.Clock.Now())
	}
	var previousIn time.Duration
	desired.Spec.Listeners, wait, previousIn = r.entries(observed, since, pod, node, mounts)
	r.limit(pod, &desired.Spec)
	recordStart(&desired.Spec, mounts)
	desired.Spec.Summary = columns.Volumes(&desired.Spec)
	switch {
	case existing != nil:
		r.created.Delete(existing.Name) // if it is deleted now, it is created again
		wait, err = previousIn, r.update(ctx, existing, desired)
	case wait > 0: // usually, the Listener changes earlier, which is watched
	default:
		wait, err = r.create(ctx, desired)
		wait = requests.Earliest(wait, previousIn)
		r.reportOwnQuota(pod, err)
	}
	r.reportRejection(pod, err)
	for _, m := range mounts {
		err = errors.Join(err, m.overQuota) // for the retry
	}
	return wait, err
}

// limit removes what exceeds the limits of a Pod, and emits a warning about it.
func (r *Reconciler) limit(pod *corev1.Pod, spec *listenersv1alpha1.PodListenersSpec) {
	var volumes []string
	for i := range pod.Spec.Volumes {
		volumes = append(volumes, pod.Spec.Volumes[i].Name)
	}
	text := ""
	if removed := spec.Limit(volumes); len(removed) > 0 {
		text = fmt.Sprintf("Volume %q and %d others of Pod %s/%s get no addresses: a Pod has at most %d listener volumes, and %d KiB of addresses and ports in them; "+
			"use fewer volumes, or Listeners with fewer ports", removed[0], len(removed)-1, pod.Namespace, pod.Name, listenersv1alpha1.MaxVolumes,
			listenersv1alpha1.MaxAddressBytes>>10)
	}
	why := cause{reason: listenersv1alpha1.ReasonWaitingForAddress}
	if r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), why, text, r.Clock.Now()) {
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, why.reason, actionMount+"Limit", "%s", message.Printable(text, message.MaxEvent))
	}
}

// reportOwnQuota emits a warning on a Pod whose PodListeners a ResourceQuota does not permit. err is the result of its
// creation.
func (r *Reconciler) reportOwnQuota(pod *corev1.Pod, err error) {
	text := ""
	if rejection := requests.ExceededQuota(err); rejection != "" {
		text = fmt.Sprintf("a ResourceQuota does not permit the object with the addresses of the Pod: %s; delete Pods with listener volumes, or ask an administrator "+
			"to remove podlisteners from the ResourceQuota, and to limit claims instead", rejection)
	}
	why := cause{reason: listenersv1alpha1.ReasonQuotaExceeded}
	if r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), why, text, r.Clock.Now()) {
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, why.reason, actionMount, "%s", message.Printable(text, message.MaxEvent))
	}
}

// reportRejection emits a warning on a Pod whose addresses wait because the API server rejects a request of the
// operator, mostly by an admission policy. A quota is reported elsewhere.
func (r *Reconciler) reportRejection(pod *corev1.Pod, err error) {
	text := ""
	if (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && requests.ExceededQuota(err) == "" && !requests.IsTerminating(err) {
		text = fmt.Sprintf("the API server rejects what the operator writes for the addresses of the Pod: %v; ask an administrator to exempt the operator from the "+
			"admission policy, or to find out which permission it lacks", err)
	}
	why := cause{reason: listenersv1alpha1.ReasonRequestRejected}
	if r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), why, text, r.Clock.Now()) {
		r.Events.Eventf(pod, nil, corev1.EventTypeWarning, why.reason, actionMount, "%s", message.Printable(text, message.MaxEvent))
	}
}

// cacheLag is for how long an object that is not in the cache is not created again. It may have been deleted meanwhile.
const cacheLag = time.Second

// update changes the observed version of an object, if the desired one differs.
func (r *Reconciler) update(ctx context.Context, existing, desired *listenersv1alpha1.PodListeners) error {
	if equality.Semantic.DeepEqual(desired.Spec, existing.Spec) {
		return nil
	}
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerDefault)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating PodListeners %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	return nil
}

// create creates an object. One that exists already is reconciled when the cache has it, and a namespace that is being
// deleted takes no new objects. wait is when to create the object again unless the cache has it then, or 0.
func (r *Reconciler) create(ctx context.Context, desired *listenersv1alpha1.PodListeners) (wait time.Duration, _ error) {
	if last, ok := r.created.Load(desired.Name); ok {
		if wait := cacheLag - r.Clock.Since(last.(time.Time)); wait > 0 {
			return wait, nil
		}
	}
	err := r.Client.Create(ctx, desired, client.FieldOwner(names.FieldManagerDefault))
	switch {
	case err == nil:
		r.created.Store(desired.Name, r.Clock.Now())
		return 0, nil
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	default:
		return 0, fmt.Errorf("creating PodListeners %s: %w", client.ObjectKeyFromObject(desired), err)
	}
}

// entries returns the desired entries of all listener volumes of a Pod, and emits events about missing addresses. Those
// whose claims or PersistentVolumes were not observed have none. wait is how long addresses may be missing without a
// reason, and previousIn until a Pod that has none since a time gets those of a previous exposure, or 0.
func (r *Reconciler) entries(
	observed map[string]listenersv1alpha1.PodListener, since metav1.Time, pod *corev1.Pod, node *corev1.Node, mounts []*mount,
) (desired map[string]listenersv1alpha1.PodListener, wait, previousIn time.Duration) {
	desired = map[string]listenersv1alpha1.PodListener{}
	for i := range pod.Spec.Volumes {
		if entry, ok := observed[pod.Spec.Volumes[i].Name]; ok {
			entry.IngressAddresses = nil
			desired[pod.Spec.Volumes[i].Name] = entry
		}
	}
	for _, m := range mounts {
		entry := m.entry(pod, node, observed[m.volume])
		if left, text := m.untilPrevious(pod, node, since, r.Clock.Now()); left > 0 && len(observed[m.volume].IngressAddresses) == 0 {
			entry.IngressAddresses = nil
			desired[m.volume], previousIn = entry, max(previousIn, left)
			r.emitEvent(pod, m, listenersv1alpha1.ReasonWaitingForAddress, actionMount+"Previous",
				fmt.Sprintf("Volume %q waits for other addresses than the previous ones of Listener %s/%s, which are about to go away, for at most %s: %s",
					m.volume, pod.Namespace, m.listenerName(), previousExposure, text))
			continue
		}
		desired[m.volume] = entry
		if len(entry.IngressAddresses) > 0 {
			r.emitEvent(pod, m, listenersv1alpha1.ReasonWaitingForAddress, actionMount, "")
			r.emitEvent(pod, m, listenersv1alpha1.ReasonListenerNotFound, actionMount, "")
		} else if text := m.deletedListener(pod); text != "" {
			r.emitEvent(pod, m, listenersv1alpha1.ReasonListenerNotFound, actionMount, text)
		} else if action, text := m.waitReason(pod, node); text != "" {
			r.emitEvent(pod, m, listenersv1alpha1.ReasonWaitingForAddress, action,
				fmt.Sprintf("Volume %q waits for an address of Listener %s/%s: %s", m.volume, pod.Namespace, m.listenerName(), text))
		} else if m.listener != nil && !m.statusCurrent() {
			wait = max(wait, requests.Left(m.listener.CreationTimestamp, newListener, r.Clock.Now()))
		}
	}
	return desired, wait, previousIn
}

// recordStart records the addresses that a Pod starts with, and for which volumes their change restarts it. Those of a
// Pod that has run before they were recorded are not known: then the present ones count, which must not be taken for
// changed ones. While the class is not known, nothing changes.
func recordStart(spec *listenersv1alpha1.PodListenersSpec, mounts []*mount) {
	start := map[string][]listenersv1alpha1.IngressAddress{}
	for volume, entry := range spec.Listeners {
		if addresses := spec.StartAddresses[volume]; len(addresses) > 0 {
			start[volume] = addresses
		} else if len(entry.IngressAddresses) > 0 {
			start[volume] = entry.IngressAddresses
		}
	}
	spec.StartAddresses = start
	outdated, restart := spec.Outdated(), sets.New(spec.RestartOnChange...)
	for _, m := range mounts {
		switch {
		case m.class == nil:
		case !m.class.RestartsPods():
			restart.Delete(m.volume)
		case !slices.Contains(outdated, m.volume):
			restart.Insert(m.volume)
		}
	}
	spec.RestartOnChange = slices.DeleteFunc(sets.List(restart), func(volume string) bool {
		_, mounted := spec.Listeners[volume]
		return !mounted
	})
}

// emitEvent emits a warning about a volume of a Pod, unless it is equal to the last one, which is repeated later. An
// empty text means that the reason does not hold any more.
func (r *Reconciler) emitEvent(pod *corev1.Pod, m *mount, reason, action, text string) {
	if r.warningDue(pod, m, reason, text) {
		var related runtime.Object // not a pointer that is nil
		if m.listener != nil {
			related = m.listener
		}
		r.Events.Eventf(pod, related, corev1.EventTypeWarning, reason, action, "%s", message.Printable(text, message.MaxEvent))
	}
}

// warningDue records the text of a warning about a volume, and reports whether it is to be emitted.
func (r *Reconciler) warningDue(pod *corev1.Pod, m *mount, reason, text string) bool {
	return r.warnings.Due(listenersv1alpha1.PodListenersName(pod.UID), cause{m.volume, reason}, text, r.Clock.Now())
}
