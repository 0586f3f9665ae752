package listener

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// TestPlan compares what has to exist with golden files.
func TestPlan(t *testing.T) {
	const template = "{port}.{listener}.{namespace}.example.com"
	for name, s := range map[string]*state{
		"node-ports":                     newState(nodePort),
		"load-balancer":                  newState(loadBalancer),
		"cluster-ip":                     newState(clusterIP),
		"headless":                       newState(clusterIP).change(withPods).change(withHeadlessService),
		"headless-instead-of-cluster-ip": newState(clusterIP).change(withPods),
		"cluster-ip-instead-of-headless": newState(clusterIP).change(withHeadlessService),
		"same-port": newState(nodePort).change(func(s *state) {
			s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
		}),
		"name": newState(loadBalancer).change(func(s *state) {
			s.class.Spec.Hostname = &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com"}
		}),
		"overrides": newState(clusterIP).change(func(s *state) {
			s.class.Spec.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"team":"a"}},"spec":{"sessionAffinity":"ClientIP"}}`)}
		}),
		"routes":                       newRouteState(),
		"routes-instead-of-node-ports": newRouteState().change(withNodePortService),
		"ingress": newState(clusterIP).change(func(s *state) {
			s.class.Spec.Ingress = &listenersv1alpha1.IngressExposure{ClassName: "nginx", HostTemplate: template}
		}),
		"tls-route": newState(clusterIP).with(newGateway(gatewayv1.TLSProtocolType)).change(func(s *state) {
			s.class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{
				Kind: listenersv1alpha1.GatewayRouteKindTLS, HostTemplate: template, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}},
			}
		}),
		"no-port-for-routes": newRouteState().change(func(s *state) {
			for i := range s.listener.Spec.Ports {
				s.listener.Spec.Ports[i].Protocol = ptr.To(corev1.ProtocolUDP)
			}
		}),
		"no-class": newState(clusterIP).change(func(s *state) { s.class = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(s.backends, s.newClient(t), events.NewFakeRecorder(1))
			before, err := r.reader.Snapshot(t.Context(), s.listener)
			check.Must(t, err)
			p := decide.Plan{Service: decide.ServiceFor(before)}
			if p.Service.Refusal == nil {
				p.Objects, p.ObjectsRefusal = decide.ObjectsFor(before, p.Service, exposure.Others{})
			}
			golden.Compare(t, "plan/"+name, map[string]any{
				"service": p.Service.Now, "keepsType": p.Service.KeepsType, "refusal": p.Service.Refusal, "objects": p.Objects, "objectsRefusal": p.ObjectsRefusal,
			})
		})
	}
}
