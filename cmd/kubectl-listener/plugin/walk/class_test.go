package walk

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// Releases of the Gateway API in which TCPRoute was experimental serve it as v1alpha2.
func TestAClassNeedsItsKindsInAnyVersion(t *testing.T) {
	for version, want := range map[string]check.State{"v1": check.OK, "v1alpha2": check.OK, "v1alpha1": check.Failed} {
		scheme := runtime.NewScheme()
		if err := listenersv1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(listenersv1alpha1.GroupVersion.WithKind("ListenerClass"), meta.RESTScopeRoot)
		group := schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
		mapper.Add(group.WithKind("Gateway"), meta.RESTScopeNamespace)
		mapper.Add(schema.GroupVersionKind{Group: group.Group, Version: version, Kind: "TCPRoute"}, meta.RESTScopeNamespace)
		w := New(&check.Examination{Client: fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(&listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "routed"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTCP}},
		}).Build()})
		w.Classes(t.Context())
		if len(w.Findings) != 1 || w.Findings[0].State != want {
			t.Errorf("%s: got %+v, want state %s", version, w.Findings, want)
		}
	}
}
