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

// newListener is a Listener of a class that exposes by Routes, with the ports that its Service has.
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

// ofClaim makes the Listener one that was made for a claim, which the Pods mount.
func ofClaim(l *exposure.Listener, pods ...string) *exposure.Listener {
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
		"listed-ports-alone":                     newListener(listenersv1alpha1.RouteExposure{Ports: []string{"metrics", "other"}}, threePorts()...),
		"host-of-a-pod":                          ofClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: "{podName}-{podIndex}.example.com"}), "kafka-12"),
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

func TestHosts(t *testing.T) {
	long := strings.Repeat("l", 63)
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		template string
		want     string // a host
		reason   string // of a refusal
		message  string // a part of it
	}{
		"every placeholder": {
			listener: ofClaim(newListener(listenersv1alpha1.RouteExposure{}), "pod-7"), template: "{listener}.{port}.{namespace}.{className}.{podName}.{podIndex}.example.com",
			want: "broker.kafka.shop.class.pod-7.7.example.com",
		},
		"one placeholder twice":      {template: "{port}.{port}.example.com", want: "kafka.kafka.example.com"},
		"no placeholder at all":      {template: "www.example.com", want: "www.example.com"},
		"a part of 63 characters":    {template: long + ".example.com", want: long + ".example.com"},
		"a part that is too long":    {template: long + "-{listener}.example.com", want: long[:54] + "-4800ec69.example.com"},
		"253 characters":             {template: strings.Repeat("a.", 123) + "{listener}x", want: strings.Repeat("a.", 123) + "brokerx"},
		"254 characters":             {template: strings.Repeat("a.", 123) + "{listener}xy", reason: listenersv1alpha1.ReasonInvalidHost, message: "no more than 253"},
		"an unknown placeholder":     {template: "{pod}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {pod}"},
		"an empty placeholder":       {template: "{}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "unknown placeholder {}"},
		"half a placeholder":         {template: "{listener.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: `makes "{listener.example.com" of port kafka, which is no host name`},
		"an empty part":              {template: "{listener}..example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "no host name"},
		"a part with a hyphen first": {template: "-{listener}.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "no host name"},
		"capitals":                   {template: "WWW.example.com", reason: listenersv1alpha1.ReasonInvalidHost, message: "no host name"},
		"a class with a dot in its name": {
			listener: func() *exposure.Listener {
				l := newListener(listenersv1alpha1.RouteExposure{})
				l.Class.Name = "a.b"
				return l
			}(),
			template: "{className}.example.com", want: "a-b-2e7336dc.example.com",
		},
		"a Pod that is no replica": {
			listener: ofClaim(newListener(listenersv1alpha1.RouteExposure{}), "web-7d9f8-x2k4q"), template: "{podIndex}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "the name of Pod web-7d9f8-x2k4q does not end with a hyphen and a number",
		},
		"a Listener of several Pods": {
			listener: ofClaim(newListener(listenersv1alpha1.RouteExposure{}), "web-0", "web-1"), template: "{podName}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "claim shop/broker is mounted by several (web-0, web-1)",
		},
		"a Listener that a user made": {
			template: "{podName}.example.com", reason: listenersv1alpha1.ReasonNoSinglePod, message: "Listener shop/broker was not made for one",
		},
		"a Listener whose Pod was never there": {
			listener: ofClaim(newListener(listenersv1alpha1.RouteExposure{})), template: "{podName}.example.com",
			reason: listenersv1alpha1.ReasonNoSinglePod, message: "no Pod mounts claim shop/broker at the moment",
		},
		"a Listener whose Pod is being replaced": {
			listener: func() *exposure.Listener {
				l := ofClaim(newListener(listenersv1alpha1.RouteExposure{}))
				l.Objects = []exposure.Object{&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "broker-kafka", Annotations: map[string]string{"listeners.stackable.tech/pod": "web-3"}}}}
				return l
			}(),
			template: "{podIndex}.example.com", want: "3.example.com",
		},
		"the same host for two ports": {
			listener: newListener(listenersv1alpha1.RouteExposure{}, threePorts()...), template: "{listener}.example.com",
			reason: listenersv1alpha1.ReasonInvalidHost, message: "the ports kafka and metrics would both have the host broker.example.com; spec.route.hostTemplate of ListenerClass class has to tell them apart by {port}",
		},
		"no port that is TCP": {
			listener: newListener(listenersv1alpha1.RouteExposure{}, threePorts()[2]),
			reason:   listenersv1alpha1.ReasonNoRoutablePorts, message: "Routes carry TCP alone; name another class",
		},
		"no port that the class lists": {
			listener: newListener(listenersv1alpha1.RouteExposure{Ports: []string{"http", "https"}}),
			reason:   listenersv1alpha1.ReasonNoRoutablePorts, message: "ListenerClass class those named http, https",
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

func TestNamesOfRoutesLeaveRoomForTheNamespaceInAHost(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, listener string
		limit               int
	}{
		"the name is cut so that a cluster can make a host of it": {namespace: "production", listener: strings.Repeat("l", 63), limit: 63},
		"an extreme namespace leaves a name that tells something": {namespace: strings.Repeat("n", 63), listener: strings.Repeat("l", 63), limit: 20 + 1 + 63},
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

func TestRoutesThatCannotBecomeWhatIsDesiredAreMadeAnew(t *testing.T) {
	generated := map[string]string{"openshift.io/host.generated": "true"}
	for name, tc := range map[string]struct {
		class listenersv1alpha1.RouteExposure
		is    routev1.RouteSpec
		notes map[string]string
		want  bool
	}{
		"another host":                           {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, is: routev1.RouteSpec{Host: "old.example.com"}},
		"another subdomain":                      {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, is: routev1.RouteSpec{Subdomain: "old"}},
		"a host instead of a subdomain":          {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, is: routev1.RouteSpec{Subdomain: "old"}},
		"a host instead of the cluster's choice": {class: listenersv1alpha1.RouteExposure{HostTemplate: "new.example.com"}, is: routev1.RouteSpec{Host: "a.apps"}, notes: generated},
		"the cluster's choice as ever":           {is: routev1.RouteSpec{Host: "a.apps"}, notes: generated},
		"not chosen yet":                         {is: routev1.RouteSpec{}},
		"the default wildcard policy":            {is: routev1.RouteSpec{WildcardPolicy: "None"}},

		"a subdomain instead of a host":               {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, is: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"a subdomain instead of the cluster's choice": {class: listenersv1alpha1.RouteExposure{SubdomainTemplate: "new"}, is: routev1.RouteSpec{Host: "a.apps"}, notes: generated, want: true},
		"the cluster's choice instead of a host":      {is: routev1.RouteSpec{Host: "old.example.com"}, want: true},
		"the cluster's choice instead of a subdomain": {is: routev1.RouteSpec{Subdomain: "old"}, want: true},
		"the whole domain instead of its host alone":  {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.b", WildcardPolicy: "Subdomain"}, is: routev1.RouteSpec{Host: "a.b"}, want: true},
		"the host alone instead of the whole domain":  {class: listenersv1alpha1.RouteExposure{HostTemplate: "a.b"}, is: routev1.RouteSpec{Host: "a.b", WildcardPolicy: "Subdomain"}, want: true},
	} {
		l := newListener(tc.class)
		l.Objects = []exposure.Object{&routev1.Route{ObjectMeta: metav1.ObjectMeta{Name: "broker-kafka", Annotations: tc.notes}, Spec: tc.is}}
		desired, err := route.Backend{}.Objects(l)
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].Anew != tc.want {
			t.Errorf("%s: made anew: %t, want %t", name, desired[0].Anew, tc.want)
		}
	}
}

func TestLackOfTheRightToHostsIsRecognised(t *testing.T) {
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
		t.Errorf("got %q about something else", got)
	}
}

// FuzzTemplate makes sure that whatever an administrator writes, and names come to, a Route gets a valid host or the
// Listener a refusal.
func FuzzTemplate(f *testing.F) {
	f.Add("{listener}-{port}.{namespace}.example.com", "web", "class", "web-0")
	f.Add("{podIndex}.{className}.{", "web", "a.b", "web.0-1")
	f.Add("..{}-{{podName}}", strings.Repeat("x", 63), strings.Repeat("x.", 120), "")
	f.Fuzz(func(t *testing.T, template, name, class, pod string) {
		l := ofClaim(newListener(listenersv1alpha1.RouteExposure{HostTemplate: template}), pod)
		l.Name, l.Class.Name = name, class
		desired, err := route.Backend{}.Objects(l)
		if err != nil {
			if _, ok := errors.AsType[*exposure.Refusal](err); !ok {
				t.Errorf("the error is no refusal: %v", err)
			}
			return
		}
		host, _ := desired[0].Object["spec"].(map[string]any)["host"].(string)
		if !hostPattern.MatchString(host) && template != "" || len(host) > 253 {
			t.Errorf("template %q makes %q", template, host)
		}
		again, err := route.Backend{}.Objects(l)
		if diff := cmp.Diff(desired[0].Object, again[0].Object); err != nil || diff != "" {
			t.Errorf("the second time it is another (-first +second): %v\n%s", err, diff)
		}
	})
}
