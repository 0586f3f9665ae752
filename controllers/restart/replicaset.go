package restart

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

type replicas struct {
	// unsupported is why Pods of the controller are not evicted, or "".
	unsupported string
	desired     int32
	pods        []corev1.Pod
}

// replicaSet returns the Pods of a controller, which is nil if the Pods have none. It returns nil if the controller
// does not exist any more, or is being deleted.
func (r *Reconciler) replicaSet(ctx context.Context, namespace string,
	owner *metav1.OwnerReference) (*replicas, error) {
	if owner == nil {
		return &replicas{unsupported: "no controller would replace it; create the Pod again"}, nil
	}
	o := controllerOf(owner)
	if o == nil {
		return &replicas{unsupported: fmt.Sprintf("its controller is a %s of %s, and not a StatefulSet, a ReplicaSet "+
			"or a DaemonSet; restart the Pod by the means of %s", owner.Kind, owner.APIVersion, owner.Name)}, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	if o, err := lookup.WithUID(ctx, r.APIReader, key, owner.UID, o); err != nil || o == nil ||
		o.GetDeletionTimestamp() != nil {
		return nil, err
	}
	desired, selector := scaleOf(o)
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("parsing the selector of %s %s: %w", owner.Kind, key, err)
	}
	pods, err := r.podsOf(ctx, namespace, selects, owner.UID)
	return &replicas{desired: desired, pods: pods}, err
}

// podsOf returns what is needed of the Pods of a controller with this uid and selector that have not finished.
func (r *Reconciler) podsOf(
	ctx context.Context, namespace string, selects labels.Selector, uid types.UID,
) (pods []corev1.Pod, _ error) {
	err := lookup.EachPod(ctx, r.APIReader, func(p *corev1.Pod) {
		if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != uid || claim.PodFinished(p) {
			return
		}
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp,
				DeletionTimestamp: p.DeletionTimestamp,
			},
			Status: corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions},
		})
	}, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selects})
	return pods, err
}

// controllerOf returns an empty object of the kind of a controller, or nil if it is not known how many Pods that has.
func controllerOf(owner *metav1.OwnerReference) client.Object {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return map[string]client.Object{
		"apps/StatefulSet": &appsv1.StatefulSet{}, "apps/ReplicaSet": &appsv1.ReplicaSet{},
		"apps/DaemonSet": &appsv1.DaemonSet{},
	}[group+"/"+owner.Kind]
}

func scaleOf(o client.Object) (int32, *metav1.LabelSelector) {
	switch o := o.(type) {
	case *appsv1.StatefulSet:
		return ptr.Deref(o.Spec.Replicas, 1), o.Spec.Selector
	case *appsv1.ReplicaSet:
		return ptr.Deref(o.Spec.Replicas, 1), o.Spec.Selector
	case *appsv1.DaemonSet:
		return o.Status.DesiredNumberScheduled, o.Spec.Selector
	}
	return 0, nil
}

// next returns the outdated Pod to evict, or nil and what the eviction waits for: all other Pods have to be ready, as
// one that is not may be the successor of the Pod before. The order is: Pods that are not ready, because the change may
// be the reason; Pods that were not replaced recently; the last name first, as in a rolling update of a StatefulSet.
func (s *replicas) next(outdated []outdatedPod, replaced func(*corev1.Pod) bool) (next *outdatedPod, blocked string) {
	if missing := int(s.desired) - len(s.pods); missing > 0 {
		return nil, fmt.Sprintf("%d of %d Pods do not exist", missing, s.desired)
	}
	isOutdated := map[types.UID]*outdatedPod{}
	for i := range outdated {
		isOutdated[outdated[i].pod.UID] = &outdated[i]
	}
	var candidates []*corev1.Pod
	for i := range s.pods {
		switch pod := &s.pods[i]; {
		case pod.DeletionTimestamp != nil:
			return nil, fmt.Sprintf("Pod %s is being deleted", pod.Name)
		case isOutdated[pod.UID] != nil && pod.Status.Phase == corev1.PodRunning:
			candidates = append(candidates, pod)
		case !claim.PodReady(pod):
			return nil, fmt.Sprintf("Pod %s is not ready", pod.Name)
		}
	}
	if len(candidates) == 0 {
		return nil, "the Pods are not known to the API server"
	}
	rank := func(pod *corev1.Pod) (rank int) {
		if claim.PodReady(pod) {
			rank += 2
		}
		if replaced(pod) {
			rank++
		}
		return rank
	}
	first := slices.MinFunc(candidates, func(a, b *corev1.Pod) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(b.Name, a.Name))
	})
	return isOutdated[first.UID], ""
}

// The pause after the Pods of a controller were restarted, before the same replicas are restarted again: an address may
// not settle. It doubles from the first to the last, and is the first one again after twice the last without a restart,
// or when the operator restarts. A change restarts every Pod of a controller once, without delay.
const (
	firstPause = 5 * time.Minute
	lastPause  = time.Hour
)

type restart struct {
	// newest is the time of creation of the newest Pod at the beginning. Pods that were created later have replaced
	// others, or were added. Both are times of the API server, whose clock may differ.
	newest metav1.Time
	began  time.Time
	pause  time.Duration
}

func (r *restart) replaced(pod *corev1.Pod) bool {
	return r != nil && pod.CreationTimestamp.After(r.newest.Time)
}

func (r *restart) pauseOf(pod *corev1.Pod, now time.Time) time.Duration {
	if !r.replaced(pod) {
		return 0
	}
	return r.began.Add(r.pause).Sub(now)
}

// lastRestart returns the last restart of a controller, or nil if that was long ago.
func (r *Reconciler) lastRestart(req reconcile.Request) *restart {
	last, ok := r.restarts.Load(req)
	if ok && r.Clock.Since(last.(*restart).began) < 2*lastPause {
		return last.(*restart)
	}
	r.restarts.CompareAndDelete(req, last)
	return nil
}

// recordRestart records the eviction of a Pod of a controller, which has these Pods, and forgets restarts of long ago.
func (r *Reconciler) recordRestart(req reconcile.Request, pod *corev1.Pod, pods []corev1.Pod) {
	r.restarts.Range(func(key, _ any) bool { r.lastRestart(key.(reconcile.Request)); return true })
	last := r.lastRestart(req)
	if last != nil && !last.replaced(pod) {
		return // the restart goes on
	}
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	next := &restart{newest: newest.CreationTimestamp, began: r.Clock.Now(), pause: firstPause}
	if last != nil {
		next.pause = min(2*last.pause, lastPause)
	}
	r.restarts.Store(req, next)
}
