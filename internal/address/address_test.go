package address_test

import (
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/address"
)

func TestAddresses(t *testing.T) {
	for s, want := range map[string]struct{ ip, hostname bool }{
		"192.0.2.1":               {true, true}, // the host name of some nodes
		"2001:db8::1":             {true, false},
		"::ffff:192.0.2.1":        {true, false},
		"fe80::1%eth0":            {false, false},
		"fe80::1%\n":              {false, false},
		"[2001:db8::1]":           {false, false},
		"192.0.2.1\n":             {false, false},
		"192.0.2.1 ":              {false, false},
		"192.0.2.1:80":            {false, false},
		"node-1":                  {false, true},
		"Node-1.example.com":      {false, true},
		"node_1":                  {false, false},
		"node-1\n203.0.113.1":     {false, false},
		"../../etc":               {false, false},
		"node-1..example.com":     {false, false},
		"*.example.com":           {false, false},
		"":                        {false, false},
		strings.Repeat("a.", 127): {false, false},
	} {
		if got := address.IsIP(s); got != want.ip {
			t.Errorf("%q is an IP address: %t", s, got)
		}
		if got := address.IsHostname(s); got != want.hostname {
			t.Errorf("%q is a host name: %t", s, got)
		}
	}
}

func TestAddressesThatLeadNobodyOutsideToTheCluster(t *testing.T) {
	const dns = "a name in the DNS of the cluster"
	for s, want := range map[string]string{
		"192.0.2.1": "", "10.0.0.1": "", "2001:db8::1": "", "fd00::1": "", "node-1": "", "node.1": "", "": "",
		"127.0.0.1": "a loopback address", "::1": "a loopback address", "::ffff:127.0.0.1": "a loopback address",
		"localhost": "a loopback address", "LocalHost": "a loopback address", "web.localhost": "a loopback address", "localhost.localdomain": "a loopback address",
		"169.254.0.1": "a link-local address", "fe80::1": "a link-local address", "fe80::1%eth0": "a link-local address",
		"0.0.0.0": "the unspecified address", "::": "the unspecified address",
		"224.0.0.1": "a multicast address", "ff02::1": "a multicast address", "255.255.255.255": "a broadcast address",
		"gw.infra.svc": dns, "gw.infra.svc.cluster.local": dns, "GW.Infra.SVC.Cluster.Local": dns, "pod.cluster.local": dns, "gw.infra.svc.k8s.example.com": dns,
		"gw.k8s.example.com": "", "svc": "", "svc.example.com": "", "gw.infra.svc.example.com": "", "cluster.local": "", "localhost.example.com": "", "notlocalhost": "",
	} {
		if got := address.Inside(s, "K8s.example.com"); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
	if got := address.Inside("gw.infra.svc.k8s.example.com", ""); got != "" {
		t.Errorf("without a known domain: %q", got)
	}
}

func TestHostNamesThatEndWithANumber(t *testing.T) {
	for s, want := range map[string]bool{
		"192.0.2.300": true, "node.1": true, "1": true, "node-1": false, "1.example": false, "node1": false, "": false,
	} {
		if got := address.EndsWithNumber(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}
