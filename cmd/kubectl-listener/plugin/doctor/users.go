package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// classes checks that there are classes, and that the cluster can serve them.
func (d *doctor) classes(ctx context.Context) {
	if !d.served {
		return
	}
	var classes listenersv1alpha1.ListenerClassList
	if d.FollowAll(ctx, check.Finding{Kind: "ListenerClass"}, &classes) == check.Forbidden {
		return
	}
	if len(classes.Items) == 0 {
		d.Add(check.Finding{Kind: "ListenerClass"}.Warning("", "there are none, so nobody can use listener volumes; docs/choosing-a-class.md has examples"))
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		f := check.Finding{Kind: "ListenerClass", Name: class.Name}.Described(class)
		for _, kind := range backends.All().Of(class).Kinds() {
			if _, err := d.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
				f = f.Failed(listenersv1alpha1.ReasonNotServed, fmt.Sprintf("needs %ss, and the cluster does not serve %s", kind.Kind, kind.GroupVersion()),
					"Change or delete the class: docs/choosing-a-class.md has others.")
			}
		}
		d.Add(f)
	}
}

// claims checks the claims that have no volume, or have lost it. Claims that only wait for a Pod are as they should be.
func (d *doctor) claims(ctx context.Context) {
	if !d.served {
		return
	}
	var claims corev1.PersistentVolumeClaimList
	if d.FollowAll(ctx, check.Finding{Kind: "PersistentVolumeClaim"}, &claims) == check.Forbidden {
		return
	}
	healthy := 0
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if !check.RequestsListener(pvc) || pvc.DeletionTimestamp != nil {
			continue
		}
		f := d.Claim(ctx, pvc)
		if f.State != check.Failed || f.Reason == listenersv1alpha1.ReasonWaitForFirstConsumer {
			healthy++
			continue
		}
		f.Remedy += fmt.Sprintf(" More: kubectl listener why claim/%s --namespace %s", pvc.Name, pvc.Namespace)
		d.Add(f)
	}
	if healthy > 0 {
		d.Add(check.Finding{Kind: "PersistentVolumeClaims"}.OK("%d have a volume, or wait for a Pod", healthy))
	}
}

// volumes checks the volumes that are pinned to lost nodes.
func (d *doctor) volumes(ctx context.Context) {
	var volumes corev1.PersistentVolumeList
	var nodes corev1.NodeList
	if d.List(ctx, &volumes) != check.Present || d.List(ctx, &nodes) != check.Present {
		d.Add(check.Finding{Kind: "PersistentVolume"}.Unreadable())
		return
	}
	existing := map[string]*corev1.Node{}
	for i := range nodes.Items {
		existing[nodes.Items[i].Name] = &nodes.Items[i]
	}
	healthy := 0
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		pinned := index.PinnedNodes(pv)
		if !claim.IsListenerVolume(pv) || pv.Spec.ClaimRef == nil || len(pinned) == 0 {
			continue
		}
		if f := lostPin(pv, pinned[0], existing[pinned[0]]); f.State == check.Failed {
			d.Add(f)
			continue
		}
		healthy++
	}
	if healthy > 0 {
		d.Add(check.Finding{Kind: "PersistentVolumes"}.OK("%d are pinned to nodes that exist", healthy))
	}
}

// lostPin returns whether the node of a pinned volume is lost. node is nil if it does not exist.
func lostPin(pv *corev1.PersistentVolume, name string, node *corev1.Node) check.Finding {
	f := check.Finding{Kind: "PersistentVolume", Name: pv.Name}
	if !claim.NodeLost(node) {
		return f.OK("is pinned to node %s", name)
	}
	what := "does not exist"
	if node != nil {
		what = "is out of service"
	}
	owner := client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
	message := fmt.Sprintf("of claim %s is pinned to node %s, which %s", owner, name, what)
	if since := pv.Annotations[names.AnnotationLostSince]; since != "" {
		message += ", since " + since
	}
	return f.Failed(listenersv1alpha1.ReasonNodeLost, message,
		fmt.Sprintf("%skubectl listener release %s --namespace %s", check.RemedyNodeLost, owner.Name, owner.Namespace))
}
