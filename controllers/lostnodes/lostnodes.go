// Package lostnodes releases pinned volumes from nodes that are lost, so that their Pods start elsewhere with the same
// Listener, Service and node ports, and creates PersistentVolumes again that were deleted by hand. Both replace the
// PersistentVolume under its claim, because the node affinity of a PersistentVolume is immutable.
//
// It must never touch a volume of another driver, a finalizer of another owner, or a volume that a Pod on an existing
// node mounts, and never leave a claim without its volume: every step can be repeated, whichever one was the last
// before a crash. It never writes to a claim. File observe.go finds nodes that are lost, decide.go decides what happens
// then, and release.go does it.
package lostnodes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Reconciler observes the volume of a claim. Its requests are claims, which survive the replacement of their volume.
type Reconciler struct {
	Client client.Client
	// APIReader confirms with the API server what a replacement depends on.
	APIReader client.Reader
	Events    events.EventRecorder
	// Applier writes the owners of Listeners, as the field manager of volumes.
	Applier *apply.Applier
	Clock   clock.PassiveClock

	conditions *apply.Applier
	warnings   message.Warnings[types.NamespacedName, string]
}

// SetupWithManager registers the controller and its watches. Of the two workers, a namespace has one, because the
// condition of a Listener describes all of its volumes: a second one could overwrite it with what it observed earlier.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.conditions = apply.New(r.Client, names.FieldManagerLostNodes)
	changes := predicates.NotInInitialList() // the first watch enqueues all requests at the start
	provisionedOnly := predicate.NewPredicateFuncs(func(o client.Object) bool { return claim.IsListenerClaim(o) })
	nodeToClaims := index.Mapping[corev1.PersistentVolumeList](r.Client, index.VolumeToClaim, index.VolumesByNode)
	classToClaims := index.Mapping[listenersv1alpha1.ListenerList](r.Client, r.listenerToClaims, index.ListenersByClass)
	b := requests.Controller(mgr, "lostnodes", 2).
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(provisionedOnly, predicates.StatusIgnored()))
	requests.Watch(b, &corev1.PersistentVolume{}, index.VolumeToClaim, changes, predicates.StatusIgnored())
	requests.Watch(b, &corev1.Node{}, nodeToClaims, changes, predicates.NodeSchedulingChanged())
	requests.Watch(b, &corev1.Pod{}, index.PodToClaims, changes, podMayReleaseVolume())
	requests.Watch(b, &listenersv1alpha1.Listener{}, r.listenerToClaims, changes,
		predicate.GenerationChangedPredicate{})
	requests.Watch(b, &listenersv1alpha1.ListenerClass{}, classToClaims, changes,
		predicate.GenerationChangedPredicate{})
	return b.Complete(requests.Requeue(mgr, "lostnodes", r))
}

func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o, err := r.observe(ctx, r.Client, req.NamespacedName, client.MatchingFields{index.PodsByClaim: req.Name})
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case o == nil:
		r.warnings.Keep(req.NamespacedName, nil)
		return reconcile.Result{}, nil
	case o.pv == nil, o.interrupted():
		return reconcile.Result{}, r.replace(ctx, req.NamespacedName)
	}
	if o.displaced, err = r.displaced(ctx, o); err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	d := o.decide(now)
	r.warn(o, listenersv1alpha1.ReasonInvalidRelease, d.invalid)
	r.warnStuck(o, o.stuck(d, now))
	if d.release == "" {
		r.warn(o, listenersv1alpha1.ReasonReleaseRefused, "")
	}
	switch {
	case d.lost != o.recorded():
		err = r.record(ctx, o, d.lost, now)
	case d.release != "":
		err = r.release(ctx, req.NamespacedName, o, d)
	default:
		err = r.report(ctx, o)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	var again requests.Deadlines
	again.Add(d.wait, "the volume may be released then")
	again.Add(r.warnings.RepeatAfter(req.NamespacedName), "its warnings are repeated")
	return again.Result(ctx), nil
}

func (r *Reconciler) record(ctx context.Context, o *observed, lost bool, now time.Time) error {
	var since any
	if lost {
		node, err := lookup.Get(ctx, r.APIReader, types.NamespacedName{Name: o.pinned()}, &corev1.Node{})
		if err != nil || !claim.NodeLost(node) {
			return err // the cache follows
		}
		since = now.UTC().Format(time.RFC3339)
	}
	if err := r.annotate(ctx, o, names.AnnotationLostSince, since); err != nil {
		return err
	}
	if lost {
		r.emit(o, listenersv1alpha1.ReasonNodeLost, o.lostMessage(now))
	}
	return nil
}

// report writes what happened to the volume into the condition of the Listener. When the volume has moved, it emits an
// event and removes the annotation that the report came from.
func (r *Reconciler) report(ctx context.Context, o *observed) error {
	from, to := o.pv.Annotations[names.AnnotationReleasedFrom], lastNode(o.pv)
	done := from != "" && to != "" && (from != to || o.mountedOn(to))
	reported := o.pv
	if done && from == to {
		reported = o.pv.DeepCopy()
		delete(reported.Annotations, names.AnnotationReleasedFrom)
	}
	if err := r.reportCondition(ctx, o, reported); err != nil || !done {
		return err
	}
	if err := r.annotate(ctx, o, names.AnnotationReleasedFrom, nil); err != nil {
		return err
	}
	if from != to {
		r.emit(o, listenersv1alpha1.ReasonVolumeMoved, movedMessage(o.pv, from, to))
	}
	return nil
}

// mountedOn reports whether the volume is pinned to the node, or a Pod uses it there now, rather than before a release.
func (o *observed) mountedOn(node string) bool {
	return o.pinned() == node || slices.ContainsFunc(o.users(), func(p corev1.Pod) bool {
		return p.Spec.NodeName == node && p.DeletionTimestamp == nil
	})
}

// lastNode returns the node on which a volume is, or was last mounted, or "".
func lastNode(pv *corev1.PersistentVolume) string {
	if nodes := claim.VolumeNodes(pv); len(nodes) > 0 {
		return nodes[0]
	}
	return ""
}

func movedMessage(pv *corev1.PersistentVolume, from, to string) string {
	return fmt.Sprintf("PersistentVolume %s moved from node %s to node %s", pv.Name, from, to)
}

// podMayReleaseVolume passes Pods whose scheduling changes, and those that do not mount their volumes any more.
func podMayReleaseVolume() predicate.Predicate {
	return predicate.And(
		predicates.Changed(func(pod *corev1.Pod) any {
			return []any{claim.Unschedulable(pod), pod.Spec.NodeName, claim.PodFinished(pod)}
		}),
		predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
			return claim.Unschedulable(e.Object.(*corev1.Pod)) != ""
		}},
	)
}

func (r *Reconciler) listenerToClaims(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[corev1.PersistentVolumeList](ctx, r.Client, index.VolumeToClaim, index.VolumesOf(o))
}
