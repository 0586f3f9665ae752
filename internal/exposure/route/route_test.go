package route_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
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

func TestRoutesGolden(t *testing.T) {
	for name, listener := range map[string]*exposure.Listener{
		"passthrough-is-the-default": newListener(listenersv1alpha1.RouteExposure{}),
		"edge": newListener(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationEdge, InsecureEdgeTerminationPolicy: listenersv1alpha1.RouteInsecurePolicyRedirect,
			CertificateSecretName: "web-tls", HostTemplate: "{listener}.example.com", WildcardPolicy: listenersv1alpha1.RouteWildcardPolicySubdomain,
		}),
		"reencrypt": newListener(listenersv1alpha1.RouteExposure{
			Termination: listenersv1alpha1.RouteTerminationReencrypt, DestinationCACertificate: "-----BEGIN CERTIFICATE-----\n", SubdomainTemplate: "{listener}-{namespace}",
		}),
		"no-tls-and-one-route-for-each-tcp-port": newListener(listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationNone}, threePorts()...),
		"listed-ports-only":                      newListener(listenersv1alpha1.RouteExposure{Ports: []string{"metrics", "other"}}, threePorts()...),
		"host-of-a-pod":                          forClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: "{podName}-{podIndex}.example.com"}), "kafka-12"),
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
			desired, err := route.Backend{}.Objects(listener)
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
		"one placeholder twice":           {template: "{port}.{port}.example.com", want: "kafka.kafka.example.com"},
		"no placeholder":                  {template: "www.example.com", want: "www.example.com"},
		"label of 63 characters":          {template: long + ".example.com", want: long + ".example.com"},
		"label that is too long":          {template: long + "-{listener}.example.com", want: long[:54] + "-4800ec69.example.com"},
		"253 characters":                  {template: strings.Repeat("a.", 123) + "{listener}x", want: strings.Repeat("a.", 123) + "brokerx"},
		"254 characters":                  {template: strings.Repeat("a.", 123) + "{listener}xy", reason: listenersv1alpha1.ReasonInvalidHost, message: "no more than 253"},
		"unknown placeholder":             {template: "{pod}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {pod}"},
		"empty placeholder":               {template: "{}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {}"},
		"unterminated placeholder":        {template: "{listener.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: `results in "{listener.example.com" for port kafka, which is not a host name`},
		"empty label":                     {template: "{listener}..example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"label that starts with a hyphen": {template: "-{listener}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"upper-case letters":              {template: "WWW.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "is not a host name"},
		"class with a dot in its name": {
			listener: func() *exposure.Listener {
				l := newListener(listenersv1alpha1.RouteExposure{})
				l.Class.Name = "a.b"
				return l
			}(),
			template: "{className}.example.com", want: "a-b-2e7336dc.example.com",
		},
		"Pod without an ordinal": {
			listener: forClaim(newListener(listenersv1alpha1.RouteExposure{}), "web-7d9f8-x2k4q"), template: "{podIndex}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "the name of Pod web-7d9f8-x2k4q does not end with a hyphen and a number",
		},
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
			template: "{podIndex}.example.com", want: "3.example.com",
		},
		"same host for two ports": {
			listener: newListener(listenersv1alpha1.RouteExposure{}, threePorts()...), template: "{listener}.example.com",
			reason: listenersv1alpha1.ReasonInvalidHost, message: "ports kafka and metrics would have the same host broker.example.com; add {port} to spec.route.hostTemplate of ListenerClass class",
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
			for _, field := range []string{"host", "subdomain"} {
				listener.Class.Spec.Route.HostTemplate, listener.Class.Spec.Route.SubdomainTemplate = tc.template, ""
				if field == "subdomain" {
					listener.Class.Spec.Route.HostTemplate, listener.Class.Spec.Route.SubdomainTemplate = "", tc.template
					tc.message = strings.ReplaceAll(tc.message, "hostTemplate", "subdomainTemplate")
				}
				desired, err := route.Backend{}.Objects(listener)
				if tc.reason != "" {
					refusal, ok := errors.AsType[*exposure.Refusal](err)
					if !ok || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
						t.Errorf("%s: got %v, want the refusal %s with %q", field, err, tc.reason, tc.message)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got, _ := desired[0].Object["spec"].(map[string]any)[field].(string)
				if got != tc.want {
					t.Errorf("%s: got %q, want %q", field, got, tc.want)
				}
			}
		})
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
		desired, err := route.Backend{}.Objects(l)
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].GetName() == desired[1].GetName() {
			t.Errorf("%s: two ports share the Route %s", name, desired[0].GetName())
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
		"other host":                     {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, existing: routev1.RouteSpec{Host: "old.example.com"}},
		"other subdomain":                {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, existing: routev1.RouteSpec{Subdomain: "old"}},
		"host instead of subdomain":      {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, existing: routev1.RouteSpec{Subdomain: "old"}},
		"host instead of generated host": {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated},
		"generated host unchanged":       {existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated},
		"host not generated yet":         {existing: routev1.RouteSpec{}},
		"default wildcard policy":        {existing: routev1.RouteSpec{WildcardPolicy: "None"}},

		"subdomain instead of host":                 {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, existing: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"subdomain instead of generated host":       {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, existing: routev1.RouteSpec{Host: "a.apps"}, annotations: generated, want: true},
		"generated host instead of host":            {existing: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"generated host instead of subdomain":       {existing: routev1.RouteSpec{Subdomain: "old"}, want: true},
		"wildcard policy Subdomain instead of None": {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.b", WildcardPolicy: "Subdomain"}, existing: routev1.RouteSpec{Host: "a.b"}, want: true},
		"wildcard policy None instead of Subdomain": {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.b"}, existing: routev1.RouteSpec{Host: "a.b", WildcardPolicy: "Subdomain"}, want: true},
	} {
		l := newListener(tc.class)
		l.Objects = []exposure.Object{&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "broker-kafka", Annotations: tc.annotations}, Spec: tc.existing}}
		desired, err := route.Backend{}.Objects(l)
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].Recreate != tc.want {
			t.Errorf("%s: Recreate is %t, want %t", name, desired[0].Recreate, tc.want)
		}
	}
}

func TestMissingPermissionForCustomHostsIsRecognised(t *testing.T) {
	remedy := route.Backend{}.Kinds()[0].Remedy
	for _, rejection := range []string{
		`Route.route.openshift.io "a" is invalid: spec.host: Forbidden: you do not have permission to set the host field of the route`,
		`Route.route.openshift.io "a" is invalid: spec.tls.externalCertificate: Forbidden: user does not have create and update permission on custom-host`,
	} {
		if got := remedy(rejection); !strings.Contains(got, "routes/custom-host") {
			t.Errorf("%s: got %q", rejection, got)
		}
	}
	if got := remedy("spec.tls.externalCertificate: Not found"); got != "" {
		t.Errorf("got %q for another rejection", got)
	}
}

// FuzzTemplate checks that any template and any names result in a valid host or in a refusal.
func FuzzTemplate(f *testing.F) {
	f.Add("{listener}-{port}.{namespace}.example.com", "web", "class", "web-0")
	f.Add("{podIndex}.{className}.{", "web", "a.b", "web.0-1")
	f.Add("..{}-{{podName}}", strings.Repeat("x", 63), strings.Repeat("x.", 120), "")
	f.Fuzz(func(t *testing.T, template, name, class, pod string) {
		l := forClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: template}), pod)
		l.Name, l.Class.Name = name, class
		desired, err := route.Backend{}.Objects(l)
		if err != nil {
			if _, ok := errors.AsType[*exposure.Refusal](err); !ok {
				t.Errorf("the error is not a *exposure.Refusal: %v", err)
			}
			return
		}
		host, _ := desired[0].Object["spec"].(map[string]any)["host"].(string)
		if !hostPattern.MatchString(host) && template != "" || len(host) > 253 {
			t.Errorf("template %q results in %q", template, host)
		}
		again, err := route.Backend{}.Objects(l)
		if diff := cmp.Diff(desired[0].Object, again[0].Object); err != nil || diff != "" {
			t.Errorf("the result is not stable (-first +second): %v\n%s", err, diff)
		}
	})
}
