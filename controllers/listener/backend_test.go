package listener

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/backends/testdata/tunnel"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// withTunnelClass exposes the Listener by a backend that is added to the operator's own.
func withTunnelClass(s *state) {
	s.backends = slices.Concat(backends.List{tunnel.Backend()}, backends.All())
	s.class.Spec.Route, s.class.Spec.Ports = nil, []string{"http"}
	s.class.Spec.ServiceAnnotations = map[string]string{tunnel.Annotation: "{listener}.{namespace}.example.com"}
}

// ownTunnel returns the Tunnel of the Listener's port, which is served.
func ownTunnel() *tunnel.Tunnel {
	return &tunnel.Tunnel{ObjectMeta: ownRoute("http").ObjectMeta, Spec: tunnel.Spec{Host: "web.shop.example.com", ServiceName: "web"}, Status: tunnel.Status{Port: 443}}
}

func TestAdditionalBackendNeedsNoChangeOfTheController(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com")), ownTunnel()).change(withTunnelClass)
	o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
	check.Must(t, o.err)
	check.Equal(t, "addresses", []string{"web.shop.example.commap[http:443]"}, o.addresses())
	if len(o.routes) > 0 {
		t.Errorf("Routes of the previous backend are left: %v", o.routes)
	}
	foreign := &tunnel.Tunnel{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-http"}}
	s = newRouteState(ownRoute("http", admittedAs("http.example.com")), foreign).change(withTunnelClass)
	s.change(withPublished(map[string]string{"http.example.com": "http"}))
	o = s.reconcile(t, 1, interceptor.Funcs{}, nil)
	check.Equal(t, "reason beside a foreign Tunnel", reasons.Foreign("Tunnel"), o.condition(listenersv1alpha1.ListenerAccepted).Reason)
	check.Equal(t, "addresses beside a foreign Tunnel", []string{"http.example.commap[http:443]"}, o.addresses())
}

func TestAdditionalBackendCanHaveHeadlessServices(t *testing.T) {
	s := newState(clusterIP).change(withTunnelClass).with(ownTunnel())
	s.backends[0].Headless, s.service = true, nil
	if o := s.reconcile(t, 1, interceptor.Funcs{}, nil); o.err != nil || o.service == nil || o.service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("error %v, Service %+v", o.err, o.service)
	}
}

// Clients need time to learn the addresses of the third backend, too.
func TestPreviousExposureStaysWhenBackendChangesTwice(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("h.example.com")), ownTunnel()).change(withNodePortService).change(withTunnelClass)
	s.class.Spec.ServiceType = nodePort
	o := s.operator(t, interceptor.Funcs{})
	o.wantRequeue(0, 10*time.Second)
	change(o, s.class.Name, func(class *listenersv1alpha1.ListenerClass) { class.Spec.ServiceAnnotations = nil })
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
	if got := get[corev1.Service](o, key.Name); got.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("got a Service of type %q, want NodePort", got.Spec.Type)
	}
}
