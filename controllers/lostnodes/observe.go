package lostnodes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// observed is a claim with the objects that decide about its volume.
type observed struct {
	claim *corev1.PersistentVolumeClaim
	// pv is nil if it does not exist.
	pv *corev1.PersistentVolume
	// listener and class are nil while they do not exist, or are not known.
	listener *listenersv1alpha1.Listener
	class    *listenersv1alpha1.ListenerClass
	// pods are the Pods that use the claim and have not finished.
	pods []corev1.Pod
	// nodes has the existing nodes of the volume and of the Pods, by name.
	nodes map[string]*corev1.Node
	// displaced is why the node does not take a Pod that another node would take, or "".
	displaced string
}

// source is where observe reads from.
type source bool

const (
	fromCache     source = false
	fromAPIServer source = true
)

// observe reads a claim and what decides about its volume. It reads Listener and class from the cache in any case. It
// returns nil if the claim has no volume of the driver, or is being deleted.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName, from source) (*observed, error) {
	reader := client.Reader(r.Client)
	if from == fromAPIServer {
		reader = r.APIReader
	}
	pvc, err := lookup.Get(ctx, reader, key, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil || !provisioned(pvc) {
		return nil, err
	}
	o := &observed{claim: pvc, nodes: map[string]*corev1.Node{}}
	if o.pv, err = lookup.Get(ctx, reader, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{}); err != nil {
		return nil, err
	}
	if o.pv != nil && !claim.IsBoundTo(o.pv, pvc) {
		return nil, nil //nolint:nilnil // another driver's volume, or another claim's, is none of ours
	}
	if from == fromCache && o.pv != nil && !o.concerns() {
		return o, nil
	}
	if err := r.observeListener(ctx, o); err != nil {
		return nil, err
	}
	return o, r.observePods(ctx, reader, o, from)
}

// provisioned reports whether a claim has, or had, a volume of the driver, and is not being deleted.
func provisioned(pvc *corev1.PersistentVolumeClaim) bool {
	return claim.IsListenerClaim(pvc) && pvc.Spec.VolumeName != "" && pvc.DeletionTimestamp == nil
}

// observeListener reads the Listener of the claim and its class.
func (r *Reconciler) observeListener(ctx context.Context, o *observed) error {
	name := o.listenerName()
	if name == "" {
		return nil
	}
	var err error
	key := types.NamespacedName{Namespace: o.claim.Namespace, Name: name}
	if o.listener, err = lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{}); err != nil || o.listener == nil || o.listener.Class() == "" {
		return err
	}
	o.class, err = lookup.Get(ctx, r.Client, types.NamespacedName{Name: o.listener.Class()}, &listenersv1alpha1.ListenerClass{})
	return err
}

// observePods reads the Pods that use the claim, and the nodes of volume and Pods.
func (r *Reconciler) observePods(ctx context.Context, reader client.Reader, o *observed, from source) error {
	var pods corev1.PodList
	options := []client.ListOption{client.InNamespace(o.claim.Namespace)}
	if from == fromCache {
		options = append(options, client.MatchingFields{index.PodsByClaim: o.claim.Name})
	}
	if err := reader.List(ctx, &pods, options...); err != nil {
		return fmt.Errorf("listing the Pods of claim %s: %w", client.ObjectKeyFromObject(o.claim), err)
	}
	read := []string{o.pinned()}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if claim.PodFinished(pod) || !slices.Contains(index.PodClaims(pod), o.claim.Name) {
			continue
		}
		o.pods = append(o.pods, *pod)
		read = append(read, pod.Spec.NodeName)
	}
	for _, name := range read {
		if name == "" || o.nodes[name] != nil {
			continue
		}
		node, err := lookup.Get(ctx, reader, types.NamespacedName{Name: name}, &corev1.Node{})
		if err != nil {
			return err
		}
		if node != nil {
			o.nodes[name] = node
		}
	}
	return nil
}

// concerns reports whether there may be something to do about a volume that exists: it is pinned, has an annotation of
// this package, or a release of it is requested.
func (o *observed) concerns() bool {
	return o.pv.Spec.NodeAffinity != nil || o.recorded() || o.pv.Annotations[names.AnnotationReleasedFrom] != "" ||
		o.claim.Annotations[names.AnnotationRelease] != ""
}

// interrupted reports whether a release deleted the volume and did not create the new one yet.
func (o *observed) interrupted() bool {
	return o.pv.DeletionTimestamp != nil && o.pv.Annotations[names.AnnotationReleasedFrom] != ""
}

// listenerName returns the name of the Listener of the claim, or "".
func (o *observed) listenerName() string {
	var selector claim.Selector
	var err error
	if o.pv != nil {
		selector, err = claim.VolumeSelector(o.pv)
	} else {
		selector, err = claim.VolumeSelector(claim.Volume(o.claim, ""))
	}
	if err != nil {
		return ""
	}
	return selector.ListenerName(o.claim.Name)
}

// pinned returns the node that the operator pinned the volume to, or "". It did not set any other node affinity.
func (o *observed) pinned() string {
	if o.pv == nil {
		return ""
	}
	if nodes := index.PinnedNodes(o.pv); len(nodes) == 1 && equality.Semantic.DeepEqual(o.pv.Spec.NodeAffinity, index.NodeAffinity(nodes[0])) {
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
