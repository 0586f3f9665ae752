package walk

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// unlessDeleted returns a finding, or the warning that its object is being deleted, with those who keep it.
func unlessDeleted(f check.Finding, o client.Object) check.Finding {
	if o.GetDeletionTimestamp() == nil || f.State != check.OK {
		return f
	}
	return f.Warning("", deletion(o))
}

// deletion returns that an object is being deleted, and which finalizers keep it.
func deletion(o client.Object) string {
	finalizers := lookup.Finalizers(o)
	if len(finalizers) == 0 {
		return "is being deleted"
	}
	return "is being deleted, and kept by its finalizers: " + columns.Names(finalizers)
}

// deletedClaim returns what the deletion of a claim waits for, and costs.
func (w *Walk) deletedClaim(ctx context.Context, f check.Finding, pvc *corev1.PersistentVolumeClaim) check.Finding {
	text, pods := deletion(pvc), columns.Names(w.mountedBy(ctx, pvc))
	if pods == "" {
		return f.Failed("", text, "Kubernetes deletes it within a moment. If it does not, find out why those who have set the finalizers do not remove them: "+Describe("pvc", pvc)).
			Since(*pvc.DeletionTimestamp)
	}
	remedy := "A deletion cannot be undone. Its Pods need another claim when they start again. A StatefulSet creates it; otherwise, create it after Kubernetes has deleted this one."
	if selector, _ := claim.ParseSelector(pvc.Annotations); selector.Class != "" {
		text += ", with its Listener and its address"
		remedy += " These Pods keep the address until they end. Tell clients before that it may change."
	}
	return f.Failed("", fmt.Sprintf("%s, as soon as it is not mounted any more: %s", text, pods), remedy)
}

// mountedBy returns the names of the Pods that mount a claim, and are not about to end.
func (w *Walk) mountedBy(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (pods []string) {
	for _, pod := range w.Pods(ctx, pvc) {
		if pod.DeletionTimestamp == nil && !claim.PodFinished(&pod) {
			pods = append(pods, pod.Name)
		}
	}
	return pods
}

// namespace follows a namespace, if it is being deleted.
func (w *Walk) namespace(ctx context.Context, name string) {
	namespace := tenancy.Namespace()
	if w.Get(ctx, types.NamespacedName{Name: name}, namespace) == check.Present && namespace.DeletionTimestamp != nil {
		w.Add(check.Finding{Kind: "Namespace", Name: name}.Failed("", deletion(namespace)+", so nothing can be created in it",
			"Use another namespace. To see what its deletion waits for: kubectl get namespace "+name+" --output yaml"))
	}
}
