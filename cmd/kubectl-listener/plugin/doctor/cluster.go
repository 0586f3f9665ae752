package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// examineClasses checks that there are classes, and that the cluster can serve them.
func (d *doctor) examineClasses(context.Context) {
	if !d.served {
		return
	}
	if !d.read("ListenerClass") {
		return
	}
	if len(d.classes.Items) == 0 {
		d.Add(check.Finding{Kind: "ListenerClass"}.Warning("", "there are none, so nobody can use listener volumes; docs/choosing-a-class.md has examples"))
	}
	for i := range d.classes.Items {
		class := &d.classes.Items[i]
		f := check.Finding{Kind: "ListenerClass", Name: class.Name}.Described(class)
		for _, kind := range backends.All().Of(class).KindsFor(class) {
			if !d.serves(kind.GroupVersionKind) {
				f = f.Failed(listenersv1alpha1.ReasonNotServed, fmt.Sprintf("needs %ss, and the cluster does not serve %s", kind.Kind, kind.GroupVersion()),
					"Change or delete the class: docs/choosing-a-class.md has others.")
			}
		}
		d.Add(f)
	}
}

// serves reports whether the cluster serves a kind.
func (d *doctor) serves(kind schema.GroupVersionKind) bool {
	_, err := d.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}

// examineClaims checks the claims that have no volume, or have lost it. Claims that only wait for a Pod are as they
// should be.
func (d *doctor) examineClaims(ctx context.Context) {
	if !d.served || !d.read("PersistentVolumeClaim") {
		return
	}
	var findings []check.Finding
	for i := range d.claims.Items {
		pvc := &d.claims.Items[i]
		if !check.RequestsListener(pvc) || pvc.DeletionTimestamp != nil {
			continue
		}
		f := d.Claim(ctx, pvc)
		if f.Reason == listenersv1alpha1.ReasonWaitForFirstConsumer {
			f.State = check.OK
		}
		f.ForUsers = f.State == check.Failed
		if f.State == check.Failed {
			f.Remedy = more(f, "claim")
		}
		findings = append(findings, f)
	}
	d.AddAll(findings, "PersistentVolumeClaims", "%d have a volume, or wait for a Pod")
}

// pins checks the volumes that are pinned to lost nodes.
func (d *doctor) pins(context.Context) {
	if !d.read("PersistentVolume", "Node") {
		return
	}
	existing := map[string]*corev1.Node{}
	for i := range d.nodes.Items {
		existing[d.nodes.Items[i].Name] = &d.nodes.Items[i]
	}
	var findings []check.Finding
	for i := range d.volumes.Items {
		pv := &d.volumes.Items[i]
		if pinned := index.PinnedNodes(pv); claim.IsListenerVolume(pv) && pv.Spec.ClaimRef != nil && len(pinned) > 0 {
			findings = append(findings, check.Pin(pv, pinned[0], existing[pinned[0]]))
		}
	}
	d.AddAll(findings, "PersistentVolumes", "%d are pinned to nodes that exist")
}

// outdated checks for Pods whose addresses have changed since they started.
func (d *doctor) outdated(context.Context) {
	if !d.served || !d.read("PodListeners") {
		return
	}
	var findings []check.Finding
	for i := range d.podListeners.Items {
		object := &d.podListeners.Items[i]
		f := check.Finding{Kind: "Pod", Namespace: object.Namespace, Name: object.Name, ForUsers: true}
		if len(object.OwnerReferences) > 0 {
			f.Name = object.OwnerReferences[0].Name
		}
		if len(object.Spec.Outdated()) > 0 {
			f = f.FailedBy(listenersv1alpha1.ReasonPodsOutdated, "started with other addresses: "+object.Spec.Summary)
		} else {
			f = f.OK("")
		}
		findings = append(findings, f)
	}
	d.AddAll(findings, "Pods", "%d have the addresses that they started with")
}

// endpoints checks for Listeners of several Pods whose clients are also sent to those that are not ready.
func (d *doctor) endpoints(ctx context.Context) {
	var services corev1.ServiceList
	var all discoveryv1.EndpointSliceList
	ofListeners := client.MatchingLabels{"app.kubernetes.io/managed-by": names.ServiceManagedBy} // slices have the labels of their Service
	if d.FollowAll(ctx, check.Finding{Kind: "Service"}, &services, ofListeners) != check.Present ||
		d.FollowAll(ctx, check.Finding{Kind: "EndpointSlice"}, &all, ofListeners) != check.Present {
		return
	}
	byService := map[types.NamespacedName][]discoveryv1.EndpointSlice{}
	for i := range all.Items {
		key := types.NamespacedName{Namespace: all.Items[i].Namespace, Name: all.Items[i].Labels[discoveryv1.LabelServiceName]}
		byService[key] = append(byService[key], all.Items[i])
	}
	for i := range services.Items {
		service := &services.Items[i]
		count, ready, _ := check.CountEndpoints(byService[client.ObjectKeyFromObject(service)], nil)
		f := check.Finding{Kind: "Listener", Namespace: service.Namespace, Name: service.Name}
		switch {
		case count > 1 && ready == 0:
			d.Add(f.Warning("", fmt.Sprintf("none of its %d Pods is ready; see why: kubectl listener why listener/%s --namespace %s", count, f.Name, f.Namespace)))
		case service.Spec.PublishNotReadyAddresses && count > 1 && ready < count:
			d.Add(f.Warning("", fmt.Sprintf(
				"sends clients to %d of %d Pods that are not ready; unless they need that, %s", count-ready, count, d.onlyReadyRemedy(ctx, service))))
		}
	}
}

// onlyReadyRemedy returns what lets the Listener of a Service send clients to ready Pods only.
func (d *doctor) onlyReadyRemedy(ctx context.Context, service *corev1.Service) string {
	var listener listenersv1alpha1.Listener
	if d.Get(ctx, client.ObjectKeyFromObject(service), &listener) != check.Present {
		return "set publishNotReadyAddresses: false in the Listener"
	}
	class := &listenersv1alpha1.ListenerClass{}
	if listener.Class() == "" || d.Get(ctx, client.ObjectKey{Name: listener.Class()}, class) != check.Present {
		class = nil
	}
	return check.OnlyReadyRemedy(&listener, class)
}
