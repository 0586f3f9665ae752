package records_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/records"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

type ports = map[string]int32

// to returns a target at an address that is published by a name.
func to(address string, addressType listenersv1alpha1.AddressType, name string, at ports) listenersv1alpha1.Target {
	published := listenersv1alpha1.IngressAddress{Address: name, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: at}
	return listenersv1alpha1.Target{Address: address, AddressType: addressType, Ports: at, Advertised: published}
}

func TestRecords(t *testing.T) {
	const ip, hostname, name = listenersv1alpha1.AddressTypeIP, listenersv1alpha1.AddressTypeHostname, "kafka-0.shop.example.com"
	own, long := ports{"kafka": 9092, "log": 514}, strings.Repeat("x", 63)
	for about, tc := range map[string]struct {
		targets []listenersv1alpha1.Target
		records listenersv1alpha1.HostnameRecords
		ttl     *int32
		want    []records.Record
	}{
		"addresses of both families, each once": {
			targets: []listenersv1alpha1.Target{to("10.0.0.2", ip, name, own), to("10.0.0.1", ip, name, own), to("2001:db8::1", ip, name, own), to("10.0.0.2", ip, name, own)},
			want:    []records.Record{{name, "A", 60, []string{"10.0.0.2", "10.0.0.1"}}, {name, "AAAA", 60, []string{"2001:db8::1"}}},
		},
		"ports that differ, with their protocols": {
			targets: []listenersv1alpha1.Target{to("10.0.0.1", ip, name, ports{"kafka": 31337, "log": 514, long: 1})}, ttl: ptr.To[int32](5),
			want: []records.Record{
				{"_kafka._tcp." + name, "SRV", 5, []string{"0 0 31337 " + name}}, {"_log._udp." + name, "SRV", 5, []string{"0 0 514 " + name}},
				{name, "A", 5, []string{"10.0.0.1"}},
			},
		},
		"a host name, which has no ports": {
			targets: []listenersv1alpha1.Target{to("lb.example.org", hostname, name, ports{"kafka": 1}), to("other.example.org", hostname, name, own)},
			want:    []records.Record{{name, "CNAME", 60, []string{"lb.example.org"}}},
		},
		"a host name beside an address": {
			targets: []listenersv1alpha1.Target{to("lb.example.org", hostname, name, own), to("10.0.0.1", ip, name, own)},
			want:    []records.Record{{name, "A", 60, []string{"10.0.0.1"}}},
		},
		"names that others write":            {targets: []listenersv1alpha1.Target{to("10.0.0.1", ip, name, own)}, records: listenersv1alpha1.HostnameRecordsNone, want: []records.Record{{name, "A", 60, []string{"10.0.0.1"}}}},
		"names in annotations":               {targets: []listenersv1alpha1.Target{to("10.0.0.1", ip, name, own)}, records: listenersv1alpha1.HostnameRecordsAnnotation},
		"what a previous class advertised":   {targets: []listenersv1alpha1.Target{to("10.0.0.1", ip, "kafka.example.com", own), to("lb.example.org", hostname, "kafka.example.com", own)}},
		"an address that leads to no target": {},
	} {
		t.Run(about, func(t *testing.T) {
			listener := &listenersv1alpha1.Listener{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kafka-0"},
				Spec: listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{
					{Name: "kafka", Port: 9092}, {Name: "log", Port: 514, Protocol: ptr.To(corev1.ProtocolUDP)},
				}},
				Status: &listenersv1alpha1.ListenerStatus{Targets: tc.targets},
			}
			class := &listenersv1alpha1.ListenerClass{}
			class.Spec.Hostname = &listenersv1alpha1.Hostname{
				Template: "{listener}.{namespace}.example.com", Records: listenersv1alpha1.HostnameRecordsDNSEndpoint, TTLSeconds: tc.ttl,
			}
			if tc.records != "" {
				class.Spec.Hostname.Records = tc.records
			}
			check.Equal(t, "records", tc.want, records.Of(&exposure.Listener{Listener: listener, Class: class}))
		})
	}
}
