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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
)

// Reconciler writes PodListeners. Its requests are names of PodListeners objects, which need not exist.
type Reconciler struct {
	// Client reads from the cache, with the indexes of package index, and writes.
	Client client.Client
	// APIReader reads Pods that are not in the cache yet.
	APIReader client.Reader
	Events    events.EventRecorder
	Backends  backends.List
	// Applier writes PersistentVolumes, and the Listeners of class-based claims.
	Applier *apply.Applier
	Clock   clock.PassiveClock
	// Nodes has the settled addresses of Nodes.
	Nodes *settling.Nodes

	// podNames has the names of the Pods with claims that were in the cache, by uid: requests have no more than that.
	podNames sync.Map
	// written has a *written for each Pod, by the name of its PodListeners.
	written sync.Map
	// warnings are those of Pods, by the name of their PodListeners.
	warnings message.Warnings[string, cause]
}

// written is what was written for a Pod that the cache may not have yet, and since when the Pod is known to be bound.
type written struct {
	// bound is when the Pod was first seen with a node.
	bound time.Time
	// created is when its PodListeners were created.
	created time.Time
	// labels are those of mounts that the Pod had, at a version, when some were added last: to add them again changes
	// nothing.
	labels   map[string]string
	version  string
	repairs  repairs
	restarts restartCounts
}

func (r *Reconciler) writtenFor(name string) *written {
	w, _ := r.written.LoadOrStore(name, &written{restarts: restartCounts{}})
	return w.(*written)
}

// pass is one look at a Pod, with the warnings about it.
type pass struct {
	pod *corev1.Pod
	// has is what the Pod has been given.
	has *listenersv1alpha1.PodListenersSpec
	// verdictIn is how long the kubelet may still take to accept or reject the Pod.
	verdictIn time.Duration
	warnings  []warning
	// overQuota joins the errors about Listeners that a ResourceQuota does not permit.
	overQuota error
	again     requests.Deadlines
	// complete states that the warnings are all that there are: each volume has addresses, or a warning says why not.
	complete bool
}

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
		r.warnings.Keep(req.Name, nil)
		r.podNames.Delete(listenersv1alpha1.PodUID(req.Name))
		defer r.written.Delete(req.Name)
	}
	p := &pass{pod: pod, has: &listenersv1alpha1.PodListenersSpec{}}
	err = errors.Join(r.reconcile(ctx, existing, p), p.overQuota) // for the retry
	r.report(req.Name, p, err)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.again.Add(r.warnings.RepeatAfter(req.Name), "its warnings are repeated")
	return p.again.Result(ctx), nil
}

// report emits the warnings that differ from the last ones with their causes. err is the result of the pass.
func (r *Reconciler) report(name string, p *pass, err error) {
	if p.pod != nil {
		p.warnRejection(err)
	}
	var causes []cause
	for _, w := range p.warnings {
		if causes = append(causes, w.cause); r.warnings.Due(name, w.cause, w.text, r.Clock.Now()) {
			r.Events.Eventf(w.regarding, w.related, reasons.EventType(w.reason), w.reason, w.action, "%s", w.text)
		}
	}
	if p.complete && err == nil {
		r.warnings.Keep(name, causes)
	}
}

// reconcile compares a PodListeners with its Pod; either is nil if it does not exist. A new object is needed when the
// kubelet mounts the volumes of the Pod, and none when the Pod has finished.
func (r *Reconciler) reconcile(ctx context.Context, existing *listenersv1alpha1.PodListeners, p *pass) error {
	pod := p.pod
	switch {
	case pod == nil || len(claim.NamesOf(pod)) == 0 || claim.PodFinished(pod):
		return r.delete(ctx, existing)
	case pod.DeletionTimestamp != nil && (existing == nil || pod.Spec.NodeName == ""):
		return nil
	case pod.Spec.NodeName == "":
		return r.prepare(ctx, p)
	case existing == nil:
	case existing.DeletionTimestamp != nil:
		return r.delete(ctx, existing) // it is created again when it is deleted
	case deletedWhileWaiting(pod, existing), !matches(existing, pod):
		err := r.delete(ctx, existing) // as above
		if err == nil {
			withdrawn.Inc()
		}
		return err
	}
	return r.write(ctx, existing, p)
}

// matches reports whether the object is one that the operator or Stackable's listener operator creates for the Pod.
func matches(existing *listenersv1alpha1.PodListeners, pod *corev1.Pod) bool {
	return len(existing.Labels)+len(existing.Annotations) <= 100 && // so that there is room for addresses
		(existing.Spec.NodeName == "" || existing.Spec.NodeName == pod.Spec.NodeName) &&
		len(existing.OwnerReferences) == 1 &&
		existing.OwnerReferences[0].Kind == "Pod" && existing.OwnerReferences[0].UID == pod.UID
}

// deletedWhileWaiting reports whether a Pod is being deleted before it has started, while a volume waits for an
// address. The node agent waits until the object is deleted, which would delay the deletion of the Pod.
func deletedWhileWaiting(pod *corev1.Pod, existing *listenersv1alpha1.PodListeners) bool {
	entries := slices.Collect(maps.Values(existing.Spec.Listeners))
	return pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending &&
		(len(entries) == 0 || slices.ContainsFunc(entries, func(l listenersv1alpha1.PodListener) bool {
			return len(l.IngressAddresses) == 0
		}))
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
		err := r.Client.Patch(ctx, object, patch, client.FieldOwner(names.FieldManagerDefault))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizers of PodListeners %s: %w", key, err)
		}
	}
	if object.DeletionTimestamp != nil {
		return nil
	}
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID,
		ResourceVersion: &object.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting PodListeners %s, which does not match its Pod: %w", key, err)
	}
	r.writtenFor(key.Name).created = time.Time{}
	return nil
}

// write labels the Pod and its volumes, writes the addresses that lead to the Pod, and warns about missing ones. It
// creates no object while no listener volume is bound, the kubelet has not accepted the Pod, or the addresses will be
// known in a moment, so that it need not be written twice: the node agent waits anyway.
func (r *Reconciler) write(ctx context.Context, existing *listenersv1alpha1.PodListeners, p *pass) error {
	desired, since := existing.DeepCopy(), metav1.NewTime(r.Clock.Now())
	if existing != nil {
		since = existing.CreationTimestamp
	} else {
		desired = listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(p.pod), p.pod.UID, p.pod.Spec.NodeName)
	}
	has := desired.Spec
	p.has = &has
	mounts, err := r.observe(ctx, p)
	if err != nil || existing == nil && len(mounts) == 0 {
		return err
	}
	w := r.writtenFor(desired.Name)
	p.verdictIn = w.verdictIn(p.pod, r.Clock.Now())
	awaitsKubelet := slices.ContainsFunc(mounts, (*mount).awaitsKubelet)
	if awaitsKubelet {
		p.again.Add(p.verdictIn, "the kubelet has not accepted the Pod yet")
	}
	if err := r.ensureMounts(ctx, p, mounts); err != nil || existing == nil && awaitsKubelet {
		return err
	}
	w.restarts.readAgain(p.has, p.pod)
	planned, wait := p.plan(mounts, since, r.Clock.Now())
	w.restarts.record(p.has, &planned, p.pod)
	desired.Spec = planned
	switch {
	case existing != nil:
		w.created = time.Time{} // if it is deleted now, it is created again
		return r.update(ctx, existing, desired)
	case wait > 0: // usually, the Listener changes earlier, which is watched
		p.again.Add(wait, "a new Listener has no address yet")
		return nil
	}
	err = r.create(ctx, p, desired)
	p.warnOwnQuota(err)
	return err
}

// verdict is how long the kubelet of a bound Pod may take to accept or reject it. Without a verdict, the Pod counts as
// accepted: if the node authorizer does not know the Pod yet, it refuses what the kubelet reports, and the kubelet
// repeats that only after up to ten seconds.
const verdict = time.Second

// verdictIn returns how long the kubelet may still take to accept or reject the Pod.
func (w *written) verdictIn(pod *corev1.Pod, now time.Time) time.Duration {
	if w.bound.IsZero() {
		w.bound = now
	}
	if claim.PodAccepted(pod) {
		return 0
	}
	return max(0, verdict-now.Sub(w.bound))
}

// cacheLag is for how long an object that is not in the cache is not created again. It may have been deleted meanwhile.
const cacheLag = time.Second

// update changes the observed version of an object, if the desired one differs.
func (r *Reconciler) update(ctx context.Context, existing, desired *listenersv1alpha1.PodListeners) error {
	if equality.Semantic.DeepEqual(desired.Spec, existing.Spec) {
		return nil
	}
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, desired, patch, client.FieldOwner(names.FieldManagerDefault))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating PodListeners %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	return nil
}

// create creates an object, once while the cache may lack it. One that exists already is reconciled when the cache has
// it, and a namespace that is being deleted takes no new objects.
func (r *Reconciler) create(ctx context.Context, p *pass, desired *listenersv1alpha1.PodListeners) error {
	w := r.writtenFor(desired.Name)
	if wait := cacheLag - r.Clock.Since(w.created); wait > 0 {
		p.again.Add(wait, "the cache lacks what was created")
		return nil
	}
	err := r.Client.Create(ctx, desired, client.FieldOwner(names.FieldManagerDefault))
	if err == nil {
		w.created = r.Clock.Now()
	}
	if err == nil || apierrors.IsAlreadyExists(err) || requests.IsTerminating(err) {
		return nil
	}
	return fmt.Errorf("creating PodListeners %s: %w", client.ObjectKeyFromObject(desired), err)
}
