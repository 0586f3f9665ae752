package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
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
	if d.followAll(ctx, finding{Kind: "ListenerClass"}, &classes) == forbidden {
		return
	}
	if len(classes.Items) == 0 {
		d.add(finding{Kind: "ListenerClass"}.warning("", "there are none, so nobody can use listener volumes; docs/choosing-a-class.md has examples"))
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		f := finding{Kind: "ListenerClass", Name: class.Name}.described(class)
		for _, kind := range backends.All().Of(class).Kinds() {
			if _, err := d.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
				f = f.failed(listenersv1alpha1.ReasonNotServed, fmt.Sprintf("needs %ss, and the cluster does not serve %s", kind.Kind, kind.GroupVersion()),
					"Change or delete the class: docs/choosing-a-class.md has others.")
			}
		}
		d.add(f)
	}
}

// claims checks the claims that have no volume, or have lost it. Claims that only wait for a Pod are as they should be.
func (d *doctor) claims(ctx context.Context) {
	if !d.served {
		return
	}
	var claims corev1.PersistentVolumeClaimList
	if d.followAll(ctx, finding{Kind: "PersistentVolumeClaim"}, &claims) == forbidden {
		return
	}
	healthy := 0
	for i := range claims.Items {
		pvc := &claims.Items[i]
		if !requestsListener(pvc) || pvc.DeletionTimestamp != nil {
			continue
		}
		f := d.claimFinding(ctx, pvc)
		if f.State != stateFailed || f.Reason == listenersv1alpha1.ReasonWaitForFirstConsumer {
			healthy++
			continue
		}
		f.Remedy += fmt.Sprintf(" More: kubectl listener why claim/%s --namespace %s", pvc.Name, pvc.Namespace)
		d.add(f)
	}
	if healthy > 0 {
		d.add(finding{Kind: "PersistentVolumeClaims"}.ok("%d have a volume, or wait for a Pod", healthy))
	}
}

// volumes checks the volumes that are pinned to lost nodes.
func (d *doctor) volumes(ctx context.Context) {
	var volumes corev1.PersistentVolumeList
	var nodes corev1.NodeList
	if d.list(ctx, &volumes) != present || d.list(ctx, &nodes) != present {
		d.add(finding{Kind: "PersistentVolume"}.unreadable())
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
		if f := lostPin(pv, pinned[0], existing[pinned[0]]); f.State == stateFailed {
			d.add(f)
			continue
		}
		healthy++
	}
	if healthy > 0 {
		d.add(finding{Kind: "PersistentVolumes"}.ok("%d are pinned to nodes that exist", healthy))
	}
}

// lostPin returns whether the node of a pinned volume is lost. node is nil if it does not exist.
func lostPin(pv *corev1.PersistentVolume, name string, node *corev1.Node) finding {
	f := finding{Kind: "PersistentVolume", Name: pv.Name}
	if !claim.NodeLost(node) {
		return f.ok("is pinned to node %s", name)
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
	return f.failed(listenersv1alpha1.ReasonNodeLost, message,
		fmt.Sprintf("%skubectl listener release %s --namespace %s", remedyNodeLost, owner.Name, owner.Namespace))
}
