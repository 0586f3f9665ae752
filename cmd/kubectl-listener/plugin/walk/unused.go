package walk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// UnusedDays is after how many days without a Pod a Listener is reported, unless the user says otherwise.
const UnusedDays = 7

// Unused follows the Listeners that no Pod has mounted for so many days, and that hold load balancers, node ports or
// ports of Gateways, which others could have.
func (w *Walk) Unused(ctx context.Context, days uint16) {
	var classes listenersv1alpha1.ListenerClassList
	var listeners listenersv1alpha1.ListenerList
	if !w.All(ctx, &classes, &listeners) {
		return
	}
	byClass := map[string][]*listenersv1alpha1.Listener{}
	for i := range listeners.Items {
		l := &listeners.Items[i]
		status := ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{})
		if status.ServiceName == nil || status.UnusedSince == nil {
			continue
		}
		if since := status.UnusedSince.Time; !since.AddDate(0, 0, int(days)).After(w.Now()) {
			byClass[l.Class()] = append(byClass[l.Class()], l)
		}
	}
	var findings []check.Finding
	for i := range classes.Items {
		class := &classes.Items[i]
		holds, f := backends.All().Of(class).ScarceOf(class), check.Finding{Kind: "ListenerClass", Name: class.Name}
		switch all := byClass[class.Name]; {
		case holds == "":
		case len(all) == 0:
			findings = append(findings, f.OK("no Listener holds an unused %s", holds))
		default:
			findings = append(findings, f.Warning("", fmt.Sprintf("%d Listeners hold a %s, and no Pod has mounted them for %d days: %s; if nobody needs them, delete their "+
				"claims, or the Listeners that have none", len(all), holds, days, describeUnused(all))))
		}
	}
	w.AddAll(findings, "Unused addresses", "%d classes have none")
}

// describeUnused names the Listeners, the oldest first.
func describeUnused(all []*listenersv1alpha1.Listener) string {
	slices.SortFunc(all, func(a, b *listenersv1alpha1.Listener) int {
		return cmp.Or(a.Status.UnusedSince.Compare(b.Status.UnusedSince.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var names []string
	for _, l := range all {
		names = append(names, fmt.Sprintf("%s/%s since %s", l.Namespace, l.Name, l.Status.UnusedSince.UTC().Format(time.DateOnly)))
	}
	return columns.Names(names)
}
