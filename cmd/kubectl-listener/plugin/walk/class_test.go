package walk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// ago returns the time so many days ago, and how the doctor writes it.
func ago(days int) (metav1.Time, string) {
	t := metav1.NewTime(time.Now().Add(-time.Duration(days) * 24 * time.Hour))
	return t, t.UTC().Format(time.DateOnly)
}

func newListener(name, class string, unusedDays int) listenersv1alpha1.Listener {
	l := listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class}}
	l.Status = &listenersv1alpha1.ListenerStatus{ServiceName: &name}
	if unusedDays >= 0 {
		since, _ := ago(unusedDays)
		l.Status.UnusedSince = &since
	}
	return l
}

func TestAddressesThatNoPodHasMountedAreNamed(t *testing.T) {
	_, eight := ago(8)
	var many []listenersv1alpha1.Listener
	for i := range 7 {
		many = append(many, newListener(fmt.Sprintf("web-%d", i), "public", 10+i))
	}
	for name, tc := range map[string]struct {
		listeners []listenersv1alpha1.Listener
		days      uint16
		want      []string // parts of the warning; none if there is none
		wantNot   string
	}{
		"used":                           {listeners: []listenersv1alpha1.Listener{newListener("web", "public", -1)}, days: 7},
		"unused for a while":             {listeners: []listenersv1alpha1.Listener{newListener("web", "public", 6)}, days: 7},
		"unused for a week":              {listeners: []listenersv1alpha1.Listener{newListener("web", "public", 8)}, days: 7, want: []string{"1 Listeners hold a LoadBalancer", "7 days: shop/web since " + eight}},
		"for as long as asked":           {listeners: []listenersv1alpha1.Listener{newListener("web", "public", 8)}, days: 9},
		"node ports":                     {listeners: []listenersv1alpha1.Listener{newListener("web", "nodes", 8)}, days: 7, want: []string{"1 Listeners hold a NodePort"}},
		"nothing that others could have": {listeners: []listenersv1alpha1.Listener{newListener("web", "inside", 8)}, days: 7},
		"no class":                       {listeners: []listenersv1alpha1.Listener{newListener("web", "deleted", 8)}, days: 7},
		"many, the oldest first":         {listeners: many, days: 7, want: []string{"7 Listeners", "shop/web-6 since", " +4"}, wantNot: "shop/web-1 "},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(fakeclient.Scheme()).WithLists(&listenersv1alpha1.ListenerList{Items: tc.listeners})
			for class, serviceType := range map[string]listenersv1alpha1.ServiceType{
				"public": listenersv1alpha1.ServiceTypeLoadBalancer, "nodes": listenersv1alpha1.ServiceTypeNodePort, "inside": listenersv1alpha1.ServiceTypeClusterIP,
			} {
				builder.WithObjects(&listenersv1alpha1.ListenerClass{
					ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: serviceType},
				})
			}
			w := New(&check.Examination{Backends: backends.All(), Client: builder.Build()})
			w.Unused(t.Context(), tc.days)
			var warnings []string
			for _, f := range w.Findings {
				if f.State == check.Warning {
					warnings = append(warnings, f.Message)
				}
			}
			if (len(warnings) > 0) != (len(tc.want) > 0) {
				t.Fatalf("warnings are %q", warnings)
			}
			for _, want := range tc.want {
				if !strings.Contains(warnings[0], want) || tc.wantNot != "" && strings.Contains(warnings[0], tc.wantNot) {
					t.Errorf("the warning is %q, want %q and not %q", warnings[0], want, tc.wantNot)
				}
			}
		})
	}
}

// Releases of the Gateway API in which TCPRoute was experimental serve it as v1alpha2.
func TestAClassNeedsItsKindsInAnyVersion(t *testing.T) {
	for version, want := range map[string]check.State{"v1": check.OK, "v1alpha2": check.OK, "v1alpha1": check.Failed} {
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(listenersv1alpha1.GroupVersion.WithKind("ListenerClass"), meta.RESTScopeRoot)
		group := schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
		mapper.Add(group.WithKind("Gateway"), meta.RESTScopeNamespace)
		mapper.Add(schema.GroupVersionKind{Group: group.Group, Version: version, Kind: "TCPRoute"}, meta.RESTScopeNamespace)
		w := New(&check.Examination{Backends: backends.All(), Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme()).WithRESTMapper(mapper).WithObjects(&listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "routed"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTCP}},
		}).Build()})
		w.Classes(t.Context())
		if len(w.Findings) != 1 || w.Findings[0].State != want {
			t.Errorf("%s: got %+v, want state %s", version, w.Findings, want)
		}
	}
}
