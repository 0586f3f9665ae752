package exposure_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestNodeAddress(t *testing.T) {
	var (
		hostname    = corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-1"}
		hostname2   = corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-2"}
		internal    = objects.InternalIP("10.0.0.1")
		internal6   = objects.InternalIP("fd00::1")
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
		"what leads no other machine to the node is ignored": {
			addresses: []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "169.254.0.1"}, objects.InternalIP("fe80::1"), objects.InternalIP("127.0.0.1"), internal,
				{Type: corev1.NodeHostName, Address: "localhost"}, {Type: corev1.NodeHostName, Address: "web.infra.svc"}, hostname2,
			},
			ip:   chosen{"10.0.0.1", listenersv1alpha1.AddressTypeIP, true},
			host: chosen{"node-2", listenersv1alpha1.AddressTypeHostname, true},
		},
		"only what leads no other machine to the node": {
			addresses: []corev1.NodeAddress{objects.InternalIP("fe80::1"), {Type: corev1.NodeHostName, Address: "localhost"}}, ip: none, host: none,
		},
		"a host name is no IP address": {
			addresses: []corev1.NodeAddress{objects.InternalIP("node-1")}, ip: none, host: none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for prefer, want := range map[listenersv1alpha1.AddressType]chosen{
				listenersv1alpha1.AddressTypeIP: tc.ip, listenersv1alpha1.AddressTypeHostname: tc.host,
			} {
				got := chosen{Type: listenersv1alpha1.AddressTypeHostname}
				if addresses, problem := exposure.NodeAddresses(objects.Node("node-1", tc.addresses...), exposure.NodeChoice{Prefer: prefer}); problem == "" {
					got = chosen{addresses[0].Address, addresses[0].AddressType, len(addresses) == 1}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("prefer %s (-want +got):\n%s", prefer, diff)
				}
			}
		})
	}
}

// The name of the node precedes the message.
func TestANodeWithoutAnAddressForOthersSaysWhatIsLeftOut(t *testing.T) {
	local := objects.Node("node-1", objects.InternalIP("169.254.0.1"), corev1.NodeAddress{Type: corev1.NodeHostName, Address: "localhost"})
	addresses, problem := exposure.NodeAddresses(local, exposure.NodeChoice{Prefer: listenersv1alpha1.AddressTypeIP})
	const want = "neither a valid IP address nor a valid host name, and what leads no other machine to it is left out: 169.254.0.1 (a link-local address), " +
		"localhost (a loopback address)"
	if len(addresses) > 0 || problem != want {
		t.Errorf("addresses %v, problem %q", addresses, problem)
	}
}

func TestNodeAddressesByTypesAndRanges(t *testing.T) {
	all := objects.Node("node-1",
		objects.InternalIP("10.0.0.1"),
		objects.InternalIP("192.0.2.1"),
		objects.InternalIP("fd00::1"),
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-1"},
		corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "node-1.internal"},
		corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "node-1.example.com"},
		corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "not/valid"},
	)
	const (
		isIP   = listenersv1alpha1.AddressTypeIP
		isName = listenersv1alpha1.AddressTypeHostname
	)
	type types = []listenersv1alpha1.NodeAddressType
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for name, tc := range map[string]struct {
		types    types
		cidrs    []string
		prefer   listenersv1alpha1.AddressType
		families []corev1.IPFamily
		want     []listenersv1alpha1.IngressAddress
		problem  string
	}{
		"first type":                  {types: types{"InternalIP", "ExternalIP"}, want: []listenersv1alpha1.IngressAddress{{Address: "10.0.0.1", AddressType: isIP}}},
		"types overrule a preference": {types: types{"ExternalIP"}, prefer: isName, want: []listenersv1alpha1.IngressAddress{{Address: "203.0.113.1", AddressType: isIP}}},
		"internal name":               {types: types{"InternalDNS"}, want: []listenersv1alpha1.IngressAddress{{Address: "node-1.internal", AddressType: isName}}},
		"external name":               {types: types{"ExternalDNS", "ExternalIP"}, want: []listenersv1alpha1.IngressAddress{{Address: "node-1.example.com", AddressType: isName}}},
		"range":                       {types: types{"InternalIP"}, cidrs: []string{"192.0.2.0/24"}, want: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: isIP}}},
		"range with host bits":        {types: types{"InternalIP"}, cidrs: []string{"192.0.2.77/24"}, want: []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: isIP}}},
		"any of the ranges":           {types: types{"ExternalIP", "InternalIP"}, cidrs: []string{"198.51.100.0/24", "fd00::/8"}, want: []listenersv1alpha1.IngressAddress{{Address: "fd00::1", AddressType: isIP}}},
		"range without types":         {prefer: isIP, cidrs: []string{"10.0.0.0/8"}, want: []listenersv1alpha1.IngressAddress{{Address: "10.0.0.1", AddressType: isIP}}},
		"a name in spite of ranges":   {types: types{"Hostname"}, cidrs: []string{"10.0.0.0/8"}, want: []listenersv1alpha1.IngressAddress{{Address: "node-1", AddressType: isName}}},
		"no name beside ranges":       {prefer: isName, cidrs: []string{"198.51.100.0/24"}, problem: "no valid address in [198.51.100.0/24]"},
		"nothing in the range": {
			types: types{"InternalIP"}, cidrs: []string{"198.51.100.0/24"}, problem: "no valid address of the types [InternalIP] in [198.51.100.0/24]",
		},

		"each family":               {prefer: isIP, families: both, want: []listenersv1alpha1.IngressAddress{{Address: "203.0.113.1", AddressType: isIP}, {Address: "fd00::1", AddressType: isIP}}},
		"in the Service's order":    {types: types{"InternalIP"}, families: []corev1.IPFamily{both[1], both[0]}, want: []listenersv1alpha1.IngressAddress{{Address: "fd00::1", AddressType: isIP}, {Address: "10.0.0.1", AddressType: isIP}}},
		"the only family":           {types: types{"InternalIP"}, families: both[1:], want: []listenersv1alpha1.IngressAddress{{Address: "fd00::1", AddressType: isIP}}},
		"a family that is missing":  {types: types{"ExternalIP"}, families: both, want: []listenersv1alpha1.IngressAddress{{Address: "203.0.113.1", AddressType: isIP}}},
		"a name is of all families": {prefer: isName, families: both, want: []listenersv1alpha1.IngressAddress{{Address: "node-1", AddressType: isName}}},
		"a name is the fallback":    {types: types{"ExternalIP", "ExternalDNS"}, families: both[1:], want: []listenersv1alpha1.IngressAddress{{Address: "node-1.example.com", AddressType: isName}}},
		"no address of the family": {
			types: types{"ExternalIP"}, families: both[1:], problem: "no valid address of the types [ExternalIP] of the Service's IP families [IPv6]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			choice := exposure.NodeChoice{Types: tc.types, Prefer: tc.prefer, Families: tc.families}
			for _, cidr := range tc.cidrs {
				choice.CIDRs = append(choice.CIDRs, netip.MustParsePrefix(cidr).Masked())
			}
			got, problem := exposure.NodeAddresses(all, choice)
			if diff := cmp.Diff(tc.want, got); diff != "" || problem != tc.problem {
				t.Errorf("problem %q, addresses (-want +got):\n%s", problem, diff)
			}
		})
	}
}

func TestAdvertisedAddressOfANode(t *testing.T) {
	const (
		isIP   = listenersv1alpha1.AddressTypeIP
		isName = listenersv1alpha1.AddressTypeHostname
	)
	both := []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	for value, tc := range map[string]struct {
		want     []listenersv1alpha1.IngressAddress
		families []corev1.IPFamily
		problem  string // a part of it
	}{
		"198.51.100.1":                  {want: []listenersv1alpha1.IngressAddress{{Address: "198.51.100.1", AddressType: isIP}}},
		"2001:db8::1":                   {want: []listenersv1alpha1.IngressAddress{{Address: "2001:db8::1", AddressType: isIP}}},
		"broker.example.com":            {want: []listenersv1alpha1.IngressAddress{{Address: "broker.example.com", AddressType: isName}}},
		" a.example.com , 198.51.100.1": {want: []listenersv1alpha1.IngressAddress{{Address: "a.example.com", AddressType: isName}}},
		"198.51.100.1, 2001:db8::1":     {want: []listenersv1alpha1.IngressAddress{{Address: "198.51.100.1", AddressType: isIP}}},
		"198.51.100.1,2001:db8::1":      {families: both, want: []listenersv1alpha1.IngressAddress{{Address: "2001:db8::1", AddressType: isIP}, {Address: "198.51.100.1", AddressType: isIP}}},
		"name.example.com,2001:db8::1":  {families: both, want: []listenersv1alpha1.IngressAddress{{Address: "name.example.com", AddressType: isName}}},
		"198.51.100.7":                  {families: both[:1], problem: "no valid address of the Service's IP families [IPv6] in its annotation"},
		"":                              {problem: `"" is neither`},
		"198.51.100.300":                {problem: `"198.51.100.300" is neither`},
		"198.51.100.1:9092":             {problem: "is neither"},
		"https://broker.example.com":    {problem: "is neither"},
		"[2001:db8::1]":                 {problem: "is neither"},
		"fe80::1%eth0":                  {problem: "is a link-local address"},
		"169.254.10.1":                  {problem: "is a link-local address; correct or remove it"},
		"0.0.0.0":                       {problem: "is the unspecified address"},
		"127.0.0.1":                     {problem: "is a loopback address"},
		"localhost":                     {problem: "is a loopback address"},
		"gw.infra.svc.cluster.local":    {problem: "is a name in the DNS of the cluster"},
		"198.51.100.1,":                 {problem: `"" is neither`},
		"198.51.100.1\n198.51.100.2":    {problem: "is neither"},
		"../../etc":                     {problem: "is neither"},
		strings.Repeat("x", 300):        {problem: "..."},
	} {
		t.Run(value[:min(len(value), 40)], func(t *testing.T) {
			annotated := objects.Node("node-1", objects.InternalIP("10.0.0.1"))
			annotated.Annotations = map[string]string{names.AnnotationAdvertisedAddress: value}
			// Types of a class do not apply.
			choice := exposure.NodeChoice{Types: []listenersv1alpha1.NodeAddressType{"InternalIP"}, Families: tc.families}
			got, problem := exposure.NodeAddresses(annotated, choice)
			if diff := cmp.Diff(tc.want, got); diff != "" || !strings.Contains(problem, tc.problem) || (problem == "") != (tc.problem == "") {
				t.Errorf("problem %q, addresses (-want +got):\n%s", problem, diff)
			}
			if invalid := exposure.InvalidAdvertisedAddress([]*corev1.Node{annotated}); invalid != strings.Contains(problem, "invalid annotation") {
				t.Errorf("invalid: %t", invalid)
			}
		})
	}
}

// A kubelet may write the annotation of its own Node, and an administrator sets the ranges.
func TestRangesGuardAgainstTheAnnotationOfANode(t *testing.T) {
	const (
		isIP   = listenersv1alpha1.AddressTypeIP
		isName = listenersv1alpha1.AddressTypeHostname
	)
	for name, tc := range map[string]struct {
		annotation string
		types      []listenersv1alpha1.NodeAddressType
		want       []listenersv1alpha1.IngressAddress
		problem    string
	}{
		"in a range":                    {annotation: "10.1.2.3", want: []listenersv1alpha1.IngressAddress{{Address: "10.1.2.3", AddressType: isIP}}},
		"outside":                       {annotation: "198.51.100.1", problem: "no valid address in [10.0.0.0/8] in its annotation listener-operator.dev/advertised-address"},
		"one of two":                    {annotation: "198.51.100.1,10.1.2.3", want: []listenersv1alpha1.IngressAddress{{Address: "10.1.2.3", AddressType: isIP}}},
		"name":                          {annotation: "broker.example.com", problem: "no valid address in [10.0.0.0/8] in its annotation"},
		"name, where IP addresses are":  {annotation: "broker.example.com", types: []listenersv1alpha1.NodeAddressType{"InternalIP"}, problem: "no valid address"},
		"name, where the class has one": {annotation: "broker.example.com", types: []listenersv1alpha1.NodeAddressType{"InternalIP", "ExternalDNS"}, want: []listenersv1alpha1.IngressAddress{{Address: "broker.example.com", AddressType: isName}}},
	} {
		t.Run(name, func(t *testing.T) {
			annotated := objects.Node("node-1", objects.InternalIP("10.0.0.1"))
			annotated.Annotations = map[string]string{names.AnnotationAdvertisedAddress: tc.annotation}
			got, problem := exposure.NodeAddresses(annotated, exposure.NodeChoice{Types: tc.types, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
			if diff := cmp.Diff(tc.want, got); diff != "" || !strings.Contains(problem, tc.problem) || (problem == "") != (tc.problem == "") {
				t.Errorf("problem %q, addresses (-want +got):\n%s", problem, diff)
			}
		})
	}
}

// Whatever an annotation contains, only addresses that clients can use are published.
func FuzzAdvertisedAddress(f *testing.F) {
	for _, seed := range []string{"198.51.100.1", "a.example.com,2001:db8::1", "fe80::1%eth0", "a,,b", "\x00", "1.2.3.4 ,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		annotated := objects.Node("node-1", objects.InternalIP("10.0.0.1"))
		annotated.Annotations = map[string]string{names.AnnotationAdvertisedAddress: value}
		addresses, problem := exposure.NodeAddresses(annotated, exposure.NodeChoice{Prefer: listenersv1alpha1.AddressTypeIP})
		if (problem == "") != (len(addresses) == 1) {
			t.Fatalf("problem %q, addresses %v", problem, addresses)
		}
		for _, a := range addresses {
			if isIP := address.IsIP(a.Address); isIP != (a.AddressType == listenersv1alpha1.AddressTypeIP) || !isIP && !address.IsHostname(a.Address) {
				t.Errorf("published %+v", a)
			}
		}
	})
}
