package router

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// withStatus returns a client with the Routes that counts status writes.
func withStatus(t *testing.T, writes *int, routes ...routev1.Route) client.Client {
	t.Helper()
	scheme, err := NewScheme()
	check.Must(t, err)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&routev1.Route{})
	for i := range routes {
		builder = builder.WithObjects(&routes[i])
	}
	return builder.WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			*writes++
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	}).Build()
}

func admittedBy(router, host string) routev1.RouteIngress {
	return routev1.RouteIngress{
		Host: host, RouterName: router, WildcardPolicy: routev1.WildcardPolicyNone,
		Conditions: []routev1.RouteIngressCondition{{Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue}},
	}
}

// stored returns a Route and its entries, without their times.
func stored(t *testing.T, c client.Client, name string) (*routev1.Route, []routev1.RouteIngress) {
	t.Helper()
	var route routev1.Route
	check.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: name}, &route))
	entries := route.DeepCopy().Status.Ingress
	for i := range entries {
		for j := range entries[i].Conditions {
			entries[i].Conditions[j].LastTransitionTime = nil
		}
	}
	return &route, entries
}

// The entries of other routers stay, in the same order, and an unchanged entry is not written again.
func TestRouterWritesOnlyItsOwnEntry(t *testing.T) {
	t.Parallel()
	existing := newRoute(1, "a", "web", "x.test")
	existing.Status.Ingress = []routev1.RouteIngress{admittedBy("other", "other.test")}
	var writes int
	c := withStatus(t, &writes, existing)
	id := Identity{Name: "own", CanonicalHostname: "router.test"}
	own := admittedBy("own", "x.test")
	own.RouterCanonicalHostname = "router.test"
	rejected := own
	rejected.Conditions = []routev1.RouteIngressCondition{{Type: routev1.RouteAdmitted, Status: corev1.ConditionFalse, Reason: "Reason", Message: "message"}}
	for _, step := range []struct {
		rejection *rejection
		entry     routev1.RouteIngress
		writes    int
	}{
		{nil, own, 1}, {nil, own, 1}, {&rejection{"Reason", "message"}, rejected, 2}, {&rejection{"Reason", "message"}, rejected, 2}, {nil, own, 3},
	} {
		current, _ := stored(t, c, "web")
		check.Must(t, writeDecision(t.Context(), c, id, current, decision{route: current, rejection: step.rejection}))
		_, got := stored(t, c, "web")
		check.Equal(t, "entries", []routev1.RouteIngress{admittedBy("other", "other.test"), step.entry}, got)
		if writes != step.writes {
			t.Errorf("%d writes, want %d", writes, step.writes)
		}
	}
}

// The entries are one list, so that writing an outdated one would remove entries that other routers have written since.
func TestOutdatedEntriesAreNotWritten(t *testing.T) {
	t.Parallel()
	var writes int
	c := withStatus(t, &writes, newRoute(1, "a", "web", "x.test"))
	old, _ := stored(t, c, "web")
	check.Must(t, writeDecision(t.Context(), c, Identity{Name: "other"}, old, decision{route: old}))
	if err := writeDecision(t.Context(), c, Identity{Name: "own"}, old, decision{route: old}); err == nil {
		t.Error("the entry is written")
	}
	_, got := stored(t, c, "web")
	check.Equal(t, "entries", []routev1.RouteIngress{admittedBy("other", "x.test")}, got)
}

func TestRemoveStatusRetriesOnConflict(t *testing.T) {
	t.Parallel()
	both, other := newRoute(1, "a", "both", "x.test"), newRoute(2, "a", "other", "y.test")
	both.Status.Ingress = []routev1.RouteIngress{admittedBy("own", "x.test"), admittedBy("other", "x.test")}
	other.Status.Ingress = []routev1.RouteIngress{admittedBy("other", "y.test")}
	var writes int
	scheme, err := NewScheme()
	check.Must(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&routev1.Route{}).WithObjects(&both, &other).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			writes++
			if writes == 1 { // another router writes first
				var current routev1.Route
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), &current); err != nil {
					return err
				}
				now := metav1.NewTime(time.Now())
				current.Status.Ingress[1].Conditions[0].LastTransitionTime = &now
				if err := c.Status().Update(ctx, &current); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		}}).Build()
	check.Must(t, RemoveStatus(t.Context(), c, "own"))
	for name, want := range map[string][]routev1.RouteIngress{"both": {admittedBy("other", "x.test")}, "other": {admittedBy("other", "y.test")}} {
		_, got := stored(t, c, name)
		check.Equal(t, "entries of "+name, want, got, cmpopts.EquateEmpty())
	}
	if writes != 2 {
		t.Errorf("%d writes, want one and its repetition", writes)
	}
}
