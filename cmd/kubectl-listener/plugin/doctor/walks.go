package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// walks follows the path of an address from every claim, every Listener and every Pod with a listener volume, and adds
// the problem of each, unless it began a moment ago.
func (d *doctor) walks(ctx context.Context) {
	if !d.served || !d.read("PersistentVolumeClaim", "PersistentVolume", "Listener", "ListenerClass", "PodListeners") {
		return
	}
	var pods corev1.PodList
	if d.FollowAll(ctx, check.Finding{Kind: "Pod"}, &pods) != check.Present {
		return
	}
	d.FollowAll(ctx, check.Finding{Kind: "Event"}, &corev1.EventList{}) // without them, walks say less
	var claims, listeners, mounting []client.Object
	byKey := map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
	for i := range d.claims.Items {
		if pvc := &d.claims.Items[i]; walk.RequestsListener(pvc) {
			claims = append(claims, pvc)
			byKey[client.ObjectKeyFromObject(pvc)] = pvc
		}
	}
	for i := range d.listeners.Items {
		listeners = append(listeners, &d.listeners.Items[i])
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		mounts := func(v corev1.Volume) bool {
			return walk.IsEphemeral(&v) || byKey[types.NamespacedName{Namespace: pod.Namespace, Name: index.ClaimName(pod, &v)}] != nil
		}
		if !claim.PodFinished(pod) && slices.ContainsFunc(pod.Spec.Volumes, mounts) {
			mounting = append(mounting, pod)
		}
	}
	elsewhere := d.wrongKinds()
	d.each(ctx, elsewhere, claims, "PersistentVolumeClaims", "%d have a volume, or wait for a Pod")
	d.each(ctx, elsewhere, listeners, "Listeners", "%d are ready, or wait for a Pod")
	d.each(ctx, elsewhere, mounting, "Pods", "%d have what they need for their listener volumes")
}

// wrongKinds returns the kinds of the objects about which a finding is wrong.
func (d *doctor) wrongKinds() sets.Set[string] {
	kinds := sets.New[string]()
	for i := range d.Findings {
		if f := &d.Findings[i]; f.State == check.Failed {
			kinds.Insert(f.Kind)
		}
	}
	return kinds
}

// each adds the problems of objects, and the number of those without. elsewhere has the kinds of objects about which
// there are findings that may explain others.
func (d *doctor) each(ctx context.Context, elsewhere sets.Set[string], objects []client.Object, kind, format string) {
	fine := 0
	for _, o := range objects {
		x := &check.Examination{Client: d.Client, Report: check.Report{Gathered: d.Gathered}}
		walk.Step(ctx, x, o)
		if d.Err = cmp.Or(d.Err, x.Err); d.Err != nil {
			return
		}
		d.addWarnings(x)
		problem := x.Lasting()
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
func (d *doctor) addWarnings(x *check.Examination) {
	for _, f := range x.Findings {
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
	switch {
	case why.Actor == reasons.Nobody, d.stopped && f.Remedy == check.RemedyOperator, elsewhere.HasAny(why.Causes...):
		return true
	default:
		return slices.ContainsFunc(d.Findings, func(other check.Finding) bool { return other.State == check.Failed && other.Object() == f.Object() })
	}
}

// more returns a remedy with the command that follows the path from an object.
func (d *doctor) more(remedy string, o client.Object) string {
	sentence, ended := strings.CutSuffix(remedy, ".")
	separator := "; more: "
	if ended {
		separator = ". More: "
	}
	kind, _ := d.Client.GroupVersionKindFor(o) // which was read as one of the scheme
	return fmt.Sprintf("%s%skubectl listener why %s/%s --namespace %s", sentence, separator, walk.Argument(kind.Kind), o.GetName(), o.GetNamespace())
}

// operatorLog returns how to find out why the operator does not act.
func (d *doctor) operatorLog() string {
	if d.stopped {
		return fmt.Sprintf("The operator does not run, so it does nothing about this: kubectl describe --namespace %s deployment/%s", d.namespace, names.Operator)
	}
	return fmt.Sprintf("See the log of the operator: kubectl logs --namespace %s deployment/%s", cmp.Or(d.namespace, "NAMESPACE"), names.Operator)
}
