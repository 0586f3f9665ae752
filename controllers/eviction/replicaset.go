package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// replicas are the Pods of a controller, as the API server has them.
type replicas struct {
	// unsupported is why Pods of the controller are not evicted, or "".
	unsupported string
	desired     int32
	pods        []corev1.Pod
}

// replicaSet returns the Pods of a controller, which is nil if the Pods have none. It returns nil if the controller
// does not exist any more, or is being deleted.
func (r *Reconciler) replicaSet(ctx context.Context, namespace string, owner *metav1.OwnerReference) (*replicas, error) {
	if owner == nil {
		return &replicas{unsupported: "no controller would replace it; create the Pod again"}, nil
	}
	o := controllerOf(owner)
	if o == nil {
		return &replicas{unsupported: fmt.Sprintf("its controller is a %s of %s, and not a StatefulSet, a ReplicaSet or a DaemonSet; restart the Pod by the means of %s",
			owner.Kind, owner.APIVersion, owner.Name)}, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: owner.Name}
	if o, err := lookup.WithUID(ctx, r.APIReader, key, owner.UID, o); err != nil || o == nil || o.GetDeletionTimestamp() != nil {
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

// pageSize is how many Pods are in memory at a time: users choose selectors, and how large their Pods are.
const pageSize = 20

// podsOf returns what is needed of the Pods of a controller with this uid and selector that have not finished.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, selects labels.Selector, uid types.UID) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	for next := ""; ; {
		var page corev1.PodList
		if err := r.APIReader.List(ctx, &page, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selects},
			client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing the Pods of a controller: %w", err)
		}
		for i := range page.Items {
			p := &page.Items[i]
			if owner := metav1.GetControllerOf(p); owner != nil && owner.UID == uid && !claim.PodFinished(p) {
				pods = append(pods, corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp},
					Status:     corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions},
				})
			}
		}
		if next = page.Continue; next == "" {
			return pods, nil
		}
	}
}

// controllerOf returns an empty object of the kind of a controller, or nil if it is not known how many Pods that has.
func controllerOf(owner *metav1.OwnerReference) client.Object {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return map[string]client.Object{
		"apps/StatefulSet": &appsv1.StatefulSet{}, "apps/ReplicaSet": &appsv1.ReplicaSet{}, "apps/DaemonSet": &appsv1.DaemonSet{},
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
	default:
		return 0, nil
	}
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
	first := slices.MinFunc(candidates, func(a, b *corev1.Pod) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(b.Name, a.Name)) })
	return isOutdated[first.UID], ""
}
