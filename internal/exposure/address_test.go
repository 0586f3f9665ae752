package exposure_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func node(name string, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: addresses}}
}

func TestNodeAddress(t *testing.T) {
	var (
		hostname    = corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-1"}
		hostname2   = corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-2"}
		internal    = corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}
		internal6   = corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::1"}
		external    = corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"}
		internalDNS = corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "node-1.internal"}
		externalDNS = corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "node-1.example.com"}
	)
	type chosen struct {
		Address string
		Type    listenersv1alpha1.AddressType
		OK      bool
	}
	none := chosen{Type: listenersv1alpha1.AddressTypeHostname}
	for name, tc := range map[string]struct {
		addresses []corev1.NodeAddress
		ip, host  chosen
	}{
		"external before internal, in any order": {
			addresses: []corev1.NodeAddress{internal, hostname, external},
			ip:        chosen{"203.0.113.1", listenersv1alpha1.AddressTypeIP, true},
			host:      chosen{"node-1", listenersv1alpha1.AddressTypeHostname, true},
		},
		"first of a type": {
			addresses: []corev1.NodeAddress{internal6, internal, hostname2, hostname},
			ip:        chosen{"fd00::1", listenersv1alpha1.AddressTypeIP, true},
			host:      chosen{"node-2", listenersv1alpha1.AddressTypeHostname, true},
		},
		"host name only": {
			addresses: []corev1.NodeAddress{hostname},
			ip:        chosen{"node-1", listenersv1alpha1.AddressTypeHostname, true},
			host:      chosen{"node-1", listenersv1alpha1.AddressTypeHostname, true},
		},
		"IP only": {
			addresses: []corev1.NodeAddress{internal},
			ip:        chosen{"10.0.0.1", listenersv1alpha1.AddressTypeIP, true},
			host:      chosen{"10.0.0.1", listenersv1alpha1.AddressTypeIP, true},
		},
		"DNS names are ignored": {addresses: []corev1.NodeAddress{internalDNS, externalDNS}, ip: none, host: none},
		"no address":            {ip: none, host: none},
		"invalid addresses are ignored": {
			addresses: []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "203.0.113.1\n203.0.113.2"}, {Type: corev1.NodeExternalIP, Address: "fe80::1%eth0"}, internal,
				{Type: corev1.NodeHostName, Address: "node/1"}, hostname2,
			},
			ip:   chosen{"10.0.0.1", listenersv1alpha1.AddressTypeIP, true},
			host: chosen{"node-2", listenersv1alpha1.AddressTypeHostname, true},
		},
		"a host name is no IP address": {
			addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "node-1"}}, ip: none, host: none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for prefer, want := range map[listenersv1alpha1.AddressType]chosen{
				listenersv1alpha1.AddressTypeIP: tc.ip, listenersv1alpha1.AddressTypeHostname: tc.host,
			} {
				var got chosen
				got.Address, got.Type, got.OK = exposure.NodeAddress(node("node-1", tc.addresses...), prefer)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("prefer %s (-want +got):\n%s", prefer, diff)
				}
			}
		})
	}
}
