package exposure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

const (
	nodePort     = listenersv1alpha1.ServiceTypeNodePort
	loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
	clusterIP    = listenersv1alpha1.ServiceTypeClusterIP
)

func rawYAML(t testing.TB, s string) runtime.RawExtension {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(s))
	check.Must(t, err)
	return runtime.RawExtension{Raw: raw}
}

// serviceOverride returns an override for the Service of newListener.
func serviceOverride(t testing.TB, s string) runtime.RawExtension {
	t.Helper()
	var o unstructured.Unstructured
	check.Must(t, yaml.Unmarshal([]byte(s), &o.Object))
	o.SetAPIVersion("v1")
	o.SetKind("Service")
	o.SetNamespace("ns")
	o.SetName("web")
	raw, err := json.Marshal(o.Object)
	check.Must(t, err)
	return runtime.RawExtension{Raw: raw}
}

func newListener() *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "0123abcd-0000-4000-8000-00000000beef"},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName:                ptr.To("class"),
			Ports:                    []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}},
			PublishNotReadyAddresses: ptr.To(true),
		},
	}
}

func newClass(serviceType listenersv1alpha1.ServiceType) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "class"},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType:                   serviceType,
			LoadBalancerAllocateNodePorts: ptr.To(true),
			ServiceOverrides:              runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Service","metadata":{}}`)},
		},
	}
}

// everything sets every field of a class, whether or not it applies to the service type.
func everything(class *listenersv1alpha1.ListenerClass) {
	class.Spec.ServiceAnnotations = map[string]string{"example.com/pool": "a"}
	class.Spec.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	class.Spec.LoadBalancerClass = ptr.To("example.com/lb")
	class.Spec.LoadBalancerAllocateNodePorts = ptr.To(false)
}

func TestServiceLeadsToReadyPodsOnlyAsListenerOrClassSays(t *testing.T) {
	asRequested, perPodOnly := listenersv1alpha1.NotReadyAddressPolicyAsRequested, listenersv1alpha1.NotReadyAddressPolicyPerPodOnly
	claimed := []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "web", UID: "claim"}}
	product := []metav1.OwnerReference{{APIVersion: "kafka.stackable.tech/v1alpha1", Kind: "KafkaCluster", Name: "web", UID: "owner"}}
	for name, tc := range map[string]struct {
		policy   listenersv1alpha1.NotReadyAddressPolicy
		owners   []metav1.OwnerReference
		says     *bool
		override string
		want     bool
	}{
		"a class without a policy leaves it to the Listener": {says: ptr.To(true), want: true},
		"AsRequested leaves it to the Listener":              {policy: asRequested, says: ptr.To(true), want: true},
		"AsRequested leaves false":                           {policy: asRequested, says: ptr.To(false)},
		"PerPodOnly: a Listener that was created by name":    {policy: perPodOnly, says: ptr.To(true)},
		"PerPodOnly: a Listener of a product":                {policy: perPodOnly, owners: product, says: ptr.To(true)},
		"PerPodOnly: the Listener of a claim":                {policy: perPodOnly, owners: claimed, says: ptr.To(true), want: true},
		"PerPodOnly: a claim whose Listener says false":      {policy: perPodOnly, owners: claimed, says: ptr.To(false)},
		"PerPodOnly: a claim whose Listener says null":       {policy: perPodOnly, owners: claimed},
		"PerPodOnly: an override says more than the default": {policy: perPodOnly, says: ptr.To(true), override: `spec: {publishNotReadyAddresses: true}`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(nodePort), newListener()
			class.Spec.NotReadyAddressPolicy = tc.policy
			listener.OwnerReferences, listener.Spec.PublishNotReadyAddresses = tc.owners, tc.says
			if tc.override != "" {
				listener.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, tc.override)}
			}
			service, refusal := backends.All().Of(class).Service(class, listener)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if got := *service.Spec.PublishNotReadyAddresses; got != tc.want {
				t.Errorf("publishNotReadyAddresses is %t, want %t", got, tc.want)
			}
		})
	}
}

func TestServiceGolden(t *testing.T) {
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		class       func(*listenersv1alpha1.ListenerClass)
		listener    func(*listenersv1alpha1.Listener)
	}{
		"nodeport":                {serviceType: nodePort},
		"nodeport-everything":     {serviceType: nodePort, class: everything},
		"loadbalancer":            {serviceType: loadBalancer},
		"loadbalancer-everything": {serviceType: loadBalancer, class: everything},
		"clusterip":               {serviceType: clusterIP},
		"clusterip-everything":    {serviceType: clusterIP, class: everything},
		"headless": {serviceType: clusterIP, class: func(c *listenersv1alpha1.ListenerClass) {
			c.Spec.Pod = &listenersv1alpha1.PodExposure{}
			c.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
			c.Spec.ServiceOverrides = rawYAML(t, `spec: {ports: [{port: 80, targetPort: 8080}]}`)
		}},
		"publish-not-ready-null": {serviceType: nodePort, listener: func(l *listenersv1alpha1.Listener) {
			l.Spec.PublishNotReadyAddresses = nil
		}},
		"labels-and-selector": {serviceType: clusterIP, listener: func(l *listenersv1alpha1.Listener) {
			l.Labels = map[string]string{
				"app.kubernetes.io/name": "kafka", "app.kubernetes.io/instance": "simple", "app.kubernetes.io/managed-by": "kafka-operator",
				"app.kubernetes.io/component": "broker",
			}
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kafka.stackable.tech/v1alpha1", Kind: "KafkaCluster", Name: "simple", UID: "owner"}}
			l.Spec.ExtraPodSelectorLabels = map[string]string{"role": "leader", "listener.stackable.tech/mnt.0123abcd00004000800000000000beef": "other"}
		}},
		"ports-are-sorted-and-the-last-of-a-name-wins": {serviceType: clusterIP, listener: func(l *listenersv1alpha1.Listener) {
			l.Spec.Ports = []listenersv1alpha1.ListenerPort{
				{Name: "b", Port: 2, Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: "z", Port: 3}, {Name: "a", Port: 4, Protocol: ptr.To(corev1.ProtocolTCP)},
				{Name: "z", Port: 5, Protocol: ptr.To(corev1.ProtocolTCP)}, {Name: "s", Port: 5, Protocol: ptr.To(corev1.ProtocolSCTP)},
				{Name: "empty", Port: 6, Protocol: ptr.To(corev1.Protocol(""))},
			}
		}},
		"listed-ports": {
			serviceType: nodePort,
			class: func(c *listenersv1alpha1.ListenerClass) {
				c.Spec.Ports = []string{"https", "other", "http"}
				c.Spec.ServiceOverrides = rawYAML(t, `spec: {ports: [{name: extra, port: 1234}]}`)
			},
			listener: func(l *listenersv1alpha1.Listener) {
				l.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}, {Name: "https", Port: 443}}
			},
		},
		"dual-stack": {serviceType: nodePort, class: func(c *listenersv1alpha1.ListenerClass) {
			c.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
			c.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}},
		"overrides-of-class-then-listener": {
			serviceType: loadBalancer,
			class: func(c *listenersv1alpha1.ListenerClass) {
				c.Spec.ServiceAnnotations = map[string]string{"example.com/pool": "a", "example.com/gone": "x"}
				c.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{
					"metadata.annotations", "spec.ports", "spec.sessionAffinity",
				}}
				c.Spec.ServiceOverrides = rawYAML(t, `
metadata:
  annotations: {example.com/gone: null, example.com/from: class}
  finalizers: [example.com/cleanup]
  labels: {tier: class}
spec:
  externalIPs: [192.0.2.1]
  ipFamilyPolicy: PreferDualStack
  loadBalancerSourceRanges: [10.0.0.0/8]
  selector: {extra: class}
  ports: [{port: 80, appProtocol: http}]
`)
			},
			listener: func(l *listenersv1alpha1.Listener) {
				l.Spec.ObjectOverrides = []runtime.RawExtension{
					rawYAML(t, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: ns, annotations: {example.com/from: listener}}}`),
					rawYAML(t, `{apiVersion: v1, kind: Service, metadata: {name: other, annotations: {not: me}}}`),
					rawYAML(t, `{apiVersion: v1, kind: Service, metadata: {namespace: other, annotations: {not: me}}}`),
					rawYAML(t, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {name: web}, spec: {unknown: true}}`),
					rawYAML(t, `{apiVersion: v1, kind: Service, metadata: {name: web, annotations: {no: namespace}}}`),
					rawYAML(t, `{apiVersion: v1, kind: Service, metadata: {namespace: ns, annotations: {no: name}}}`),
					rawYAML(t, `{kind: Service, metadata: {name: web, namespace: ns, annotations: {no: version}}}`),
					rawYAML(t, `{apiVersion: v1, metadata: {name: web, namespace: ns, annotations: {no: kind}}}`),
					serviceOverride(t, `{spec: {sessionAffinity: ClientIP, ports: [{port: 80, nodePort: 30080}, {port: 81, name: more}]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}}`),
				}
			},
		},
		"class-replaces-the-selector": {serviceType: clusterIP, class: func(c *listenersv1alpha1.ListenerClass) {
			c.Spec.ServiceOverrides = rawYAML(t, `{spec: {selector: {app: web}}}`)
		}},
		"class-overrides-with-unknown-fields": {serviceType: clusterIP, class: func(c *listenersv1alpha1.ListenerClass) {
			c.Spec.ServiceOverrides = rawYAML(t, `{metadata: {owner: me}, spec: {typo: 1, sessionAffinity: ClientIP}, status: {loadBalancer: {}}}`)
		}},
		"class-adds-the-only-port": {serviceType: clusterIP,
			class: func(c *listenersv1alpha1.ListenerClass) {
				c.Spec.ServiceOverrides = rawYAML(t, `{spec: {ports: [{name: http, port: 80, targetPort: web}]}}`)
			},
			listener: func(l *listenersv1alpha1.Listener) { l.Spec.Ports = nil },
		},
		"ports-of-overrides-are-those-of-the-same-number-and-protocol": {serviceType: nodePort,
			class: func(c *listenersv1alpha1.ListenerClass) {
				c.Spec.ServiceOverrides = rawYAML(t, `{spec: {ports: [{port: 53, protocol: UDP, nodePort: 30053}, {port: 53, appProtocol: dns}, {port: 80, $patch: delete}]}}`)
			},
			listener: severalPorts,
		},
		"traffic-settings-of-a-product-operator": {serviceType: nodePort, listener: func(l *listenersv1alpha1.Listener) {
			l.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, `
metadata: {annotations: {a: b}, labels: {c: d}}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  publishNotReadyAddresses: false
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}
  trafficDistribution: PreferClose
  ports: [{name: http, port: 80, protocol: TCP, appProtocol: http}]
`)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(tc.serviceType), newListener()
			if tc.class != nil {
				tc.class(class)
			}
			if tc.listener != nil {
				tc.listener(listener)
			}
			service, err := backends.All().Of(class).Service(class, listener)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "service-"+name, service)
		})
	}
}

func TestServiceIsRefused(t *testing.T) {
	ports := func(p ...listenersv1alpha1.ListenerPort) func(*listenersv1alpha1.ListenerClass, *listenersv1alpha1.Listener) {
		return func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) { l.Spec.Ports = p }
	}
	listenerOverride := func(s string) func(*listenersv1alpha1.ListenerClass, *listenersv1alpha1.Listener) {
		return func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
			l.Spec.ObjectOverrides = []runtime.RawExtension{rawYAML(t, `{apiVersion: v1, kind: Service}`), serviceOverride(t, s)}
		}
	}
	classOverride := func(s string) func(*listenersv1alpha1.ListenerClass, *listenersv1alpha1.Listener) {
		return func(c *listenersv1alpha1.ListenerClass, _ *listenersv1alpha1.Listener) {
			c.Spec.ServiceOverrides = rawYAML(t, s)
		}
	}
	headless := func(override string) func(*listenersv1alpha1.ListenerClass, *listenersv1alpha1.Listener) {
		return func(c *listenersv1alpha1.ListenerClass, _ *listenersv1alpha1.Listener) {
			c.Spec.ServiceType, c.Spec.Pod, c.Spec.ServiceOverrides = clusterIP, &listenersv1alpha1.PodExposure{}, rawYAML(t, override)
		}
	}
	udp := ptr.To(corev1.ProtocolUDP)
	for name, tc := range map[string]struct {
		given   func(*listenersv1alpha1.ListenerClass, *listenersv1alpha1.Listener)
		reason  string
		message string // part of the message
	}{
		"65 ports": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.Ports = nil
				for i := range 65 {
					l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: fmt.Sprint("p", i), Port: int32(1000 + i)})
				}
			},
			listenersv1alpha1.ReasonInvalidPorts, "the Listener has 65 ports, and ListenerClass class allows 64",
		},
		"none of the listed ports": {
			func(c *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				c.Spec.Ports = []string{"https", "grpc"}
				l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "metrics", Port: 9090})
			},
			listenersv1alpha1.ReasonNoPorts, "ListenerClass class exposes only the ports https, grpc, and the Listener has only http, metrics",
		},
		"null ports":           {ports(), listenersv1alpha1.ReasonNoPorts, "spec.ports is empty, and overrides add no port"},
		"port 0":               {ports(listenersv1alpha1.ListenerPort{Name: "a"}), listenersv1alpha1.ReasonInvalidPorts, `port "a": the port number`},
		"port 65536":           {ports(listenersv1alpha1.ListenerPort{Name: "a", Port: 65536}), listenersv1alpha1.ReasonInvalidPorts, `port "a": the port number`},
		"negative port":        {ports(listenersv1alpha1.ListenerPort{Name: "a", Port: -1}), listenersv1alpha1.ReasonInvalidPorts, `port "a": the port number`},
		"unnamed port":         {ports(listenersv1alpha1.ListenerPort{Port: 1}), listenersv1alpha1.ReasonInvalidPorts, `port "": the name`},
		"upper case port name": {ports(listenersv1alpha1.ListenerPort{Name: "HTTP", Port: 1}), listenersv1alpha1.ReasonInvalidPorts, `port "HTTP": the name`},
		"port name with a path": {
			ports(listenersv1alpha1.ListenerPort{Name: "../x", Port: 1}), listenersv1alpha1.ReasonInvalidPorts, `port "../x": the name`,
		},
		"port name of 64 characters": {
			ports(listenersv1alpha1.ListenerPort{Name: strings.Repeat("a", 64), Port: 1}), listenersv1alpha1.ReasonInvalidPorts, "the name",
		},
		"unknown protocol": {
			ports(listenersv1alpha1.ListenerPort{Name: "a", Port: 1, Protocol: ptr.To(corev1.Protocol("tcp"))}), listenersv1alpha1.ReasonInvalidPorts, "tcp is none of",
		},
		"one name for two protocols": {
			ports(listenersv1alpha1.ListenerPort{Name: "dns", Port: 53}, listenersv1alpha1.ListenerPort{Name: "dns", Port: 53, Protocol: udp}),
			listenersv1alpha1.ReasonDuplicatePortName, `"dns" is used for both TCP and UDP`,
		},
		"two names for one port": {
			ports(listenersv1alpha1.ListenerPort{Name: "a", Port: 53}, listenersv1alpha1.ListenerPort{Name: "b", Port: 53}),
			listenersv1alpha1.ReasonInvalidPorts, `"a" and "b" are both TCP port 53`,
		},
		"another type of a headless Service": {headless(`spec: {type: NodePort}`), listenersv1alpha1.ReasonInvalidOverrides, "overrides change spec.type; remove that"},
		"a cluster IP of a headless Service": {headless(`spec: {clusterIP: 10.96.0.7}`), listenersv1alpha1.ReasonInvalidOverrides, "overrides change spec.clusterIP; remove that"},
		"override with a kind that is not a string": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.ObjectOverrides = []runtime.RawExtension{rawYAML(t, `{apiVersion: v1, kind: 1}`)}
			},
			listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[0]: decoding the object",
		},
		"override of unknown field": {
			listenerOverride(`{spec: {typo: 1}}`), listenersv1alpha1.ReasonInvalidOverrides, `does not have this field: unknown field "spec.typo"`,
		},
		"override of the type":                {listenerOverride(`{spec: {type: LoadBalancer}}`), listenersv1alpha1.ReasonInvalidOverrides, "ListenerClass class does not allow Listeners to override spec.type; remove it"},
		"override of a node port":             {listenerOverride(`{spec: {ports: [{port: 80, nodePort: 30080}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports.nodePort"},
		"override of a target port":           {listenerOverride(`{spec: {ports: [{port: 80, targetPort: 81}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports.targetPort"},
		"override adds a port":                {listenerOverride(`{spec: {ports: [{port: 81, name: more}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports;"},
		"override renames a port":             {listenerOverride(`{spec: {ports: [{port: 80, name: other}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports;"},
		"override removes the ports":          {listenerOverride(`{spec: {ports: [{$patch: replace}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports;"},
		"override of several fields":          {listenerOverride(`{spec: {type: ExternalName, externalName: a, loadBalancerSourceRanges: [0.0.0.0/0]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.externalName, spec.loadBalancerSourceRanges, spec.type;"},
		"override of the load balancer class": {listenerOverride(`{spec: {loadBalancerClass: a}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.loadBalancerClass;"},
		"override of a fixed address":         {listenerOverride(`{spec: {loadBalancerIP: 192.0.2.1}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.loadBalancerIP;"},
		"override makes it headless":          {listenerOverride(`{spec: {clusterIP: None}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.clusterIP;"},
		"override of finalizers":              {listenerOverride(`{metadata: {finalizers: [a/b]}}`), listenersv1alpha1.ReasonInvalidOverrides, "metadata.finalizers;"},
		"override of annotations that the class does not allow": {
			func(c *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				c.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{}}
				l.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, `{metadata: {annotations: {a: b}}}`)}
			},
			listenersv1alpha1.ReasonInvalidOverrides, "metadata.annotations;",
		},
		"external IPs of a class that allows much": {
			func(c *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				c.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.type"}}
				l.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, `{spec: {type: LoadBalancer, externalIPs: [192.0.2.1]}}`)}
			},
			listenersv1alpha1.ReasonInvalidOverrides, "only a ListenerClass may set spec.externalIPs",
		},
		"override with two ports that are objects in objects": {
			listenerOverride(`{spec: {ports: [{port: {}}, {port: {}}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "the port number of a port is missing, or is not an integer",
		},
		"override with protocols that are objects": {
			listenerOverride(`{spec: {ports: [{port: 80, protocol: {}}, {port: 80, protocol: {}}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "the protocol of port 80 is not a string",
		},
		"override with a directive that is an object": {
			listenerOverride(`{spec: {ports: [{port: 80, $patch: {}}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "the directive map[] is not supported",
		},
		"override with ports that are no list": {listenerOverride(`{spec: {ports: {}}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports is not a list"},
		"override without ports":               {listenerOverride(`{spec: {ports: null}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.ports;"},
		"override with 1,025 ports": {
			listenerOverride("{spec: {ports: [" + strings.Repeat("{port: 1},", 1025) + "]}}"), listenersv1alpha1.ReasonInvalidOverrides,
			"spec.ports has 1025 entries, of at most 1024; remove some",
		},
		"override with 129 finalizers": {
			listenerOverride("{metadata: {finalizers: [" + strings.Repeat("a/b,", 129) + "]}}"), listenersv1alpha1.ReasonInvalidOverrides,
			"metadata.finalizers has 129 entries, of at most 128; remove some",
		},
		"override of more than 64 KiB": {
			listenerOverride("{metadata: {annotations: {a: " + strings.Repeat("b", 64<<10) + "}}}"), listenersv1alpha1.ReasonInvalidOverrides,
			"more than 16 overrides, or 64 KiB, apply to the Service; remove or merge some",
		},
		"17 overrides": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.ObjectOverrides = slices.Repeat([]runtime.RawExtension{serviceOverride(t, `{metadata: {annotations: {a: b}}}`)}, 17)
			},
			listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[16]: more than 16 overrides",
		},
		"1,025 ports": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.Ports = make([]listenersv1alpha1.ListenerPort, 1025)
			},
			listenersv1alpha1.ReasonInvalidPorts, "spec.ports has 1025 entries, of at most 1024; remove some",
		},
		"129 labels": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Labels = map[string]string{}
				for i := range 129 {
					l.Labels[fmt.Sprint("a", i)] = "b"
				}
			},
			listenersv1alpha1.ReasonServiceRejected, "metadata.labels has 129 labels, of at most 128; remove some",
		},
		"1,025 overrides of other objects": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.ObjectOverrides = slices.Repeat([]runtime.RawExtension{{Raw: []byte(`{}`)}}, 1025)
			},
			listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides has 1025 entries, of at most 1024; remove some",
		},
		"65 labels that Pods must have": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.ExtraPodSelectorLabels = map[string]string{}
				for i := range 65 {
					l.Spec.ExtraPodSelectorLabels[fmt.Sprint("a", i)] = "b"
				}
			},
			listenersv1alpha1.ReasonServiceRejected, "spec.extraPodSelectorLabels has 65 labels, of at most 64; remove some",
		},
		"override with a port that is no object": {listenerOverride(`{spec: {ports: [80]}}`), listenersv1alpha1.ReasonInvalidOverrides, "a port is not an object"},
		"override of wrong type":                 {listenerOverride(`{spec: {type: 1}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[1]: decoding"},
		"override removes spec":                  {listenerOverride(`{spec: null}`), listenersv1alpha1.ReasonInvalidOverrides, "spec may not be removed"},
		"override of a uid":                      {listenerOverride(`{metadata: {uid: x}}`), listenersv1alpha1.ReasonInvalidOverrides, "cannot be overridden, except metadata.labels"},
		"override adds an owner":                 {listenerOverride(`{metadata: {ownerReferences: [{uid: x, name: x, kind: Pod, apiVersion: v1}]}}`), listenersv1alpha1.ReasonInvalidOverrides, "cannot be overridden, except metadata.labels"},
		"override removes owners":                {listenerOverride(`{metadata: {ownerReferences: null}}`), listenersv1alpha1.ReasonInvalidOverrides, "cannot be overridden, except metadata.labels"},
		"override replaces all":                  {listenerOverride(`{$patch: replace, spec: {type: ClusterIP}}`), listenersv1alpha1.ReasonInvalidOverrides, "cannot be overridden, except metadata.labels"},
		"override of external IPs":               {listenerOverride(`{spec: {externalIPs: [192.0.2.1]}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.externalIPs"},
		"override removes the selector": {
			listenerOverride(`{spec: {selector: {app: other}}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.selector;",
		},
		"override changes the selector": {
			listenerOverride(`{spec: {selector: {listener.stackable.tech/mnt.0123abcd00004000800000000000beef: x}}}`),
			listenersv1alpha1.ReasonInvalidOverrides, "spec.selector;",
		},
		"invalid label in the selector": {
			func(_ *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) {
				l.Spec.ExtraPodSelectorLabels = map[string]string{strings.Repeat("x", 40_000): "y"}
			}, listenersv1alpha1.ReasonServiceRejected, "spec.selector",
		},
		"invalid label in an override":      {listenerOverride(`{metadata: {labels: {a: b/c}}}`), listenersv1alpha1.ReasonServiceRejected, "metadata.labels"},
		"invalid annotation in an override": {listenerOverride(`{metadata: {annotations: {a/b/c: d}}}`), listenersv1alpha1.ReasonServiceRejected, "metadata.annotations"},

		"class override of a name":    {classOverride(`{metadata: {name: x}}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass class: apiVersion, kind and metadata"},
		"class override of a kind":    {classOverride(`{kind: Route}`), listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass class: apiVersion, kind and metadata"},
		"class override removes spec": {classOverride(`{spec: null}`), listenersv1alpha1.ReasonInvalidOverrides, "spec may not be removed"},
		"class override removes all":  {classOverride(`{$patch: delete}`), listenersv1alpha1.ReasonInvalidOverrides, ""},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(nodePort), newListener()
			tc.given(class, listener)
			service, err := backends.All().Of(class).Service(class, listener)
			var refusal *exposure.Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("got Service %v and error %v, want a refusal", service, err)
			}
			if refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
				t.Errorf("got %v, want reason %s and a message with %q", refusal, tc.reason, tc.message)
			}
		})
	}
}

// FuzzListenerOverride looks for overrides of a Listener that cause a panic, or that set fields which the class does
// not allow.
func FuzzListenerOverride(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"ns","labels":{"a":"b"}},"spec":{"ports":[{"port":80,"nodePort":30080}]}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"ns"},"$patch":"replace"}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"ns"},"spec":{"$retainKeys":["type"],"selector":{"$patch":"replace"}}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"ns"},"spec":{"$setElementOrder/ports":[{"port":80}],"ports":[{"$patch":"delete","port":80}]}}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"ns"},"spec":{"$deleteFromPrimitiveList/externalIPs":["192.0.2.1"]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		class, listener := newClass(clusterIP), newListener()
		class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"externalIPs":["192.0.2.1"],"loadBalancerSourceRanges":["10.0.0.0/8"]}}`)
		want, err := backends.All().Of(class).Service(class, listener)
		if err != nil {
			t.Fatal(err)
		}
		listener.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: raw}}
		got, err := backends.All().Of(class).Service(class, listener)
		if err != nil {
			return
		}
		for _, s := range []*corev1ac.ServiceApplyConfiguration{want, got} {
			s.Labels, s.Annotations = nil, nil
			s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil, nil, nil
			s.Spec.PublishNotReadyAddresses, s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig, s.Spec.TrafficDistribution = nil, nil, nil, nil
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].AppProtocol, s.Spec.Ports[i].Protocol = nil, nil
			}
		}
		check.Equal(t, "fields that the class does not allow are overridden", want, got)
	})
}
