package exposure_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// cidrs returns ranges of addresses.
func cidrs(all ...listenersv1alpha1.CIDR) []listenersv1alpha1.CIDR { return all }

func local(class *listenersv1alpha1.ListenerClass) {
	class.Spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
}

func TestListenerOnlyRestrictsTheClientsOfItsClass(t *testing.T) {
	for name, tc := range map[string]struct {
		class, listener []listenersv1alpha1.CIDR
		want            []string
		refused         string
	}{
		"without ranges, all clients":      {},
		"those of the class":               {class: cidrs("198.51.100.0/24", "2001:db8::/32"), want: []string{"198.51.100.0/24", "2001:db8::/32"}},
		"those of the Listener":            {listener: cidrs("198.51.100.0/24"), want: []string{"198.51.100.0/24"}},
		"a part of a range":                {class: cidrs("203.0.113.0/24", "198.51.100.0/24"), listener: cidrs("198.51.100.128/25"), want: []string{"198.51.100.128/25"}},
		"a whole range":                    {class: cidrs("198.51.100.0/24"), listener: cidrs("198.51.100.0/24"), want: []string{"198.51.100.0/24"}},
		"single addresses become ranges":   {class: cidrs("198.51.100.7/24"), listener: cidrs("198.51.100.9/31"), want: []string{"198.51.100.8/31"}},
		"a wider range":                    {class: cidrs("198.51.100.0/24"), listener: cidrs("198.51.100.0/23"), refused: "which allows 198.51.100.0/24, and 198.51.100.0/23 is not within"},
		"another range":                    {class: cidrs("198.51.100.0/24"), listener: cidrs("198.51.100.1/32", "203.0.113.0/24"), refused: "and 203.0.113.0/24 is not within"},
		"all addresses of a family":        {class: cidrs("198.51.100.0/24"), listener: cidrs("0.0.0.0/0"), refused: "0.0.0.0/0 is not within"},
		"another family":                   {class: cidrs("0.0.0.0/0"), listener: cidrs("::/0"), refused: "::/0 is not within"},
		"two halves that are together one": {class: cidrs("198.51.100.0/25", "198.51.100.128/25"), listener: cidrs("198.51.100.0/24"), refused: "is not within one of these"},
		"no range, in the class":           {class: cidrs("198.51.100.0"), refused: "spec.allowedClients of ListenerClass class: 198.51.100.0 is no range"},
		"no range, in the Listener":        {listener: cidrs("::ffff:198.51.100.0/120"), refused: "spec.allowedClients: ::ffff:198.51.100.0/120 is no range"},
		"many ranges": {
			class:    cidrs("10.0.0.0/32", "10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", "10.0.0.5/32", "10.0.0.6/32"),
			listener: cidrs("10.0.0.7/32"), refused: "10.0.0.6/32",
		},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(loadBalancer), newListener()
			class.Spec.AllowedClients, listener.Spec.AllowedClients = tc.class, tc.listener
			clients, refusal := exposure.AllowedClients(class, listener)
			if tc.refused != "" {
				if refusal == nil || refusal.Reason != listenersv1alpha1.ReasonInvalidAllowedClients || !strings.Contains(refusal.Message, tc.refused) {
					t.Errorf("refusal is %v, want %q", refusal, tc.refused)
				}
				return
			}
			var got []string
			for _, c := range clients {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || refusal != nil {
				t.Errorf("%v (-want +got):\n%s", refusal, diff)
			}
		})
	}
}

func TestClientsThatCannotBeRestrictedAreRefused(t *testing.T) {
	routed := func(class *listenersv1alpha1.ListenerClass) { class.Spec.Route = &listenersv1alpha1.RouteExposure{} }
	hostPorts := func(class *listenersv1alpha1.ListenerClass) {
		class.Spec.HostPort = &listenersv1alpha1.HostPortExposure{}
	}
	withoutNodePorts := func(class *listenersv1alpha1.ListenerClass) {
		class.Spec.LoadBalancerAllocateNodePorts = ptr.To(false)
	}
	pods := func(class *listenersv1alpha1.ListenerClass) { class.Spec.Pod = &listenersv1alpha1.PodExposure{} }
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		class       func(*listenersv1alpha1.ListenerClass)
		override    string // of the Listener
		clients     []listenersv1alpha1.CIDR
		want        string // part of the message, "" if they can
	}{
		"a load balancer":   {serviceType: loadBalancer},
		"node ports, Local": {serviceType: nodePort, class: local},
		"host ports":        {serviceType: clusterIP, class: hostPorts},
		"Routes":            {serviceType: clusterIP, class: routed},
		"Pods":              {serviceType: clusterIP, class: pods},
		"other Pods":        {serviceType: clusterIP, class: pods, override: `spec: {selector: {app: web}}`, want: "overrides replace spec.selector"},
		"node ports":        {serviceType: nodePort, want: "set serviceExternalTrafficPolicy: Local in ListenerClass class"},
		"node ports, Cluster": {
			serviceType: nodePort, class: local, override: `spec: {externalTrafficPolicy: Cluster}`, want: "no externalTrafficPolicy Local",
		},
		"cluster IPs": {serviceType: clusterIP, want: "use a class with another serviceType"},
		"Ingresses": {
			serviceType: clusterIP, class: func(class *listenersv1alpha1.ListenerClass) {
				class.Spec.Ingress = &listenersv1alpha1.IngressExposure{}
			},
			want: "configure the proxy",
		},
		"Gateways": {
			serviceType: clusterIP, class: func(class *listenersv1alpha1.ListenerClass) {
				class.Spec.Gateway = &listenersv1alpha1.GatewayExposure{Kind: listenersv1alpha1.GatewayRouteKindTLS}
			},
			want: "configure the proxy",
		},
		"Routes with the annotation": {
			serviceType: clusterIP, class: func(class *listenersv1alpha1.ListenerClass) {
				class.Spec.Route = &listenersv1alpha1.RouteExposure{Annotations: map[string]string{"haproxy.router.openshift.io/ip_whitelist": "10.0.0.0/8"}}
			},
			want: "has haproxy.router.openshift.io/ip_whitelist",
		},
		"another type":        {serviceType: loadBalancer, override: `spec: {type: NodePort}`, want: "overrides change spec.type"},
		"a type for Routes":   {serviceType: clusterIP, class: routed, override: `spec: {type: NodePort}`, want: "overrides change spec.type"},
		"other source ranges": {serviceType: loadBalancer, override: `spec: {loadBalancerSourceRanges: [0.0.0.0/0]}`, want: "overrides change spec.loadBalancerSourceRanges"},
		"another selector":    {serviceType: nodePort, class: local, override: `spec: {selector: {app: web}}`, want: "overrides replace spec.selector"},
		"a named target port": {
			serviceType: nodePort, class: local, override: `spec: {ports: [{port: 80, targetPort: http}]}`, want: "port http of the Service to a container port by its name",
		},
		"a target port": {serviceType: nodePort, class: local, override: `spec: {ports: [{port: 80, targetPort: 8080}]}`},
		"external IPs": {
			serviceType: loadBalancer, want: "overrides set spec.externalIPs",
			class: func(class *listenersv1alpha1.ListenerClass) {
				class.Spec.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`)}
			},
		},
		"another load balancer": {serviceType: loadBalancer, override: `spec: {loadBalancerClass: example.com/other}`, want: "overrides change spec.loadBalancerClass"},
		"node ports of a load balancer without": {
			serviceType: loadBalancer, class: withoutNodePorts, override: `spec: {allocateLoadBalancerNodePorts: true}`, want: "overrides give the Service node ports",
		},
		"a node port of a load balancer without": {
			serviceType: loadBalancer, class: withoutNodePorts, override: `spec: {ports: [{port: 80, nodePort: 30080}]}`, want: "overrides give the Service node ports",
		},
		"a load balancer without node ports": {serviceType: loadBalancer, class: withoutNodePorts},
		"fewer node ports":                   {serviceType: loadBalancer, override: `spec: {allocateLoadBalancerNodePorts: false}`},
		"annotations that the class lists":   {serviceType: loadBalancer, override: `metadata: {annotations: {a: b}}`},
		"a load balancer of two families":    {serviceType: loadBalancer, override: `spec: {ipFamilyPolicy: PreferDualStack}`, want: "no range of IPv6, which the Service may have"},
		"a load balancer of two families with ranges of both": {
			serviceType: loadBalancer, override: `spec: {ipFamilyPolicy: PreferDualStack}`, clients: cidrs("198.51.100.0/24", "::/128"),
		},
		"a load balancer of the other family": {
			serviceType: loadBalancer, class: func(class *listenersv1alpha1.ListenerClass) {
				class.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
			},
			clients: cidrs("2001:db8::/32"), want: "add one, or 0.0.0.0/32, which is nobody's",
		},
		"node ports of two families": {serviceType: nodePort, class: local, override: `spec: {ipFamilyPolicy: PreferDualStack}`},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(tc.serviceType), newListener()
			class.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{
				"spec.type", "spec.selector", "spec.ports.targetPort", "spec.externalTrafficPolicy", "spec.loadBalancerSourceRanges", "spec.ipFamilyPolicy",
				"spec.loadBalancerClass", "spec.allocateLoadBalancerNodePorts", "spec.ports.nodePort", "metadata.annotations",
			}}
			if tc.class != nil {
				tc.class(class)
			}
			if tc.override != "" {
				listener.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, tc.override)}
			}
			unrestricted, refusal := backends.All().Of(class).Service(class, listener)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if refusal := backends.All().Of(class).CheckClients(&exposure.Listener{Listener: listener, Class: class}, unrestricted); refusal != nil {
				t.Errorf("without allowedClients: %v", refusal)
			}
			for where, set := range map[string]func([]listenersv1alpha1.CIDR){
				"of the class":    func(c []listenersv1alpha1.CIDR) { class.Spec.AllowedClients, listener.Spec.AllowedClients = c, nil },
				"of the Listener": func(c []listenersv1alpha1.CIDR) { class.Spec.AllowedClients, listener.Spec.AllowedClients = nil, c },
			} {
				if set(tc.clients); tc.clients == nil {
					set(cidrs("198.51.100.0/24"))
				}
				service, refusal := backends.All().Of(class).Service(class, listener)
				if refusal != nil {
					t.Fatal(refusal)
				}
				switch refusal = backends.All().Of(class).CheckClients(&exposure.Listener{Listener: listener, Class: class}, service); {
				case tc.want == "" && refusal != nil:
					t.Errorf("%s: %v", where, refusal)
				case tc.want == "":
				case refusal == nil || refusal.Reason != listenersv1alpha1.ReasonAllowedClientsNotEnforceable || !strings.Contains(refusal.Message, tc.want):
					t.Errorf("%s: refusal is %v, want %q", where, refusal, tc.want)
				}
			}
		})
	}
}

// The class may list them, because each cloud has its own.
func TestAnnotationsThatCouldAdmitClientsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		clients     []listenersv1alpha1.CIDR
		allowed     []listenersv1alpha1.ServiceField
		refused     bool
	}{
		"a load balancer":                     {serviceType: loadBalancer, clients: cidrs("198.51.100.0/24"), refused: true},
		"a load balancer for all clients":     {serviceType: loadBalancer},
		"a load balancer whose class lists":   {serviceType: loadBalancer, clients: cidrs("198.51.100.0/24"), allowed: []listenersv1alpha1.ServiceField{"metadata.annotations"}},
		"node ports, which a policy protects": {serviceType: nodePort, clients: cidrs("198.51.100.0/24")},
	} {
		for _, restricting := range []string{"class", "Listener"} {
			t.Run(name+", by the "+restricting, func(t *testing.T) {
				class, listener := newClass(tc.serviceType), newListener()
				if restricting == "class" {
					class.Spec.AllowedClients = tc.clients
				} else {
					listener.Spec.AllowedClients = tc.clients
				}
				if tc.allowed != nil {
					class.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: tc.allowed}
				}
				listener.Spec.ObjectOverrides = []runtime.RawExtension{
					serviceOverride(t, `metadata: {annotations: {service.beta.kubernetes.io/azure-allowed-service-tags: Internet}}`),
				}
				_, refusal := backends.All().Of(class).Service(class, listener)
				if refused := refusal != nil && strings.Contains(refusal.Message, "does not allow Listeners to override metadata.annotations"); refused != tc.refused {
					t.Errorf("refusal is %v", refusal)
				}
			})
		}
	}
}

func TestLoadBalancerHasTheRangesAndTheirFamily(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	for name, tc := range map[string]struct {
		clients  []listenersv1alpha1.CIDR
		class    func(*listenersv1alpha1.ListenerClass)
		ranges   []string
		families []corev1.IPFamily
	}{
		"none": {},
		"IPv4": {clients: cidrs("198.51.100.7/24", "203.0.113.0/24"), ranges: []string{"198.51.100.0/24", "203.0.113.0/24"}, families: []corev1.IPFamily{v4}},
		"IPv6": {clients: cidrs("2001:db8::/32"), ranges: []string{"2001:db8::/32"}, families: []corev1.IPFamily{v6}},
		"both": {clients: cidrs("198.51.100.0/24", "2001:db8::/32"), ranges: []string{"198.51.100.0/24", "2001:db8::/32"}},
		"by policy": {clients: cidrs("198.51.100.0/24"), ranges: []string{"198.51.100.0/24"}, class: func(c *listenersv1alpha1.ListenerClass) {
			c.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			class := newClass(loadBalancer)
			class.Spec.AllowedClients = tc.clients
			if tc.class != nil {
				tc.class(class)
			}
			service, refusal := backends.All().Of(class).Service(class, newListener())
			if refusal != nil {
				t.Fatal(refusal)
			}
			if diff := cmp.Diff(tc.ranges, service.Spec.LoadBalancerSourceRanges) + cmp.Diff(tc.families, service.Spec.IPFamilies); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
