package route_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// newListener returns a Listener of a class with Routes. ports are the ports of its Service.
func newListener(exposed listenersv1alpha1.RouteExposure, ports ...corev1.ServicePort) *exposure.Listener {
	if len(ports) == 0 {
		ports = []corev1.ServicePort{{Name: "kafka", Protocol: corev1.ProtocolTCP, Port: 9093}}
	}
	return &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "broker", UID: "listener-uid"}},
		Class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "class"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Route: &exposed},
		},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "broker"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: ports},
		},
	}
}

// forClaim turns the Listener into one that was created for a claim, which the Pods mount.
func forClaim(l *exposure.Listener, pods ...string) *exposure.Listener {
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: l.Name}}
	l.Pods = pods
	return l
}

func threePorts() []corev1.ServicePort {
	return []corev1.ServicePort{
		{Name: "kafka", Protocol: corev1.ProtocolTCP, Port: 9093}, {Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9404},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
	}
}

func TestRoutesAreInTheOrderOfPreference(t *testing.T) {
	all := []listenersv1alpha1.ListenerPort{{Name: "web", Port: 80}, {Name: "metrics", Port: 9404}, {Name: "kafka", Port: 9093}}
	service := []corev1.ServicePort{ // sorted by name, and one that only an override adds
		{Name: "kafka", Protocol: corev1.ProtocolTCP}, {Name: "metrics", Protocol: corev1.ProtocolTCP}, {Name: "web", Protocol: corev1.ProtocolTCP},
		{Name: "added", Protocol: corev1.ProtocolTCP},
	}
	for name, tc := range map[string]struct{ ports, routePorts, want []string }{
		"that of the Listener":            {nil, nil, []string{"web", "metrics", "kafka", "added"}},
		"that of the class":               {[]string{"metrics", "other", "web"}, nil, []string{"metrics", "web"}},
		"that of the Routes of the class": {nil, []string{"metrics", "kafka"}, []string{"metrics", "kafka"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListener(listenersv1alpha1.RouteExposure{Ports: tc.routePorts}, service...)
			l.Spec.Ports, l.Class.Spec.Ports = all, tc.ports
			desired, err := route.Backend().Objects(l, exposure.Others{})
			if err != nil {
				t.Fatal(err)
			}
			var objects []exposure.Object
			var got []string
			for _, d := range desired {
				port, _, _ := unstructured.NestedString(d.Object, "spec", "port", "targetPort")
				got = append(got, port)
				objects = append(objects, &routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: d.GetName()}, Status: routev1.RouteStatus{Ingress: []routev1.RouteIngress{{
					Host: port + ".example.com", Conditions: []routev1.RouteIngressCondition{{Type: routev1.RouteAdmitted, Status: corev1.ConditionTrue}},
				}}}})
			}
			check.Equal(t, "ports of the Routes", tc.want, got)
			l.Objects, got = objects, nil
			for _, a := range route.Backend().Addresses(l, exposure.Placement{}).Addresses {
				got = append(got, strings.TrimSuffix(a.Address, ".example.com"))
			}
			check.Equal(t, "ports of the addresses", tc.want, got)
		})
	}
}

func TestRoutesGolden(t *testing.T) {
	for name, listener := range map[string]*exposure.Listener{
		"passthrough-is-the-default": newListener(listenersv1alpha1.RouteExposure{}),
		"edge": newListener(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationEdge, InsecureEdgeTerminationPolicy: listenersv1alpha1.RouteInsecurePolicyRedirect,
			CertificateSecretName: "web-tls", HostTemplate: "{listener}.{namespace}.example.com", WildcardPolicy: listenersv1alpha1.RouteWildcardPolicySubdomain,
		}),
		"reencrypt": newListener(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationReencrypt, DestinationCACertificate: "-----BEGIN CERTIFICATE-----\n", SubdomainTemplate: "{listener}-{hash}",
		}),
		"no-tls-and-one-route-for-each-tcp-port": newListener(listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationNone}, threePorts()...),
		"listed-ports-only":                      newListener(listenersv1alpha1.RouteExposure{Ports: []string{"metrics", "other"}}, threePorts()...),
		"host-of-a-pod":                          forClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: "broker-{podIndex}.{podName}.{namespace}.example.com"}), "kafka-12"),
		"allowed-clients": func() *exposure.Listener {
			l := newListener(listenersv1alpha1.RouteExposure{Annotations: map[string]string{"haproxy.router.openshift.io/timeout": "5m"}})
			l.Class.Spec.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.0/24", "203.0.113.0/24"}
			l.Spec.AllowedClients = []listenersv1alpha1.CIDR{"203.0.113.7/32", "198.51.100.128/25"}
			return l
		}(),
		"labels-and-annotations": func() *exposure.Listener {
			l := newListener(listenersv1alpha1.RouteExposure{
				Labels:      map[string]string{"shard": "internal", "app.kubernetes.io/name": "class"},
				Annotations: map[string]string{"haproxy.router.openshift.io/timeout": "5m"},
			})
			l.Labels = map[string]string{"shard": "listener", "team": "blue", "app.kubernetes.io/name": "kafka"}
			return l
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := route.Backend().Objects(listener, exposure.Others{})
			if err != nil {
				t.Fatal(err)
			}
			objects := make([]any, len(desired))
			for i := range desired {
				objects[i] = desired[i].Object
			}
			golden.Compare(t, name, objects)
		})
	}
}

func TestHostsFollowTheTemplate(t *testing.T) {
	long := strings.Repeat("l", 63)
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		template string
		want     string // a host
		reason   string // of a refusal
		message  string // part of the message of the refusal
	}{
		"every placeholder": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{}), "pod-7"), template: "{listener}.{port}.{namespace}.{className}.{podName}.{podIndex}.example.com",
			want: "broker.kafka.shop.class.pod-7.7.example.com",
		},
		"one placeholder twice":           {template: "{port}.{port}.{listener}.{namespace}.com", want: "kafka.kafka.broker.shop.com"},
		"hash":                            {template: "{listener}-{namespace}-{port}-{hash}.a", want: "broker-shop-kafka-" + digest("shop/broker/kafka") + ".a"},
		"label of 63 characters":          {template: long + ".{listener}.{namespace}", want: long + ".broker.shop"},
		"label that is too long":          {template: long + "-{listener}.{namespace}", want: long[:46] + "-" + digest(long+"-broker") + ".shop"},
		"hyphen where a label is cut":     {template: long[:45] + "-" + long + "-{listener}.{namespace}", want: long[:45] + "-" + digest(long[:45]+"-"+long+"-broker") + ".shop"},
		"253 characters":                  {template: strings.Repeat("a.", 121) + "{listener}.{namespace}", want: strings.Repeat("a.", 121) + "broker.shop"},
		"254 characters":                  {template: strings.Repeat("a.", 121) + "{listener}.{namespace}x", reason: listenersv1alpha1.ReasonInvalidHost, message: "no more than 253"},
		"unknown placeholder":             {template: "{pod}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {pod}"},
		"empty placeholder":               {template: "{}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {}"},
		"unterminated placeholder":        {template: "{listener.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: `results in "{listener.example.com" for port kafka, which is not a host name`},
		"empty label":                     {template: "{listener}..{namespace}", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"label that starts with a hyphen": {template: "-{listener}.{namespace}", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"upper-case letters":              {template: "WWW.{listener}.{namespace}", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"class with a dot in its name": {
			listener: func() *exposure.Listener {
				l := newListener(listenersv1alpha1.RouteExposure{})
				l.Class.Name = "a.b"
				return l
			}(),
			template: "x-{className}.{listener}.{namespace}", want: "x-a-b-" + digest("x-a.b") + ".broker.shop",
		},
		"Pod without an ordinal": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{}), "web-7d9f8-x2k4q"), template: "{podIndex}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "the name of Pod web-7d9f8-x2k4q does not end with a hyphen and a number",
		},
		"name that looks as if it had a hash": {
			listener: func() *exposure.Listener {
				l := newListener(listenersv1alpha1.RouteExposure{})
				l.Name = "a-0123456789abcdef"
				return l
			}(),
			template: "{listener}.{namespace}", want: "a-0123456789abcdef-" + digest("a-0123456789abcdef") + ".shop",
		},
		"Pod and namespace joined by a hyphen": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{}), "kafka-3"), template: "{podName}-{namespace}",
			reason: listenersv1alpha1.ReasonInvalidHost, message: "hostTemplate of ListenerClass class may give Listeners of different namespaces or Pods the same host; use {namespace}",
		},
		"no placeholder": {template: "www.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "may give Listeners of different namespaces or Pods the same host"},
		"several Pods": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{}), "web-0", "web-1"), template: "{podName}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "several Pods (web-0, web-1) mount claim shop/broker",
		},
		"Listener that was not created for a claim": {
			template: "{podName}.example.com", reason: listenersv1alpha1.ReasonNoSinglePod, message: "Listener shop/broker was not created for a claim",
		},
		"no Pod yet": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{})), template: "{podName}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "no Pod mounts claim shop/broker",
		},
		"Pod that is being replaced": {
			listener: func() *exposure.Listener {
				l := forClaim(newListener(listenersv1alpha1.RouteExposure{}))
				l.Objects = []exposure.Object{&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "broker-kafka", Annotations: map[string]string{"listeners.stackable.tech/pod": "web-3"}}}}
				return l
			}(),
			template: "{podIndex}.{listener}.{namespace}", want: "3.broker.shop",
		},
		"same host for two ports": {
			listener: newListener(listenersv1alpha1.RouteExposure{}, threePorts()...), template: "{listener}.{namespace}",
			reason: listenersv1alpha1.ReasonInvalidHost, message: "ports kafka and metrics would have the same host broker.shop; add {port} to spec.route.hostTemplate of ListenerClass class",
		},
		"no TCP port": {
			listener: newListener(listenersv1alpha1.RouteExposure{}, threePorts()[2]),
			reason:   listenersv1alpha1.ReasonNoRoutablePorts, message: "Routes support only TCP; use another class",
		},
		"no port that the class lists": {
			listener: newListener(listenersv1alpha1.RouteExposure{Ports: []string{"http", "https"}}),
			reason:   listenersv1alpha1.ReasonNoRoutablePorts, message: "ListenerClass class lists the ports http, https",
		},
	} {
		t.Run(name, func(t *testing.T) {
			listener := tc.listener
			if listener == nil {
				listener = newListener(listenersv1alpha1.RouteExposure{})
			}
			template := listenersv1alpha1.HostTemplate(tc.template)
			for _, field := range []string{"host", "subdomain"} {
				listener.Class.Spec.Route.HostTemplate, listener.Class.Spec.Route.SubdomainTemplate = template, ""
				if field == "subdomain" {
					listener.Class.Spec.Route.HostTemplate, listener.Class.Spec.Route.SubdomainTemplate = "", template
					tc.message = strings.ReplaceAll(tc.message, "hostTemplate", "subdomainTemplate")
				}
				desired, refusal := route.Backend().Objects(listener, exposure.Others{})
				if tc.reason != "" {
					if refusal == nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
						t.Errorf("%s: got %v, want the refusal %s with %q", field, refusal, tc.reason, tc.message)
					}
					continue
				}
				if refusal != nil {
					t.Fatal(refusal)
				}
				got, _ := desired[0].Object["spec"].(map[string]any)[field].(string)
				if got != tc.want {
					t.Errorf("%s: got %q, want %q", field, got, tc.want)
				}
			}
		})
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func TestRoutesOfAWholeDomainAreRefusedUnlessTheDomainIsThatOfANamespace(t *testing.T) {
	for template, accepted := range map[listenersv1alpha1.HostTemplate]bool{
		"{listener}-{hash}.example.com": false, "{namespace}.{listener}.example.com": false, "{listener}.{namespace}.example.com": true, "www.{hash}.example.com": true,
	} {
		_, refusal := route.Backend().Objects(newListener(listenersv1alpha1.RouteExposure{HostTemplate: template, WildcardPolicy: listenersv1alpha1.RouteWildcardPolicySubdomain}), exposure.Others{})
		refused := refusal != nil
		if refused == accepted || refused && !strings.Contains(refusal.Message, "serve whole domains") {
			t.Errorf("%s: the refusal is %v", template, refusal)
		}
	}
}

// replica is a Listener with its Pod. Its names consist of few parts, so that joined names are often equal.
type replica struct{ Namespace, Listener, Pod, Port string }

func (replica) Generate(random *rand.Rand, _ int) reflect.Value {
	name := func(separators string) string {
		parts := []string{"a", "1", "a-1", strings.Repeat("b", 62), strings.Repeat("b", 62) + "-c", digest("shop/broker/kafka"), digest(strings.Repeat("b", 62) + "-c")}
		joined := parts[random.Intn(len(parts))]
		for range random.Intn(3) {
			joined += string(separators[random.Intn(len(separators))]) + parts[random.Intn(len(parts))]
		}
		return joined
	}
	label := func() string { n := name("-"); return strings.TrimRight(n[:min(len(n), 63)], "-") }
	return reflect.ValueOf(replica{Namespace: label(), Listener: label(), Pod: name("-.") + "-0", Port: label()})
}

func TestReplicasNeverShareAHost(t *testing.T) {
	templates := []string{
		"{podName}.{namespace}", "{namespace}.{podName}.x", "{listener}.{namespace}.x", "{port}{podIndex}.x-{listener}-y.{namespace}", "{podName}-{namespace}-{hash}.x",
		"{hash}", "x.{listener}{hash}", "{podName}-{namespace}.x", "{listener}-{namespace}", "{listener}.x", "{listener}-{port}.{namespace}", "www.{namespace}", "www.x", "{podIndex}.{namespace}",
	}
	host := func(template string, r replica) string {
		l := forClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: listenersv1alpha1.HostTemplate(template)}, corev1.ServicePort{Name: r.Port}), r.Pod)
		l.Namespace, l.Name = r.Namespace, r.Listener
		desired, err := route.Backend().Objects(l, exposure.Others{})
		if err != nil {
			return "" // refused
		}
		return desired[0].Object["spec"].(map[string]any)["host"].(string)
	}
	for _, template := range templates {
		ofPod := strings.Contains(template, "{podName}") && !strings.Contains(template, "{hash}")
		seen, accepted := map[string]replica{}, 0
		distinct := func(r replica) bool {
			h := host(template, r)
			if h == "" {
				return true
			}
			accepted++
			other, taken := seen[h]
			seen[h] = r
			return !taken || other.Namespace == r.Namespace && (ofPod && other.Pod == r.Pod || !ofPod && other.Listener == r.Listener)
		}
		if err := quick.Check(distinct, &quick.Config{MaxCount: 2000, Rand: rand.New(rand.NewSource(1))}); err != nil { //nolint:gosec // reproducible
			t.Errorf("%s: %v", template, err)
		}
		t.Logf("%s: %d replicas have %d hosts", template, accepted, len(seen))
	}
}

func TestRouteNameLeavesRoomForTheNamespaceInTheGeneratedHost(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, listener string
		limit               int
	}{
		"name is shortened so that name and namespace fit in a DNS label": {namespace: "production", listener: strings.Repeat("l", 63), limit: 63},
		"name keeps a minimum length beside a very long namespace":        {namespace: strings.Repeat("n", 63), listener: strings.Repeat("l", 63), limit: 20 + 1 + 63},
	} {
		l := newListener(listenersv1alpha1.RouteExposure{}, threePorts()[:2]...)
		l.Namespace, l.Name = tc.namespace, tc.listener
		desired, err := route.Backend().Objects(l, exposure.Others{})
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].GetName() == desired[1].GetName() {
			t.Errorf("%s: two ports share the Route %s", name, desired[0].GetName())
		}
		if !strings.HasSuffix(desired[0].GetName(), "l-8027b7c7") { // which hosts of existing Routes contain
			t.Errorf("%s: the Route %s has another hash", name, desired[0].GetName())
		}
		if host := desired[0].GetName() + "-" + tc.namespace; len(host) != tc.limit {
			t.Errorf("%s: %s has %d characters, want %d", name, host, len(host), tc.limit)
		}
	}
}

func TestRouteIsRecreatedIfItCannotBeChanged(t *testing.T) {
	generated := map[string]string{"openshift.io/host.generated": "true"}
	for name, tc := range map[string]struct {
		class       listenersv1alpha1.RouteExposure
		existing    routev1.RouteSpec
		annotations map[string]string
		want        bool
	}{
		"other host":                     {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Host: "old.example.com"}},
		"other subdomain":                {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Subdomain: "old"}},
		"host instead of subdomain":      {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Subdomain: "old"}},
		"host instead of generated host": {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated},
		"generated host unchanged":       {existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated},
		"host not generated yet":         {existing: routev1.RouteSpec{}},
		"default wildcard policy":        {existing: routev1.RouteSpec{WildcardPolicy: "None"}},

		"subdomain instead of host":                 {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"subdomain instead of generated host":       {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new.{listener}.{namespace}"}, existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated, want: true},
		"generated host instead of host":            {existing: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"generated host that was lost":              {existing: routev1.RouteSpec{}, annotations: generated, want: true},
		"generated host instead of a later host":    {existing: routev1.RouteSpec{Host: "old.example.com"}, annotations: map[string]string{"openshift.io/host.generated": "false"}, want: true},
		"generated host instead of subdomain":       {existing: routev1.RouteSpec{Subdomain: "old"}, want: true},
		"wildcard policy Subdomain instead of None": {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.{listener}.{namespace}", WildcardPolicy: "Subdomain"}, existing: routev1.RouteSpec{Host: "a.b"}, want: true},
		"wildcard policy None instead of Subdomain": {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.{listener}.{namespace}"}, existing: routev1.RouteSpec{Host: "a.b", WildcardPolicy: "Subdomain"}, want: true},
	} {
		l := newListener(tc.class)
		l.Objects = []exposure.Object{&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "broker-kafka", Annotations: tc.annotations}, Spec: tc.existing}}
		desired, err := route.Backend().Objects(l, exposure.Others{})
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].Recreate != tc.want {
			t.Errorf("%s: Recreate is %t, want %t", name, desired[0].Recreate, tc.want)
		}
	}
}

func TestTheRemedyOfARejectionFollowsFromItsWords(t *testing.T) {
	remedy := route.Backend().Generates[0].Remedy
	const invalid = `Route.route.openshift.io "a" is invalid: `
	for _, tc := range []struct{ rejection, want string }{
		{"spec.host: Forbidden: you do not have permission to set the host field of the route", "routes/custom-host"},
		{"spec.tls.externalCertificate: Forbidden: user does not have create and update permission on custom-host", "routes/custom-host"},
		{`spec.tls.externalCertificate: Not found: "secrets \"b\" not found"`, "create the Secret"},
		{"spec.tls.externalCertificate: Forbidden: router serviceaccount does not have permission to get this secret", "openshift-ingress/router"},
		{`spec.tls.externalCertificate: Invalid value: "b": secret of type "kubernetes.io/tls" required`, "kubernetes.io/tls"},
	} {
		if got := remedy(invalid + tc.rejection); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.rejection, got, tc.want)
		}
	}
	if got := remedy("spec.host: Invalid value"); got != "" {
		t.Errorf("got %q for another rejection", got)
	}
}

// FuzzTemplate checks that any template and any names result in a valid host or in a refusal.
func FuzzTemplate(f *testing.F) {
	f.Add("{listener}-{port}.{namespace}.example.com", "web", "class", "web-0")
	f.Add("{listener}.{namespace}.{className}.{podName}", "web", "a.b", "web.0-1")
	f.Add("{podName}-{hash}", "web", "class", strings.Repeat("x.", 120)+"0")
	f.Add("{podIndex}.{className}.{", "web", "a.b", "web.0-1")
	f.Add("..{}-{{podName}}", strings.Repeat("x", 63), strings.Repeat("x.", 120), "")
	f.Fuzz(func(t *testing.T, template, name, class, pod string) {
		l := forClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: listenersv1alpha1.HostTemplate(template)}), pod)
		l.Name, l.Class.Name = name, class
		desired, err := route.Backend().Objects(l, exposure.Others{})
		if err != nil {
			return
		}
		host, _ := desired[0].Object["spec"].(map[string]any)["host"].(string)
		if !hostPattern.MatchString(host) && template != "" || len(host) > 253 {
			t.Errorf("template %q results in %q", template, host)
		}
		again, err := route.Backend().Objects(l, exposure.Others{})
		if diff := cmp.Diff(desired[0].Object, again[0].Object); err != nil || diff != "" {
			t.Errorf("the result is not stable (-first +second): %v\n%s", err, diff)
		}
	})
}
