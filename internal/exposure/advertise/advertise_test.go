package advertise_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

type (
	address = listenersv1alpha1.IngressAddress
	target  = listenersv1alpha1.Target
	ports   = map[string]int32
)

const (
	ip       = listenersv1alpha1.AddressTypeIP
	hostname = listenersv1alpha1.AddressTypeHostname
)

// newListener returns the Listener of a claim that the Pods mount, with a Service that has node ports.
func newListener(template listenersv1alpha1.AdvertisedAddress, port listenersv1alpha1.AdvertisedPort, pods ...string) *exposure.Listener {
	return &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "listener-kafka-2",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-kafka-2"}},
			},
			Spec: listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{
				{Name: "kafka", Port: 9092}, {Name: "admin", Port: 9093}, {Name: "log", Port: 9092, Protocol: ptr.To(corev1.ProtocolUDP)},
			}},
		},
		Class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "edge"},
			Spec: listenersv1alpha1.ListenerClassSpec{
				ServiceType: listenersv1alpha1.ServiceTypeNodePort,
				Advertise:   &listenersv1alpha1.Advertise{AddressTemplate: template, PortTemplate: port},
			},
		},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "listener-kafka-2"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
				{Name: "admin", Port: 9093, NodePort: 30093}, {Name: "kafka", Port: 9092, NodePort: 30092}, {Name: "log", Port: 9092, NodePort: 30514, Protocol: corev1.ProtocolUDP},
			}},
		},
		Pods: pods,
	}
}

var placement = exposure.Placement{Nodes: []*corev1.Node{
	objects.Node("node-1.example.com", objects.InternalIP("10.0.0.1")), objects.Node("node-2", objects.InternalIP("10.0.0.2")),
}}

func TestTargets(t *testing.T) {
	onlyKafka := []address{{Address: "10.0.0.1", AddressType: ip, Ports: ports{"kafka": 30092}}}
	advertised := func(a string, addressType listenersv1alpha1.AddressType, p ports) []target {
		return []target{{Address: "10.0.0.1", AddressType: ip, NodeName: "node-1.example.com", Ports: ports{"kafka": 30092},
			Advertised: address{Address: a, AddressType: addressType, Ports: p}}}
	}
	for name, tc := range map[string]struct {
		listener  *exposure.Listener
		addresses []address // or else onlyKafka
		want      []target
		refused   string // words of the refusal
		reason    string // InvalidAdvertisement if empty
	}{
		"a shared address with a port for each Pod": {
			listener: newListener("kafka.example.com", "{podIndex}+9000", "kafka-2"),
			want:     advertised("kafka.example.com", hostname, ports{"kafka": 9002}),
		},
		"an IP address":               {listener: newListener("2001:DB8::1", ""), want: advertised("2001:db8::1", ip, ports{"kafka": 30092})},
		"an IP address for each Pod":  {listener: newListener("192.0.2.{podIndex}", "", "kafka-2"), want: advertised("192.0.2.2", ip, ports{"kafka": 30092})},
		"a name for each Pod":         {listener: newListener("{podName}.{namespace}.example.com", "443", "kafka-2"), want: advertised("kafka-2.shop.example.com", hostname, ports{"kafka": 443})},
		"a name of a Pod with dots":   {listener: newListener("{podName}.{namespace}.com", "443", "kafka.shop-2"), want: advertised("kafka-shop-2-e3af41a1fb17241f.shop.com", hostname, ports{"kafka": 443})},
		"the name of the node":        {listener: newListener("{nodeName}", ""), want: advertised("node-1.example.com", hostname, ports{"kafka": 30092})},
		"the address within a name":   {listener: newListener("{address}.nip.example.com", ""), want: advertised("10.0.0.1.nip.example.com", hostname, ports{"kafka": 30092})},
		"only a port":                 {listener: newListener("", "{nodePort}-30000+1000"), want: advertised("10.0.0.1", ip, ports{"kafka": 1092})},
		"the port of the Service":     {listener: newListener("", "{servicePort}"), want: advertised("10.0.0.1", ip, ports{"kafka": 9092})},
		"what is published otherwise": {listener: newListener("", "{addressPort}+1"), want: advertised("10.0.0.1", ip, ports{"kafka": 30093})},
		"the largest port":            {listener: newListener("", "65535"), want: advertised("10.0.0.1", ip, ports{"kafka": 65535})},
		"several addresses, one name": {
			listener:  newListener("kafka.example.com", "{servicePort}"),
			addresses: []address{{Address: "10.0.0.1", AddressType: ip, Ports: ports{"kafka": 30092, "admin": 30093, "log": 30514}}, {Address: "10.0.0.2", AddressType: ip, Ports: ports{"kafka": 30092}}},
			want: []target{
				{Address: "10.0.0.1", AddressType: ip, NodeName: "node-1.example.com", Ports: ports{"kafka": 30092, "admin": 30093, "log": 30514},
					Advertised: address{Address: "kafka.example.com", AddressType: hostname, Ports: ports{"kafka": 9092, "admin": 9093, "log": 9092}}},
				{Address: "10.0.0.2", AddressType: ip, NodeName: "node-2", Ports: ports{"kafka": 30092},
					Advertised: address{Address: "kafka.example.com", AddressType: hostname, Ports: ports{"kafka": 9092}}},
			},
		},
		"a name for each port, in the order of the Listener": {
			listener:  newListener("{port}.{listener}.{namespace}.example.com", "443"),
			addresses: []address{{Address: "lb.example.com", AddressType: hostname, Ports: ports{"admin": 9093, "kafka": 9092}}},
			want: []target{
				{Address: "lb.example.com", AddressType: hostname, Ports: ports{"kafka": 9092},
					Advertised: address{Address: "kafka.listener-kafka-2.shop.example.com", AddressType: hostname, Ports: ports{"kafka": 443}}},
				{Address: "lb.example.com", AddressType: hostname, Ports: ports{"admin": 9093},
					Advertised: address{Address: "admin.listener-kafka-2.shop.example.com", AddressType: hostname, Ports: ports{"admin": 443}}},
			},
		},

		"a Pod without an index":          {listener: newListener("", "{podIndex}+9000", "kafka"), refused: "name of Pod kafka does not end with a hyphen and a number", reason: "NoSinglePod"},
		"a name without an index":         {listener: newListener("{podIndex}.example.com", "", "kafka"), refused: "name of Pod kafka does not end", reason: "NoSinglePod"},
		"several Pods":                    {listener: newListener("", "{podIndex}+9000", "kafka-1", "kafka-2"), refused: "several Pods (kafka-1, kafka-2) mount claim shop/listener-kafka-2", reason: "NoSinglePod"},
		"an index that is too large":      {listener: newListener("", "{podIndex}", "kafka-99999999999"), refused: "too large in the name of Pod kafka-99999999999"},
		"port 0":                          {listener: newListener("", "{podIndex}-2", "kafka-2"), refused: "spec.advertise.portTemplate of ListenerClass edge ({podIndex}-2) results in 0 for port kafka"},
		"a port that is too large":        {listener: newListener("", "{nodePort}+40000"), refused: "results in 70092 for port kafka, which is not a port number from 1 to 65535"},
		"a port of another Service":       {listener: newListener("", "{nodePort}"), addresses: []address{{Address: "10.0.0.1", Ports: ports{"other": 1}}}, refused: "{nodePort}, which has no value for port other"},
		"a node name for another address": {listener: newListener("{nodeName}", ""), addresses: []address{{Address: "10.9.9.9", Ports: ports{"kafka": 1}}}, refused: "10.9.9.9 is not the address of a node"},
		"an ambiguous name":               {listener: newListener("{podName}-{namespace}.example.com", "", "kafka-2"), refused: "may give namespaces addresses of each other"},
		"an unknown placeholder":          {listener: newListener("{pod}.example.com", ""), refused: "the unknown placeholder {pod}"},
		"what no client resolves":         {listener: newListener("192.0.2.300", ""), refused: `"192.0.2.300", which is neither an IP address nor a host name`},
		"a loopback address":              {listener: newListener("127.0.0.1", ""), refused: `"127.0.0.1", which is neither`},
		"two ports at one number": {
			listener: newListener("kafka.example.com", "{podIndex}+9000", "kafka-2"), addresses: []address{{Address: "10.0.0.1", Ports: ports{"kafka": 1, "admin": 2}}},
			refused: "publishes both port kafka and port admin as kafka.example.com:9002; use {servicePort}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			addresses := tc.addresses
			if addresses == nil {
				addresses = onlyKafka
			}
			got, refusal := advertise.Targets(tc.listener, placement, addresses)
			if refusal == nil {
				if diff := cmp.Diff(tc.want, got); diff != "" || tc.refused != "" {
					t.Errorf("not refused (%s); targets (-want +got):\n%s", tc.refused, diff)
				}
				return
			}
			if reason := refusal.Reason; tc.refused == "" || !strings.Contains(refusal.Message, tc.refused) || reason != tc.reason && (tc.reason != "" || reason != "InvalidAdvertisement") {
				t.Errorf("refused by %s: %s", reason, refusal.Message)
			}
		})
	}
}

// The Service records the Pod.
func TestTheAddressStaysWhileThePodIsReplaced(t *testing.T) {
	l := newListener("kafka.example.com", "{podIndex}+9000")
	l.Service.Annotations = map[string]string{names.AnnotationPod: "kafka-2"}
	got, refusal := advertise.Targets(l, placement, []address{{Address: "10.0.0.1", AddressType: ip, Ports: ports{"kafka": 30092}}})
	if refusal != nil || got[0].Advertised.Ports["kafka"] != 9002 {
		t.Errorf("targets %v, refused: %v", got, refusal)
	}
}

func TestEndpointsAreCanonical(t *testing.T) {
	l := newListener("", "").Listener
	got := advertise.Endpoints(l, []target{
		{Advertised: address{Address: "Kafka.example.com", Ports: ports{"kafka": 9092, "log": 9092}}},
		{Advertised: address{Address: "kafka.example.com", Ports: ports{"kafka": 9092}}},
		{Advertised: address{Address: "::ffff:192.0.2.1", Ports: ports{"kafka": 1}}},
		{Advertised: address{Address: "2001:DB8:0::1", Ports: ports{"other": 1}}},
	})
	check.Equal(t, "endpoints", []string{"kafka.example.com:9092", "kafka.example.com:9092/UDP", "192.0.2.1:1", "[2001:db8::1]:1"}, got)
}

// What is published for other nodes, or for other host ports on its node, is not its own.
func TestAPodGetsWhatIsPublishedForItsOwnAddress(t *testing.T) {
	published := func(number int32) address {
		return address{Address: "kafka.example.com", AddressType: hostname, Ports: ports{"kafka": number}}
	}
	targets := []target{
		{Address: "10.0.0.1", Ports: ports{"kafka": 30092}, Advertised: published(1)},
		{Address: "10.0.0.1", Ports: ports{"admin": 30093}, Advertised: published(2)},
		{Address: "10.0.0.2", Ports: ports{"kafka": 30092}, Advertised: published(3)},
		{Address: "10.0.0.1", Ports: ports{"kafka": 31000}, Advertised: published(4)},
	}
	got := advertise.Instead(targets, []address{{Address: "10.0.0.1", Ports: ports{"kafka": 30092, "admin": 30093}}})
	check.Equal(t, "addresses", []address{published(1), published(2)}, got)
}

// What several nodes have is one address with several targets.
func TestForwardsSayWhereToForwardTo(t *testing.T) {
	l := newListener("", "").Listener
	if got := advertise.Forwards(l); len(got) != 0 {
		t.Errorf("%v without a status", got)
	}
	published := address{Address: "kafka.example.com", AddressType: hostname, Ports: ports{"kafka": 9002, "log": 514}}
	l.Status = &listenersv1alpha1.ListenerStatus{Targets: []target{
		{Address: "10.0.0.1", NodeName: "node-1", Ports: ports{"kafka": 30092, "log": 30514}, Advertised: published},
		{Address: "2001:db8::1", Ports: ports{"kafka": 30092}, Advertised: published},
		{Address: "10.0.0.1", NodeName: "node-1", Ports: ports{"kafka": 30092}, Advertised: published},
	}}
	want := []advertise.Forward{
		{Name: "kafka", Protocol: "TCP", Address: "kafka.example.com", Port: 9002, Targets: []advertise.Destination{
			{Address: "10.0.0.1", Port: 30092, Node: "node-1"}, {Address: "2001:db8::1", Port: 30092},
		}},
		{Name: "log", Protocol: "UDP", Address: "kafka.example.com", Port: 514, Targets: []advertise.Destination{{Address: "10.0.0.1", Port: 30514, Node: "node-1"}}},
	}
	got := advertise.Forwards(l)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("forwards (-want +got):\n%s", diff)
	}
	if text := got[0].HostPort() + " " + got[0].Targets[0].String() + " " + got[0].Targets[1].String(); text != "kafka.example.com:9002 10.0.0.1:30092 (node-1) [2001:db8::1]:30092" {
		t.Errorf("text %q", text)
	}
}
