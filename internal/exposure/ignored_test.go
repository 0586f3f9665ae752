package exposure_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func TestIgnoredSettings(t *testing.T) {
	local := ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	for name, tc := range map[string]struct {
		spec listenersv1alpha1.ListenerClassSpec
		want []string // beginnings
	}{
		"defaults": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: clusterIP, LoadBalancerAllocateNodePorts: ptr.To(true), PreferredAddressType: listenersv1alpha1.PreferredAddressTypeHostnameConservative,
		}, nil},
		"everything that a load balancer has": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: loadBalancer, LoadBalancerAllocateNodePorts: ptr.To(false), LoadBalancerClass: ptr.To("lb"), ServiceExternalTrafficPolicy: local,
			PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		}, nil},
		"everything that node ports have": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: nodePort, PinnedNodePorts: true, ServiceExternalTrafficPolicy: local, LoadBalancerClass: ptr.To(""),
		}, nil},
		"a pinned host port": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: clusterIP, HostPort: &listenersv1alpha1.HostPortExposure{}, PinnedNodePorts: true,
		}, nil},
		"a pinned load balancer": {listenersv1alpha1.ListenerClassSpec{ServiceType: loadBalancer, PinnedNodePorts: true}, []string{"pinnedNodePorts"}},
		"a load balancer's settings of node ports": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: nodePort, LoadBalancerAllocateNodePorts: ptr.To(false), LoadBalancerClass: ptr.To("lb"),
		}, []string{"loadBalancerClass", "loadBalancerAllocateNodePorts"}},
		"external traffic of a cluster IP": {listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, ServiceExternalTrafficPolicy: local}, []string{"serviceExternalTrafficPolicy"}},
		"IP addresses of Routes": {listenersv1alpha1.ListenerClassSpec{
			ServiceType: clusterIP, Route: &listenersv1alpha1.RouteExposure{}, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		}, []string{"preferredAddressType"}},
	} {
		t.Run(name, func(t *testing.T) {
			class := newClass(tc.spec.ServiceType)
			class.Spec = tc.spec
			got := exposure.IgnoredSettings(class)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i, want := range tc.want {
				if !strings.HasPrefix(got[i], want+" of ListenerClass class has no effect: ") || !strings.Contains(got[i], "; remove it") {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}
