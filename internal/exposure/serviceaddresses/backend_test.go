package serviceaddresses_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/serviceaddresses"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const (
	nodePort     = listenersv1alpha1.ServiceTypeNodePort
	loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
	clusterIP    = listenersv1alpha1.ServiceTypeClusterIP

	preferIP           = listenersv1alpha1.PreferredAddressTypeIP
	preferHostname     = listenersv1alpha1.PreferredAddressTypeHostname
	preferConservative = listenersv1alpha1.PreferredAddressTypeHostnameConservative
)

func ip(address string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}
}

func hostname(address string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports}
}

func TestAddressesByServiceType(t *testing.T) {
	numbers := map[string]int32{"http": 80, "metrics": 9090}
	nodeNumbers := map[string]int32{"http": 30080, "metrics": 30090}
	newService := func(mutate func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"},
				Ports: []corev1.ServicePort{
					{Name: "metrics", Port: 9090, NodePort: 30090},
					{Name: "http", Port: 80, NodePort: 30080},
				},
			},
		}
		if mutate != nil {
			mutate(s)
		}
		return s
	}
	balanced := newService(func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "203.0.113.9", Hostname: "b.example.com"}, {Hostname: "a.example.com"}, {IP: "203.0.113.1"}, {},
		}
	})
	nodes := []*corev1.Node{
		objects.Node("node-1", objects.InternalIP("10.0.0.9"), corev1.NodeAddress{Type: corev1.NodeHostName, Address: "node-1"}),
		objects.Node("node-2"),
		objects.Node("node-3", objects.InternalIP("10.0.0.1")),
	}
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		service     *corev1.Service
		nodes       []*corev1.Node
		want        map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress
	}{
		"node ports keep the order of the nodes and leave out nodes without an address": {
			serviceType: nodePort, service: newService(nil), nodes: nodes,
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{
				preferIP:           {ip("10.0.0.9", nodeNumbers), ip("10.0.0.1", nodeNumbers)},
				preferConservative: {ip("10.0.0.9", nodeNumbers), ip("10.0.0.1", nodeNumbers)},
				"":                 {ip("10.0.0.9", nodeNumbers), ip("10.0.0.1", nodeNumbers)},
				preferHostname:     {hostname("node-1", nodeNumbers), ip("10.0.0.1", nodeNumbers)},
			},
		},
		"node ports without nodes": {
			serviceType: nodePort, service: newService(nil),
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{preferIP: {}},
		},
		"no allocated node ports": {
			serviceType: nodePort, nodes: nodes,
			service: newService(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}} }),
			want:    map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{preferIP: {}},
		},
		"load balancer addresses keep the order of the status": {
			serviceType: loadBalancer, service: balanced, nodes: nodes,
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{
				preferIP:           {ip("203.0.113.9", numbers), hostname("a.example.com", numbers), ip("203.0.113.1", numbers)},
				preferHostname:     {hostname("b.example.com", numbers), hostname("a.example.com", numbers), ip("203.0.113.1", numbers)},
				preferConservative: {hostname("b.example.com", numbers), hostname("a.example.com", numbers), ip("203.0.113.1", numbers)},
			},
		},
		"no load balancer address": {
			serviceType: loadBalancer, service: newService(nil),
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{preferIP: {}},
		},
		"cluster IPs or DNS name": {
			serviceType: clusterIP, service: balanced, nodes: nodes,
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{
				preferIP:           {ip("10.96.0.1", numbers), ip("fd00::1", numbers)},
				preferHostname:     {hostname("web.ns.svc.example.org", numbers)},
				preferConservative: {hostname("web.ns.svc.example.org", numbers)},
			},
		},
		"headless Service has only its DNS name": {
			serviceType: clusterIP,
			service: newService(func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
			}),
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{
				preferIP: {hostname("web.ns.svc.example.org", numbers)},
			},
		},
		"port without a name is not published": {
			serviceType: clusterIP,
			service:     newService(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 80}} }),
			want: map[listenersv1alpha1.PreferredAddressType][]listenersv1alpha1.IngressAddress{
				preferHostname: {hostname("web.ns.svc.example.org", map[string]int32{})},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for prefer, want := range tc.want {
				class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: tc.serviceType, PreferredAddressType: prefer}}
				got := serviceaddresses.Backend().Addresses(&exposure.Listener{
					Listener: &listenersv1alpha1.Listener{}, Class: class, Service: tc.service, ClusterDomain: "example.org",
				}, exposure.Placement{Nodes: tc.nodes}).Addresses
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("preferring %q (-want +got):\n%s", prefer, diff)
				}
			}
		})
	}
}

// The others stay listed: certificates must cover them.
func TestANameIsTheFirstAddress(t *testing.T) {
	const name = "web-0.shop.example.com"
	numbers := map[string]int32{"http": 9000}
	service := func(annotations map[string]string, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Annotations: annotations},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 9000}}},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
		}
	}
	named, stolen := map[string]string{names.AnnotationHostname: name}, map[string]string{names.AnnotationHostname: "db.theirs.svc.cluster.local"}
	balanced := []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {Hostname: "lb.example.com"}}
	for test, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		service     *corev1.Service
		noName      bool
		published   bool // the name in the annotation
		want        []listenersv1alpha1.IngressAddress
	}{
		"load balancer": {
			serviceType: loadBalancer, service: service(named, balanced...),
			want: []listenersv1alpha1.IngressAddress{hostname(name, numbers), ip("203.0.113.9", numbers), hostname("lb.example.com", numbers)},
		},
		"cluster IPs": {
			serviceType: clusterIP, service: service(named), want: []listenersv1alpha1.IngressAddress{hostname(name, numbers), ip("10.96.0.1", numbers)},
		},
		"no address to lead to": {serviceType: loadBalancer, service: service(named), want: []listenersv1alpha1.IngressAddress{}},
		"the Service does not have it yet": {
			serviceType: clusterIP, service: service(nil), want: []listenersv1alpha1.IngressAddress{ip("10.96.0.1", numbers)},
		},
		"another client changed it": {
			serviceType: clusterIP, service: service(stolen), want: []listenersv1alpha1.IngressAddress{ip("10.96.0.1", numbers)},
		},
		"the template changed": {
			serviceType: clusterIP, service: service(map[string]string{names.AnnotationHostname: "former.example.com"}), published: true,
			want: []listenersv1alpha1.IngressAddress{hostname("former.example.com", numbers), ip("10.96.0.1", numbers)},
		},
		"another author set the annotation": {
			serviceType: clusterIP, service: service(named), noName: true, want: []listenersv1alpha1.IngressAddress{ip("10.96.0.1", numbers)},
		},
	} {
		t.Run(test, func(t *testing.T) {
			class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: tc.serviceType, PreferredAddressType: preferIP}}
			if !tc.noName {
				class.Spec.Hostname = &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com"}
			}
			listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
			if tc.published {
				listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: tc.want[:1]}
			}
			got := serviceaddresses.Backend().Addresses(&exposure.Listener{Listener: listener, Class: class, Service: tc.service}, exposure.Placement{})
			check.Equal(t, "addresses", tc.want, got.Addresses)
		})
	}
}

func TestAddressesFollowTheFamiliesOfTheService(t *testing.T) {
	numbers, nodeNumbers := map[string]int32{"http": 80}, map[string]int32{"http": 30080}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: corev1.ServiceSpec{
			IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
			{IP: "203.0.113.1"}, {IP: "2001:db8::1"}, {IP: "203.0.113.2"},
		}}},
	}
	nodes := []*corev1.Node{
		objects.Node("node-1", objects.InternalIP("10.0.0.1"), objects.InternalIP("fd00::1")),
		objects.Node("node-2", objects.InternalIP("10.0.0.2")),
	}
	both := ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	for name, tc := range map[string]struct {
		spec listenersv1alpha1.ListenerClassSpec
		want []listenersv1alpha1.IngressAddress
	}{
		"nodes": {
			listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort, IPFamilyPolicy: both},
			[]listenersv1alpha1.IngressAddress{ip("fd00::1", nodeNumbers), ip("10.0.0.1", nodeNumbers), ip("10.0.0.2", nodeNumbers)},
		},
		"nodes of a class that does not choose families": {
			listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort},
			[]listenersv1alpha1.IngressAddress{ip("10.0.0.1", nodeNumbers), ip("10.0.0.2", nodeNumbers)},
		},
		"load balancer": {
			listenersv1alpha1.ListenerClassSpec{ServiceType: loadBalancer, IPFamilyPolicy: both},
			[]listenersv1alpha1.IngressAddress{ip("2001:db8::1", numbers), ip("203.0.113.1", numbers), ip("203.0.113.2", numbers)},
		},
		"load balancer of a class that does not choose families": {
			listenersv1alpha1.ListenerClassSpec{ServiceType: loadBalancer},
			[]listenersv1alpha1.IngressAddress{ip("203.0.113.1", numbers), ip("2001:db8::1", numbers), ip("203.0.113.2", numbers)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := serviceaddresses.Backend().Addresses(&exposure.Listener{
				Listener: &listenersv1alpha1.Listener{}, Class: &listenersv1alpha1.ListenerClass{Spec: tc.spec}, Service: service,
			}, exposure.Placement{Nodes: nodes}).Addresses
			check.Equal(t, "addresses", tc.want, got)
		})
	}
}

func TestNodesAdvertiseOtherAddresses(t *testing.T) {
	numbers := map[string]int32{"http": 30080}
	annotated := func(name, advertised string) *corev1.Node {
		n := objects.Node(name, objects.InternalIP("10.0.0.1"))
		n.Annotations = map[string]string{names.AnnotationAdvertisedAddress: advertised}
		return n
	}
	for name, tc := range map[string]struct {
		nodes  []*corev1.Node
		want   []listenersv1alpha1.IngressAddress
		reason string
	}{
		"another address":  {[]*corev1.Node{annotated("node-1", "198.51.100.1")}, []listenersv1alpha1.IngressAddress{ip("198.51.100.1", numbers)}, ""},
		"the same address": {[]*corev1.Node{annotated("node-1", "a.example.com"), annotated("node-2", "a.example.com")}, []listenersv1alpha1.IngressAddress{hostname("a.example.com", numbers)}, ""},
		"one is not valid": {
			[]*corev1.Node{annotated("node-1", "10.0.0"), annotated("node-2", "198.51.100.2")}, []listenersv1alpha1.IngressAddress{ip("198.51.100.2", numbers)},
			listenersv1alpha1.ReasonInvalidNodeAddress,
		},
		"none is valid": {[]*corev1.Node{annotated("node-1", "10.0.0")}, []listenersv1alpha1.IngressAddress{}, listenersv1alpha1.ReasonInvalidNodeAddress},
	} {
		t.Run(name, func(t *testing.T) {
			got := serviceaddresses.Backend().Addresses(&exposure.Listener{
				Listener: &listenersv1alpha1.Listener{},
				Class:    &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort}},
				Service:  &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}}}},
			}, exposure.Placement{Nodes: tc.nodes})
			if diff := cmp.Diff(tc.want, got.Addresses); diff != "" || got.Reason != tc.reason || got.Complete != (len(tc.want) > 0) {
				t.Errorf("got %+v; addresses (-want +got):\n%s", got, diff)
			}
			if tc.reason != "" && !strings.Contains(got.Message, "node-1 (an invalid annotation "+names.AnnotationAdvertisedAddress) {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}

func TestLoadBalancersWhoseAddressesLeadNobodyOutsideToThem(t *testing.T) {
	const (
		inside  = "gw.infra.svc.k8s.example.com"
		outside = "lb.example.com"
		listed  = inside + " (a name in the DNS of the cluster), 169.254.0.1 (a link-local address), localhost (a loopback address)"
	)
	numbers := map[string]int32{"http": 80}
	unusable := []corev1.LoadBalancerIngress{{Hostname: inside}, {IP: "169.254.0.1"}, {Hostname: "localhost"}}
	for name, tc := range map[string]struct {
		ingress   []corev1.LoadBalancerIngress
		advertise *listenersv1alpha1.Advertise
		want      []listenersv1alpha1.IngressAddress
		reason    string
		message   string
	}{
		"none for clients outside": {
			unusable, nil, []listenersv1alpha1.IngressAddress{}, listenersv1alpha1.ReasonUnusableAddress,
			"Service ns/web has no address that clients outside the cluster can use; its controller reports " + listed,
		},
		"one of several": {
			append(unusable[:3:3], corev1.LoadBalancerIngress{Hostname: outside}), nil, []listenersv1alpha1.IngressAddress{hostname(outside, numbers)}, "", listed,
		},
		"one of two of the same ingress": {
			[]corev1.LoadBalancerIngress{{IP: "192.0.2.1", Hostname: inside}}, nil, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", numbers)}, "", "",
		},
		"beside what is advertised in its place": {
			unusable[:1], &listenersv1alpha1.Advertise{AddressTemplate: "edge.example.com"}, []listenersv1alpha1.IngressAddress{hostname(inside, numbers)}, "", "",
		},
		"beside what is advertised from it": {
			unusable, &listenersv1alpha1.Advertise{PortTemplate: "443"}, []listenersv1alpha1.IngressAddress{}, listenersv1alpha1.ReasonUnusableAddress,
			"Service ns/web has no address that clients outside the cluster can use; its controller reports " + listed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &exposure.Listener{
				Listener:      &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}},
				Class:         &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: loadBalancer, Advertise: tc.advertise}},
				Service:       &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
				ClusterDomain: "k8s.example.com",
			}
			l.Service.Status.LoadBalancer.Ingress = tc.ingress
			want := exposure.Exposed{Addresses: tc.want, Complete: len(tc.want) > 0, Reason: tc.reason, Message: tc.message}
			if diff := cmp.Diff(want, serviceaddresses.Backend().Addresses(l, exposure.Placement{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A Service gets its node ports before its target ports can follow them.
func TestNodePortsAreLeftOutUntilTheyLeadToTheSameContainerPort(t *testing.T) {
	const number = 30080
	for name, tc := range map[string]struct {
		target    intstr.IntOrString
		published int32 // 0 if none
		overrides string
		class     *listenersv1alpha1.NodePorts
		want      bool
	}{
		"the same":                         {target: intstr.FromInt32(number), want: true},
		"the port of the Listener":         {target: intstr.FromInt32(80)},
		"none":                             {},
		"a name":                           {target: intstr.FromString("web")},
		"another number is published":      {target: intstr.FromInt32(80), published: number + 1},
		"published already":                {target: intstr.FromInt32(80), published: number, want: true},
		"a name that an override sets":     {target: intstr.FromString("web"), overrides: `{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`, want: true},
		"an override of something else":    {target: intstr.FromInt32(80), overrides: `{"spec":{"ports":[{"port":80,"appProtocol":"http"}]}}`},
		"overrides that do not apply":      {target: intstr.FromInt32(80), overrides: `{"kind":"Pod"}`},
		"a class that does not ask for it": {target: intstr.FromInt32(80), class: &listenersv1alpha1.NodePorts{Range: "30000-31000"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &exposure.Listener{
				Listener: &listenersv1alpha1.Listener{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid"},
					Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
				},
				Class: &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
					ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame},
				}},
				Service: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: number, TargetPort: tc.target}}}},
			}
			l.Class.Spec.ServiceOverrides.Raw = []byte(tc.overrides)
			if tc.class != nil {
				l.Class.Spec.NodePorts = tc.class
			}
			if tc.published != 0 {
				l.Status = &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": tc.published}}
			}
			l.Desired, _ = (&exposure.Backend{}).Service(l.Class, l.Listener)
			want := exposure.Exposed{
				Addresses: []listenersv1alpha1.IngressAddress{}, Reason: listenersv1alpha1.ReasonWaitingForNodePorts,
				Message: "the node ports of Service ns/web do not lead to the container ports of the same numbers yet",
			}
			if tc.want {
				numbers := map[string]int32{"http": number}
				want = exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{ip("10.0.0.9", numbers)}, NodePorts: numbers, Complete: true}
			}
			if diff := cmp.Diff(want, serviceaddresses.Backend().Addresses(l, exposure.Placement{Nodes: []*corev1.Node{objects.Node("node-1", objects.InternalIP("10.0.0.9"))}})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
