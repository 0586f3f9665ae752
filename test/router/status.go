package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeDecision writes a decision to the Route's status if the status differs. It keeps the entries of other routers.
func writeDecision(ctx context.Context, c client.Client, id Identity, current *routev1.Route, d decision) error {
	entry := newEntry(id, d)
	i := slices.IndexFunc(current.Status.Ingress, func(e routev1.RouteIngress) bool { return e.RouterName == id.Name })
	if i >= 0 && equalEntries(current.Status.Ingress[i], entry) {
		return nil
	}
	changed := current.DeepCopy()
	if i < 0 {
		changed.Status.Ingress = append(changed.Status.Ingress, entry)
	} else {
		changed.Status.Ingress[i] = entry
	}
	return writeStatus(ctx, c, current, changed)
}

// newEntry returns the status entry of a decision.
func newEntry(id Identity, d decision) routev1.RouteIngress {
	now := metav1.Now().Rfc3339Copy()
	condition := routev1.RouteIngressCondition{Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue, LastTransitionTime: &now}
	if d.rejection != nil {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, d.rejection.reason, d.rejection.message
	}
	return routev1.RouteIngress{
		Host:                    d.route.Spec.Host,
		RouterName:              id.Name,
		RouterCanonicalHostname: id.CanonicalHostname,
		WildcardPolicy:          d.route.Spec.WildcardPolicy,
		Conditions:              []routev1.RouteIngressCondition{condition},
	}
}

// equalEntries reports whether two entries are equal, except for their times.
func equalEntries(a, b routev1.RouteIngress) bool {
	return cmp.Equal(a, b, cmpopts.IgnoreFields(routev1.RouteIngressCondition{}, "LastTransitionTime"))
}

// writeStatus fails with a conflict if the Route was changed meanwhile, because the entries of all routers are one
// list.
func writeStatus(ctx context.Context, c client.Client, current, changed *routev1.Route) error {
	err := c.Status().Patch(ctx, changed, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the status of Route %s/%s: %w", current.Namespace, current.Name, err)
	}
	return nil
}

// RemoveStatus removes a router's entries from the status of all Routes. A router does not do so itself: its entries
// stay when it stops, and when a Route leaves its shard. On the platform, the ingress operator removes the entries of a
// router that was deleted.
func RemoveStatus(ctx context.Context, c client.Client, name string) error {
	var routes routev1.RouteList
	if err := c.List(ctx, &routes); err != nil {
		return fmt.Errorf("listing Routes: %w", err)
	}
	var errs []error
	for i := range routes.Items {
		errs = append(errs, removeEntry(ctx, c, client.ObjectKeyFromObject(&routes.Items[i]), name))
	}
	return errors.Join(errs...)
}

// removeEntry removes a router's entry from the status of one Route.
func removeEntry(ctx context.Context, c client.Client, key client.ObjectKey, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var route routev1.Route
		if err := c.Get(ctx, key, &route); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed := route.DeepCopy()
		changed.Status.Ingress = slices.DeleteFunc(changed.Status.Ingress, func(e routev1.RouteIngress) bool { return e.RouterName == name })
		if len(changed.Status.Ingress) == len(route.Status.Ingress) {
			return nil
		}
		return writeStatus(ctx, c, &route, changed)
	})
}
