package listener

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestARouteOfAnotherNamespaceCannotHide: whoever knows the UID of a Listener can name it as the controller of a route
// in another namespace, which the garbage collector deletes, but not while the route has a finalizer.
func TestARouteOfAnotherNamespaceCannotHide(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeClusterIP)
	s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{
		Kind: listenersv1alpha1.GatewayRouteKindTCP, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}},
	}
	theirs := &gatewayv1alpha2.TCPRoute{ObjectMeta: metav1.ObjectMeta{
		Namespace: "theirs", Name: "theirs", UID: "theirs", OwnerReferences: s.service.OwnerReferences, Finalizers: []string{"example.com/stay"},
	}}
	theirs.Spec.ParentRefs = []gatewayv1.ParentReference{{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "edge", SectionName: ptr.To[gatewayv1.SectionName]("tcp")}}
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}}
	gateway.Spec.Listeners = []gatewayv1.Listener{{
		Name: "tcp", Port: 9000, Protocol: gatewayv1.TCPProtocolType,
		AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
	}}
	o := s.with(theirs, gateway).reconcile(t, 1, interceptor.Funcs{}, nil)
	if accepted := o.condition(listenersv1alpha1.ListenerAccepted); o.err != nil || !strings.Contains(accepted.Message, "TCPRoute theirs/theirs has it") {
		t.Errorf("error %v, condition %v", o.err, accepted)
	}
}
