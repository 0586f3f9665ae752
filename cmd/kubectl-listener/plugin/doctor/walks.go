package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/claim"
)

// walks follows the path of an address from every claim, every Listener and every Pod with a listener volume, and adds
// the problem of each, unless it began a moment ago.
func (d *doctor) walks(ctx context.Context) {
	var all corev1.PersistentVolumeClaimList
	var listeners listenersv1alpha1.ListenerList
	var pods corev1.PodList
	if !d.All(ctx, &all, &listeners, &pods, &corev1.PersistentVolumeList{}, &listenersv1alpha1.ListenerClassList{}, &listenersv1alpha1.PodListenersList{}) {
		return
	}
	d.All(ctx, &corev1.EventList{}) // without them, walks say less
	var claims, exposed, mounting []client.Object
	byKey := map[types.NamespacedName]bool{}
	for i := range all.Items {
		if pvc := &all.Items[i]; walk.RequestsListener(pvc) {
			claims = append(claims, pvc)
			byKey[client.ObjectKeyFromObject(pvc)] = true
		}
	}
	for i := range listeners.Items {
		exposed = append(exposed, &listeners.Items[i])
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		mounts := func(v corev1.Volume) bool {
			return walk.IsEphemeral(&v) || byKey[types.NamespacedName{Namespace: pod.Namespace, Name: claim.NameOf(pod, &v)}]
		}
		if (!claim.PodFinished(pod) || pod.DeletionTimestamp != nil) && slices.ContainsFunc(pod.Spec.Volumes, mounts) {
			mounting = append(mounting, pod)
		}
	}
	elsewhere := sets.New[string]() // the kinds of the objects whose findings may explain others
	for i := range d.Findings {
		if f := &d.Findings[i]; f.State == check.Failed {
			elsewhere.Insert(f.Kind)
		}
	}
	d.each(ctx, elsewhere, claims, "PersistentVolumeClaims", "%d have a volume, or wait for a Pod")
	d.each(ctx, elsewhere, exposed, "Listeners", "%d are ready, or wait for a Pod")
	d.each(ctx, elsewhere, mounting, "Pods", "%d have what they need for their listener volumes")
}

// each adds the problems of objects, and the number of those without. elsewhere has the kinds of objects about which
// there are findings that may explain others.
func (d *doctor) each(ctx context.Context, elsewhere sets.Set[string], objects []client.Object, kind, format string) {
	fine := 0
	for _, o := range objects {
		w := d.Apart()
		w.Step(ctx, o)
		if d.Err = cmp.Or(d.Err, w.Err); d.Err != nil {
			return
		}
		d.addWarnings(w.Findings)
		problem := w.Lasting()
		if problem == nil || d.explained(problem, elsewhere) {
			fine++
			continue
		}
		f := *problem
		f.ForUsers = reasons.Of(f.Reason).Actor != reasons.Administrator && f.Remedy != check.RemedyOperator
		f.Remedy = d.more(f.Remedy, o)
		d.Add(f)
	}
	if fine > 0 {
		d.Add(check.Finding{Kind: kind}.OK(format, fine))
	}
}

// addWarnings adds the warnings of a walk about Listeners and their endpoints, and the kinds that the user may not
// read.
func (d *doctor) addWarnings(findings []check.Finding) {
	for _, f := range findings {
		why := reasons.Of(f.Reason)
		switch {
		case f.State == check.Unknown:
			d.Add(check.Finding{Kind: f.Kind}.Unreadable())
		case f.State == check.Warning && !f.IsAside() && (f.Kind == "Listener" || f.Kind == "Endpoints") && why.Severity == reasons.Warning && len(why.Causes) == 0:
			d.Add(f)
		}
	}
}

// explained reports whether nobody has to act on a problem, or another finding says why it exists.
func (d *doctor) explained(f *check.Finding, elsewhere sets.Set[string]) bool {
	why := reasons.Of(f.Reason)
	return why.Actor == reasons.Nobody || d.installation.Stopped && f.Remedy == check.RemedyOperator || elsewhere.HasAny(why.Causes...) ||
		slices.ContainsFunc(d.Findings, func(other check.Finding) bool { return other.State == check.Failed && other.Object() == f.Object() })
}

// more returns a remedy with the command that follows the path from an object.
func (d *doctor) more(remedy string, o client.Object) string {
	sentence, ended := strings.CutSuffix(remedy, ".")
	separator := "; more: "
	if ended {
		separator = ". More: "
	}
	return sentence + separator + d.Command("why", o)
}
