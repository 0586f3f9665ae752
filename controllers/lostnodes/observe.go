package lostnodes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

type observed struct {
	claim *corev1.PersistentVolumeClaim
	pv    *corev1.PersistentVolume
	// selector is what the volume was provisioned with or, if it does not exist, would be. It is empty if invalid.
	selector claim.Selector
	// listener and class are nil while they do not exist, or are not known.
	listener *listenersv1alpha1.Listener
	class    *listenersv1alpha1.ListenerClass
	pods     []corev1.Pod
	// nodes has the nodes of the volume and of the Pods, by name. One that does not exist is nil.
	nodes map[string]*corev1.Node
	// displaced is why the node does not take a Pod that another node would take, or "".
	displaced string
}

// observe reads a claim and what decides about its volume: from the cache or, except Listener and class, from the API
// server. It returns nil if the claim is being deleted, or has no volume of the driver that is of concern.
func (r *Reconciler) observe(ctx context.Context, reader client.Reader, key types.NamespacedName,
	podsOf ...client.ListOption) (*observed, error) {
	pvc, err := lookup.Get(ctx, reader, key, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil || !claim.IsListenerClaim(pvc) || pvc.Spec.VolumeName == "" ||
		pvc.DeletionTimestamp != nil {
		return nil, err
	}
	o := &observed{claim: pvc, nodes: map[string]*corev1.Node{}}
	if o.pv, err = lookup.Get(ctx, reader, types.NamespacedName{Name: pvc.Spec.VolumeName},
		&corev1.PersistentVolume{}); err != nil {
		return nil, err
	}
	if o.pv != nil && (!claim.IsBoundTo(o.pv, pvc) || !o.concerns()) {
		return nil, nil //nolint:nilnil // as documented
	}
	if err := r.observeListener(ctx, o); err != nil {
		return nil, err
	}
	return o, observePods(ctx, reader, o, podsOf)
}

func (r *Reconciler) observeListener(ctx context.Context, o *observed) (err error) {
	pv := o.pv
	if pv == nil {
		pv = claim.Volume(o.claim, "")
	}
	o.selector, _ = claim.VolumeSelector(pv)
	key := types.NamespacedName{Namespace: o.claim.Namespace, Name: o.selector.ListenerName(o.claim.Name)}
	if o.listener, err = lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{}); err != nil {
		return err
	}
	o.class, err = lookup.Get(ctx, r.Client, types.NamespacedName{Name: o.listener.Class()},
		&listenersv1alpha1.ListenerClass{})
	return err
}

func observePods(ctx context.Context, reader client.Reader, o *observed, podsOf []client.ListOption) error {
	namespace := client.InNamespace(o.claim.Namespace)
	add := func(pod *corev1.Pod) {
		if !claim.PodFinished(pod) && slices.Contains(claim.NamesOf(pod), o.claim.Name) {
			o.pods = append(o.pods, *cache.Pod(pod))
		}
	}
	if len(podsOf) == 0 { // without an index
		if err := lookup.EachPod(ctx, reader, add, namespace); err != nil {
			return err
		}
	} else {
		var pods corev1.PodList
		if err := reader.List(ctx, &pods, append(podsOf, namespace)...); err != nil {
			return fmt.Errorf("listing the Pods of claim %s: %w", client.ObjectKeyFromObject(o.claim), err)
		}
		for i := range pods.Items {
			add(&pods.Items[i])
		}
	}
	used := sets.New(o.pinned())
	for i := range o.pods {
		used.Insert(o.pods[i].Spec.NodeName)
	}
	for name := range used.Delete("") {
		node, err := lookup.Get(ctx, reader, types.NamespacedName{Name: name}, &corev1.Node{})
		if err != nil {
			return err
		}
		o.nodes[name] = node
	}
	return nil
}

// concerns reports whether a volume that exists is pinned, has an annotation of this package, or is to be released.
func (o *observed) concerns() bool {
	return o.pv.Spec.NodeAffinity != nil || o.recorded() || o.pv.Annotations[names.AnnotationReleasedFrom] != "" ||
		o.claim.Annotations[names.AnnotationRelease] != ""
}

// interrupted reports whether a release deleted the volume and did not create the new one yet.
func (o *observed) interrupted() bool {
	return o.pv.DeletionTimestamp != nil && o.pv.Annotations[names.AnnotationReleasedFrom] != ""
}

// pinned returns the node that the operator pinned the volume to, or "". It did not set any other node affinity.
func (o *observed) pinned() string {
	if o.pv == nil {
		return ""
	}
	if nodes := claim.PinnedNodes(o.pv); len(nodes) == 1 &&
		equality.Semantic.DeepEqual(o.pv.Spec.NodeAffinity, claim.NodeAffinity(nodes[0])) {
		return nodes[0]
	}
	return ""
}

// recorded reports whether the volume has a record since when its node is lost.
func (o *observed) recorded() bool { return o.pv.Annotations[names.AnnotationLostSince] != "" }

// lostSince returns since when the node of the volume is lost. It is now if there is no valid record.
func (o *observed) lostSince(now time.Time) time.Time {
	since, err := time.Parse(time.RFC3339, o.pv.Annotations[names.AnnotationLostSince])
	if err != nil || since.After(now) {
		return now
	}
	return since
}

// users returns the Pods that are bound to nodes which are not lost, where they may mount the volume.
func (o *observed) users() []corev1.Pod {
	var users []corev1.Pod
	for i := range o.pods {
		if node := o.pods[i].Spec.NodeName; node != "" && !claim.NodeLost(o.nodes[node]) {
			users = append(users, o.pods[i])
		}
	}
	return users
}
