package walk

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/version"
)

func TestWhySaysWhichAddressesKubeProxyDoesNotServe(t *testing.T) {
	want := func(published, ranges string) string {
		return version.Link("publishes " + published + ", where kube-proxy serves no node ports, because its nodePortAddresses are " + ranges +
			": extend them, or publish other addresses: docs/classes.md#which-address-of-a-node")
	}
	// The node has 10.0.0.1, 10.8.0.1 and fd00::1, an external address, and a name.
	for name, tc := range map[string]struct {
		config, published, want string
		kind                    corev1.ServiceType
	}{
		"nftables, second address":           {config: "mode: nftables", published: "10.8.0.1", want: want("10.8.0.1", "primary")},
		"nftables, first address":            {config: "mode: nftables", published: "10.0.0.1"},
		"nftables, first of another family":  {config: "mode: nftables", published: "fd00::1"},
		"nftables, external address":         {config: "mode: nftables", published: "203.0.113.1"},
		"nftables, address of a router":      {config: "mode: nftables", published: "198.51.100.1"},
		"nftables, name":                     {config: "mode: nftables", published: "node-1"},
		"nftables, all ranges":               {config: "{mode: nftables, nodePortAddresses: [0.0.0.0/0]}", published: "10.8.0.1"},
		"iptables":                           {config: "mode: iptables", published: "10.8.0.1"},
		"iptables, second address, primary":  {config: "nodePortAddresses: [primary]", published: "10.8.0.1", want: want("10.8.0.1", "primary")},
		"iptables, in one of the ranges":     {config: "nodePortAddresses: [fd00::/8, 10.8.0.0/16]", published: "10.8.0.1"},
		"iptables, in none of the ranges":    {config: "nodePortAddresses: [fd00::/8, 10.8.0.0/16]", published: "10.0.0.1", want: want("10.0.0.1", "fd00::/8, 10.8.0.0/16")},
		"no configuration, but another text": {config: "]", published: "10.8.0.1"},
		"no configuration":                   {published: "10.8.0.1"},
		"load balancer":                      {config: "mode: nftables", published: "10.8.0.1", kind: corev1.ServiceTypeLoadBalancer},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "node-1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
				{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "10.8.0.1"},
				{Type: corev1.NodeInternalIP, Address: "fd00::1"},
			}}}
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(node)
			if tc.config != "" {
				builder.WithObjects(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Data: map[string]string{"config.conf": tc.config},
				})
			}
			listener := &listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("broker")}, Status: &listenersv1alpha1.ListenerStatus{
				IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: tc.published, AddressType: listenersv1alpha1.AddressTypeIP}},
			}}
			service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
			if tc.kind != "" {
				service.Spec.Type = tc.kind
			}

			w := New(&check.Examination{Client: builder.Build()})
			if w.nodePorts(t.Context(), listener, service); len(w.Findings) > 0 {
				t.Errorf("nobody asked about the Listener, but kube-proxy's configuration was read: %+v", w.Findings)
			}
			w.asked = true
			w.nodePorts(t.Context(), listener, service)
			switch {
			case w.Err != nil:
				t.Error(w.Err)
			case tc.want == "" && len(w.Findings) > 0:
				t.Errorf("got %+v", w.Findings)
			case tc.want != "" && (len(w.Findings) != 1 || w.Findings[0].State != check.Warning || w.Findings[0].Object() != "ListenerClass broker" || w.Findings[0].Message != tc.want):
				t.Errorf("got %+v, want the message %q", w.Findings, tc.want)
			}
		})
	}
}
