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

func TestIPAddressesOfOtherMachines(t *testing.T) {
	for s, want := range map[string]bool{
		"192.0.2.1": true, "2001:db8::1": true, "169.254.0.1": true,
		"0.0.0.0": false, "::": false, "127.0.0.1": false, "::1": false, "224.0.0.1": false, "ff02::1": false,
		"fe80::1%eth0": false, "node-1": false, "192.0.2.300": false, "": false,
	} {
		if got := address.IsUnicastIP(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
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
