package lostnodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// A volume with policy Preferred displaces its Pod if its node does not take the Pod, and another node would, were it
// not for the volume. What only the scheduler knows is not repeated here: another node may have no room either.

// displaced returns why the node of a volume does not take a Pod that another node would take, or "".
func (r *Reconciler) displaced(ctx context.Context, o *observed) (string, error) {
	node := o.nodes[o.pinned()]
	if node == nil || o.policy() != listenersv1alpha1.PinningPolicyPreferred {
		return "", nil
	}
	for i := range o.pods {
		pod := &o.pods[i]
		verdict := claim.Unschedulable(pod)
		if verdict == "" {
			continue
		}
		affinities, known, err := r.otherAffinities(ctx, pod, o.claim.Name)
		if err != nil || !known {
			return "", err
		}
		var nodes corev1.NodeList
		if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("listing nodes: %w", err)
		}
		if why := displaces(pod, verdict, node, nodes.Items, affinities); why != "" {
			return why, nil
		}
	}
	return "", nil
}

// displaces returns why the node does not take a Pod that another of the nodes would take, or "". Unless the verdict of
// the scheduler names the affinity of volumes, it may be outdated, and does not show that the node is full.
func displaces(pod *corev1.Pod, verdict string, node *corev1.Node, nodes []corev1.Node,
	affinities []*corev1.VolumeNodeAffinity) string {
	takes := func(other corev1.Node) bool { return other.Name != node.Name && refusal(pod, &other, affinities) == "" }
	if !slices.ContainsFunc(nodes, takes) {
		return ""
	}
	if why := refusal(pod, node, affinities); why != "" {
		return fmt.Sprintf("node %s does not take Pod %s, because %s", node.Name, pod.Name, why)
	}
	if namesVolumeAffinity(verdict) && !claim.AwaitsAgent(verdict) {
		return fmt.Sprintf("node %s does not take Pod %s, about which the scheduler says: %s", node.Name, pod.Name,
			verdict)
	}
	return ""
}

// namesVolumeAffinity reports whether the scheduler names the node affinity of volumes, as of Kubernetes 1.32 or later.
func namesVolumeAffinity(verdict string) bool {
	return strings.Contains(verdict, "node(s) had volume node affinity conflict") ||
		strings.Contains(verdict, "node(s) didn't match PersistentVolume's node affinity")
}

// refusal returns why a node does not take a Pod whose other volumes have these node affinities, or "".
func refusal(pod *corev1.Pod, node *corev1.Node, affinities []*corev1.VolumeNodeAffinity) string {
	if node.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if node.Labels[names.TopologyKey] == "" {
		return "it lacks the label " + names.TopologyKey + " of nodes with a node agent"
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clip(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable,
			Effect: corev1.TaintEffectNoSchedule})
	}
	repels := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	if taint, found := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), taints, pod.Spec.Tolerations,
		repels, false); found {
		return "of its taint " + taint.Key
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return "of the Pod's node selector or affinity"
	}
	for _, affinity := range affinities {
		if ok, err := schedulingcorev1.MatchNodeSelectorTerms(node, affinity.Required); err != nil || !ok {
			return "of the node affinity of another volume"
		}
	}
	return ""
}

// otherAffinities returns the node affinities of a Pod's volumes, except the volume of one claim and others that could
// be released as well. The second result is false if the scheduler has to wait for a claim of the Pod.
func (r *Reconciler) otherAffinities(ctx context.Context, pod *corev1.Pod,
	except string) ([]*corev1.VolumeNodeAffinity, bool, error) {
	var affinities []*corev1.VolumeNodeAffinity
	for i := range pod.Spec.Volumes {
		name := claim.NameOf(pod, &pod.Spec.Volumes[i])
		if name == "" || name == except || claim.IsInline(&pod.Spec.Volumes[i]) {
			continue
		}
		affinity, known, err := r.claimAffinity(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if err != nil || !known {
			return nil, false, err
		}
		if affinity != nil {
			affinities = append(affinities, affinity)
		}
	}
	return affinities, true, nil
}

// claimAffinity returns the node affinity of the volume of a claim, or nil if the volume has none, or could be
// released. The second result is false if the scheduler has to wait for the claim.
func (r *Reconciler) claimAffinity(ctx context.Context,
	key types.NamespacedName) (*corev1.VolumeNodeAffinity, bool, error) {
	pvc, err := lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
	switch {
	case err != nil || pvc == nil:
		return nil, false, err
	case pvc.Spec.VolumeName == "":
		class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: volume.GetPersistentVolumeClaimClass(pvc)},
			&storagev1.StorageClass{})
		return nil, class != nil && ptr.Deref(class.VolumeBindingMode,
			"") == storagev1.VolumeBindingWaitForFirstConsumer, err
	}
	// The cache has no node affinity of volumes of other drivers.
	pv, err := lookup.Get(ctx, r.APIReader, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{})
	if err != nil || pv == nil {
		return nil, false, err
	}
	if claim.IsBoundTo(pv, pvc) {
		other := &observed{claim: pvc, pv: pv}
		if err := r.observeListener(ctx, other); err != nil {
			return nil, false, err
		}
		if other.policy() == listenersv1alpha1.PinningPolicyPreferred &&
			pvc.Annotations[names.AnnotationRelease] != names.ReleaseNever {
			return nil, true, nil
		}
	}
	return pv.Spec.NodeAffinity, true, nil
}

type stuckPod struct {
	pod  *corev1.Pod
	text string
}

// stuck returns the Pods that cannot be scheduled because of the pinned volume, by name. The scheduler says that nodes
// "didn't match PersistentVolume's node affinity", but neither which volume that is nor which node it needs.
func (o *observed) stuck(d decision, now time.Time) []stuckPod {
	node := o.pinned()
	if node == "" || d.release != "" || d.lost && !o.recorded() { // what follows is not known yet
		return nil
	}
	var stuck []stuckPod
	for i := range o.pods {
		pod := &o.pods[i]
		verdict := claim.Unschedulable(pod)
		switch {
		case !namesVolumeAffinity(verdict), claim.AwaitsAgent(verdict) && !d.lost:
		case d.lost:
			stuck = append(stuck, stuckPod{pod,
				fmt.Sprintf("Pod %s cannot be scheduled: %s", pod.Name, o.lostMessage(now))})
		default:
			stuck = append(stuck, stuckPod{pod, fmt.Sprintf("Pod %s can only run on node %s, which claim %s is "+
				"pinned to, and which does not take it, because %s; let the node take the Pod, or release the "+
				"volume, which changes the address, by the annotation %s of the claim: set it to the current time "+
				"(RFC 3339)", pod.Name, node, o.claim.Name,
				cmp.Or(refusal(pod, o.nodes[node], nil), "of what the scheduler says: "+verdict),
				names.AnnotationRelease)})
		}
	}
	slices.SortFunc(stuck, func(a, b stuckPod) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return stuck
}
