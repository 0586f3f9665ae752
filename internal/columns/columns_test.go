package columns_test

import (
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/columns"
)

func address(host string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: host, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}
}

func TestAnAddressHasAPortAndTheNumberOfTheOthers(t *testing.T) {
	two := map[string]int32{"http": 30080, "admin": 30081}
	for want, addresses := range map[string][]listenersv1alpha1.IngressAddress{
		"":                        nil,
		"192.0.2.1:30080":         {address("192.0.2.1", map[string]int32{"http": 30080})},
		"192.0.2.1:30081 +1":      {address("192.0.2.1", two)}, // admin is before http
		"192.0.2.1:30081 +3":      {address("192.0.2.1", two), address("192.0.2.2", two)},
		"[2001:db8::1]:80":        {address("2001:db8::1", map[string]int32{"http": 80})},
		"lb.example.com":          {address("lb.example.com", nil)},
		"lb.example.com:443 +1":   {address("lb.example.com", map[string]int32{"https": 443}), address("192.0.2.1", nil)},
		"lb.example.com:443 +999": addressesOf(1000),
	} {
		if got := columns.Address(addresses); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func addressesOf(n int) []listenersv1alpha1.IngressAddress {
	all := make([]listenersv1alpha1.IngressAddress, n)
	for i := range all {
		all[i] = address("lb.example.com", map[string]int32{"https": 443})
	}
	return all
}

func TestNamesAreCut(t *testing.T) {
	for want, names := range map[string][]string{
		"":         nil,
		"a":        {"a"},
		"a,b,c":    {"a", "b", "c"},
		"a,b,c +2": {"a", "b", "c", "d", "e"},
	} {
		if got := columns.Names(names); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWhatAListenerWaitsForHasItsKind(t *testing.T) {
	host := &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindHost, Value: "web.example.com", Holder: "shop/web"}
	for want, w := range map[string]*listenersv1alpha1.WaitingFor{
		"": nil, "NodePort": {Kind: listenersv1alpha1.WaitingKindNodePort}, "Host web.example.com": host,
	} {
		if got := columns.WaitingFor(w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAllVolumesOfAPodAreListed(t *testing.T) {
	at := func(ip string) []listenersv1alpha1.IngressAddress {
		return []listenersv1alpha1.IngressAddress{address(ip, map[string]int32{"kafka": 30092, "rest": 30093})}
	}
	got := columns.Volumes(&listenersv1alpha1.PodListenersSpec{
		Listeners: map[string]listenersv1alpha1.PodListener{
			"broker": {IngressAddresses: at("192.0.2.1")}, "bootstrap": {}, "moved": {IngressAddresses: at("192.0.2.3")},
		},
		StartAddresses: map[string][]listenersv1alpha1.IngressAddress{"broker": at("192.0.2.1"), "moved": at("192.0.2.2")},
	})
	if want := "bootstrap=<pending>, broker=192.0.2.1:30092 +1, moved=192.0.2.3:30092 +1 (was 192.0.2.2:30092 +1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := columns.Volumes(&listenersv1alpha1.PodListenersSpec{}); got != "" {
		t.Errorf("got %q for no volume", got)
	}
}
