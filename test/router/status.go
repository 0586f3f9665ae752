package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// report writes a verdict into the Route's status, unless it says so already. The entries of other routers stay.
func report(ctx context.Context, c client.Client, id Identity, current *routev1.Route, v verdict) error {
	entry := newEntry(id, v)
	i := slices.IndexFunc(current.Status.Ingress, func(e routev1.RouteIngress) bool { return e.RouterName == id.Name })
	if i >= 0 && same(current.Status.Ingress[i], entry) {
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

// newEntry is what a router says of a Route.
func newEntry(id Identity, v verdict) routev1.RouteIngress {
	now := metav1.Now().Rfc3339Copy()
	condition := routev1.RouteIngressCondition{Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue, LastTransitionTime: &now}
	if v.refusal != nil {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, v.refusal.reason, v.refusal.message
	}
	return routev1.RouteIngress{
		Host:                    v.route.Spec.Host,
		RouterName:              id.Name,
		RouterCanonicalHostname: id.CanonicalHostname,
		WildcardPolicy:          v.route.Spec.WildcardPolicy,
		Conditions:              []routev1.RouteIngressCondition{condition},
	}
}

// same tells whether two entries differ in nothing but when they were made.
func same(a, b routev1.RouteIngress) bool {
	if len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for i := range a.Conditions {
		x, y := a.Conditions[i], b.Conditions[i]
		x.LastTransitionTime, y.LastTransitionTime = nil, nil
		if x != y {
			return false
		}
	}
	return a.Host == b.Host && a.RouterName == b.RouterName && a.RouterCanonicalHostname == b.RouterCanonicalHostname &&
		a.WildcardPolicy == b.WildcardPolicy
}

// writeStatus fails with a conflict if somebody else changed the Route meanwhile: the entries are one list.
func writeStatus(ctx context.Context, c client.Client, current, changed *routev1.Route) error {
	err := c.Status().Patch(ctx, changed, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("writing the status of Route %s/%s: %w", current.Namespace, current.Name, err)
	}
	return nil
}

// Forget removes a router's entries from the status of all Routes. A router never does so itself: its entries stay when
// it ends, and when a Route leaves its shard. On the platform, the operator of the routers cleans up after one that was
// deleted.
func Forget(ctx context.Context, c client.Client, name string) error {
	var routes routev1.RouteList
	if err := c.List(ctx, &routes); err != nil {
		return fmt.Errorf("listing Routes: %w", err)
	}
	var errs []error
	for i := range routes.Items {
		errs = append(errs, forget(ctx, c, client.ObjectKeyFromObject(&routes.Items[i]), name))
	}
	return errors.Join(errs...)
}

// forget removes a router's entry from the status of one Route.
func forget(ctx context.Context, c client.Client, key client.ObjectKey, name string) error {
	for {
		var route routev1.Route
		if err := c.Get(ctx, key, &route); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed := route.DeepCopy()
		changed.Status.Ingress = slices.DeleteFunc(changed.Status.Ingress, func(e routev1.RouteIngress) bool { return e.RouterName == name })
		if len(changed.Status.Ingress) == len(route.Status.Ingress) {
			return nil
		}
		if err := writeStatus(ctx, c, &route, changed); !apierrors.IsConflict(err) {
			return err
		}
	}
}
