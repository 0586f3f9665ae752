package route_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// hostPattern is the pattern of spec.host in the CustomResourceDefinition of Routes.
var hostPattern = regexp.MustCompile(`^([a-z0-9]|[a-z0-9][a-z0-9\-]{0,61}[a-z0-9])(\.([a-z0-9]|[a-z0-9][a-z0-9\-]{0,61}[a-z0-9]))*$`)

// newRoute returns a port's Route with the status that routers report.
func newRoute(port string, ingresses ...routev1.RouteIngress) *routev1.Route {
	return &routev1.Route{
		ObjectMeta: metav1.ObjectMeta{Name: "broker-" + port},
		Spec:       routev1.RouteSpec{TLS: &routev1.TLSConfig{Termination: routev1.TLSTerminationPassthrough}},
		Status:     routev1.RouteStatus{Ingress: ingresses},
	}
}

func reported(router, host string, status corev1.ConditionStatus, words ...string) routev1.RouteIngress {
	c := routev1.RouteIngressCondition{Type: routev1.RouteAdmitted, Status: status}
	if len(words) == 2 {
		c.Reason, c.Message = words[0], words[1]
	}
	return routev1.RouteIngress{RouterName: router, Host: host, Conditions: []routev1.RouteIngressCondition{
		{Type: routev1.RouteUnservableInFutureVersions, Status: corev1.ConditionTrue}, c,
	}}
}

func hostname(host, port string, number int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number}}
}

func TestAddressesAreTheAdmittedHosts(t *testing.T) {
	const (
		yes = corev1.ConditionTrue
		no  = corev1.ConditionFalse
	)
	for name, tc := range map[string]struct {
		class   *listenersv1alpha1.RouteExposure // nil means that the class no longer has spec.route
		ports   []corev1.ServicePort
		routes  []exposure.Object
		want    []listenersv1alpha1.IngressAddress
		reason  string
		message string
	}{
		"admitted": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka", reported("default", "a.example.com", yes))},
			want: []listenersv1alpha1.IngressAddress{hostname("a.example.com", "kafka", 443)},
		},
		"without TLS": {
			class: &listenersv1alpha1.RouteExposure{Termination: listenersv1alpha1.RouteTerminationNone},
			routes: []exposure.Object{func() *routev1.Route {
				r := newRoute("kafka", reported("default", "a.example.com", yes))
				r.Spec.TLS = nil
				return r
			}()},
			want: []listenersv1alpha1.IngressAddress{hostname("a.example.com", "kafka", 80)},
		},
		"one host for each port, in the order of the Service": {
			class: &listenersv1alpha1.RouteExposure{}, ports: threePorts(),
			routes:  []exposure.Object{newRoute("metrics", reported("default", "a.example.com", yes)), newRoute("kafka", reported("default", "z.example.com", yes))},
			want:    []listenersv1alpha1.IngressAddress{hostname("z.example.com", "kafka", 443), hostname("a.example.com", "metrics", 443)},
			message: "port dns (Routes do not support UDP)",
		},
		"several routers, in the order of the status": {
			class:  &listenersv1alpha1.RouteExposure{},
			routes: []exposure.Object{newRoute("kafka", reported("z", "z.example.com", yes), reported("a", "a.example.com", yes), reported("same", "z.example.com", yes))},
			want:   []listenersv1alpha1.IngressAddress{hostname("z.example.com", "kafka", 443), hostname("a.example.com", "kafka", 443)},
		},
		"routers that the class lists, in its order": {
			class:  &listenersv1alpha1.RouteExposure{Routers: []string{"a", "z"}},
			routes: []exposure.Object{newRoute("kafka", reported("z", "z.example.com", yes), reported("other", "o.example.com", yes), reported("a", "a.example.com", yes))},
			want:   []listenersv1alpha1.IngressAddress{hostname("a.example.com", "kafka", 443), hostname("z.example.com", "kafka", 443)},
		},
		"one router rejects, another one admits": {
			class:  &listenersv1alpha1.RouteExposure{},
			routes: []exposure.Object{newRoute("kafka", reported("a", "a.example.com", no, "HostAlreadyClaimed", "taken"), reported("b", "b.example.com", yes))},
			want:   []listenersv1alpha1.IngressAddress{hostname("b.example.com", "kafka", 443)}, message: `Route shop/broker-kafka is rejected by router "a": HostAlreadyClaimed: taken`,
		},
		"a router warns": {
			class: &listenersv1alpha1.RouteExposure{},
			routes: []exposure.Object{func() *routev1.Route {
				r := newRoute("kafka", reported("default", "a.example.com", yes))
				r.Status.Ingress[0].Conditions[0].Reason, r.Status.Ingress[0].Conditions[0].Message = "SHA1", "the certificate is signed with SHA1"
				return r
			}()},
			want:    []listenersv1alpha1.IngressAddress{hostname("a.example.com", "kafka", 443)},
			message: `Route shop/broker-kafka is UnservableInFutureVersions, says router "default": SHA1: the certificate is signed with SHA1`,
		},
		"no Route yet": {
			class: &listenersv1alpha1.RouteExposure{}, reason: listenersv1alpha1.ReasonWaitingForRouter, message: "Route shop/broker-kafka does not exist yet",
		},
		"no router yet": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka")},
			reason: listenersv1alpha1.ReasonWaitingForRouter, message: "Route shop/broker-kafka is not admitted yet by any router",
		},
		"none of the routers that the class lists": {
			class: &listenersv1alpha1.RouteExposure{Routers: []string{"a", "b"}}, routes: []exposure.Object{newRoute("kafka", reported("default", "a.example.com", yes))},
			reason: listenersv1alpha1.ReasonWaitingForRouter, message: "Route shop/broker-kafka is not admitted yet by any of the routers that the class lists: a, b",
		},
		"router without a decision": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka", reported("default", "a.example.com", "Unknown"), routev1.RouteIngress{RouterName: "undecided"})},
			reason: listenersv1alpha1.ReasonWaitingForRouter, message: "is not admitted yet",
		},
		"admitted for a name in the DNS of the cluster": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka", reported("default", "a.shop.svc.cluster.local", yes))},
			reason:  listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `is admitted by router "default" for a host that clients outside the cluster cannot use: a.shop.svc.cluster.local (a name in the DNS of the cluster)`,
		},
		"admitted for what is no host": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka", reported("default", "a.example.com\n192.0.2.1", yes))},
			reason:  listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `Route shop/broker-kafka is admitted by router "default" for "a.example.com\n192.0.2.1", which is not a host name`,
		},
		"admitted without a host": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka", reported("default", "", yes))},
			reason: listenersv1alpha1.ReasonWaitingForRouter, message: "is not admitted yet",
		},
		"rejected": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{newRoute("kafka",
				reported("a", "a.example.com", no, "HostAlreadyClaimed", "route x already exposes a.example.com and is older"), reported("b", "", no, "RouteNotAdmitted", "wildcard routes are not allowed"))},
			reason: listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `Route shop/broker-kafka is rejected by router "a": HostAlreadyClaimed: route x already exposes a.example.com and is older, ` +
				`is rejected by router "b": RouteNotAdmitted: wildcard routes are not allowed`,
		},
		"its Secret is rejected": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{withSecret(newRoute("kafka", reported("a", "a.example.com", no, "ExternalCertificateValidationFailed", "words")))},
			reason:  listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `rejected by router "a": ExternalCertificateValidationFailed: words; create the Secret that the class names`,
		},
		"the content of its Secret is rejected": {
			class: &listenersv1alpha1.RouteExposure{}, routes: []exposure.Object{withSecret(newRoute("kafka", reported("a", "a.example.com", no, "ExtendedValidationFailed", "words")))},
			reason:  listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `rejected by router "a": ExtendedValidationFailed: words; correct the certificate and the key in the Secret`,
		},
		"one port admitted, one rejected, one not supported by Routes": {
			class: &listenersv1alpha1.RouteExposure{}, ports: append(threePorts(), corev1.ServicePort{Name: "web"}),
			routes: []exposure.Object{newRoute("kafka"), newRoute("metrics", reported("default", "m.example.com", yes)), newRoute("web", reported("default", "w.example.com", no, "A", "b"))},
			want:   []listenersv1alpha1.IngressAddress{hostname("m.example.com", "metrics", 443)}, reason: listenersv1alpha1.ReasonRouteNotAdmitted,
			message: `Route shop/broker-web is rejected by router "default": A: b; port dns (Routes do not support UDP)`,
		},
		"class without spec.route, remaining Routes": {
			ports: threePorts(), routes: []exposure.Object{newRoute("metrics", reported("default", "m.example.com", yes))},
			want: []listenersv1alpha1.IngressAddress{hostname("m.example.com", "metrics", 443)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListener(listenersv1alpha1.RouteExposure{}, tc.ports...)
			l.Class.Spec.Route, l.Objects = tc.class, tc.routes
			before := fmt.Sprint(l.Objects)
			got := route.Backend().Addresses(l, exposure.Placement{})
			if tc.want == nil {
				tc.want = []listenersv1alpha1.IngressAddress{} // never null
			}
			check.Equal(t, "addresses", tc.want, got.Addresses)
			if got.Reason != tc.reason || got.Complete != (tc.reason == "") || got.NodePorts != nil {
				t.Errorf("got %+v, want reason %q", got, tc.reason)
			}
			if !strings.Contains(got.Message, tc.message) || tc.message == "" && got.Message != "" {
				t.Errorf("message is %q, want %q in it", got.Message, tc.message)
			}
			if fmt.Sprint(l.Objects) != before {
				t.Error("the Routes were changed, which belong to the cache")
			}
		})
	}
}

// It stays in the status of a Route until the router follows, or for ever if the class leaves the choice to OpenShift.
func TestAHostThatAnotherClientChoseIsNotPublished(t *testing.T) {
	const theirs = "db.theirs.svc.cluster.local"
	byTemplate := listenersv1alpha1.RouteExposure{HostTemplate: "{listener}.{namespace}.example.com"}
	bySubdomain := listenersv1alpha1.RouteExposure{SubdomainTemplate: "{listener}-{hash}"}
	for name, tc := range map[string]struct {
		class     listenersv1alpha1.RouteExposure
		spec      routev1.RouteSpec
		host      string
		published bool
		want      bool
	}{
		"that of the template":                           {byTemplate, routev1.RouteSpec{Host: "broker.shop.example.com"}, "broker.shop.example.com", false, true},
		"another than that of the template":              {byTemplate, routev1.RouteSpec{Host: "broker.shop.example.com"}, theirs, false, false},
		"another one that is published":                  {byTemplate, routev1.RouteSpec{Host: "broker.shop.example.com"}, "former.example.com", true, true},
		"that of a router for the subdomain":             {bySubdomain, routev1.RouteSpec{Subdomain: "broker-1"}, "broker-1.apps.example.com", false, true},
		"another than that for the subdomain":            {bySubdomain, routev1.RouteSpec{Subdomain: "broker-1"}, theirs, false, false},
		"that of OpenShift":                              {listenersv1alpha1.RouteExposure{}, routev1.RouteSpec{Host: "broker-kafka-shop.apps.example.com"}, "broker-kafka-shop.apps.example.com", false, true},
		"one that OpenShift would not choose":            {listenersv1alpha1.RouteExposure{}, routev1.RouteSpec{Host: theirs}, theirs, false, false},
		"one that the Route had before OpenShift's host": {listenersv1alpha1.RouteExposure{}, routev1.RouteSpec{Host: "broker-kafka-shop.apps.example.com"}, theirs, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoute("kafka", reported("default", tc.host, corev1.ConditionTrue))
			r.Spec, r.Annotations = tc.spec, map[string]string{"openshift.io/host.generated": "true"}
			l := newListener(tc.class)
			l.Objects = []exposure.Object{r}
			if tc.published {
				l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{hostname(tc.host, "kafka", 443)}}
			}
			got := route.Backend().Addresses(l, exposure.Placement{})
			if (len(got.Addresses) == 1) != tc.want || got.Complete != tc.want {
				t.Errorf("got %+v", got)
			}
			if !tc.want && !strings.Contains(got.Message, theirs+", which is not its host; if this lasts, delete the Route") {
				t.Errorf("message: %s", got.Message)
			}
		})
	}
}

// withSecret lets a Route refer to a Secret with its certificate.
func withSecret(r *routev1.Route) *routev1.Route {
	r.Spec.TLS.Termination, r.Spec.TLS.ExternalCertificate = routev1.TLSTerminationEdge, &routev1.LocalObjectReference{Name: "cert"}
	return r
}

// A router does not watch the Secret of a Route that it rejected at first.
func TestRoutesThatAreRejectedForTheirCertificate(t *testing.T) {
	since, created := metav1.Unix(1700000000, 0), metav1.Unix(1600000000, 0)
	rejected := func(router, reason string, at *metav1.Time) routev1.RouteIngress {
		ingress := reported(router, "a.example.com", corev1.ConditionFalse, reason, "words")
		ingress.Conditions[1].LastTransitionTime = at
		return ingress
	}
	for name, tc := range map[string]struct {
		ingresses []routev1.RouteIngress
		plain     bool // the Route refers to no Secret
		routers   []string
		want      []metav1.Time
	}{
		"the Secret is not valid":             {ingresses: []routev1.RouteIngress{rejected("default", "ExternalCertificateValidationFailed", &since)}, want: []metav1.Time{since}},
		"the Secret was deleted":              {ingresses: []routev1.RouteIngress{rejected("default", "ExternalCertificateSecretDeleted", &since)}, want: []metav1.Time{since}},
		"its content is not valid":            {ingresses: []routev1.RouteIngress{rejected("default", "ExtendedValidationFailed", &since)}, want: []metav1.Time{since}},
		"at an unknown time":                  {ingresses: []routev1.RouteIngress{rejected("default", "ExtendedValidationFailed", nil)}, want: []metav1.Time{created}},
		"by the second router":                {ingresses: []routev1.RouteIngress{reported("first", "a.example.com", corev1.ConditionTrue), rejected("default", "ExtendedValidationFailed", &since)}, want: []metav1.Time{since}},
		"by a router that the class excludes": {ingresses: []routev1.RouteIngress{rejected("default", "ExtendedValidationFailed", &since)}, routers: []string{"other"}},
		"for its host":                        {ingresses: []routev1.RouteIngress{rejected("default", "HostAlreadyClaimed", &since)}},
		"for a certificate of its own":        {ingresses: []routev1.RouteIngress{rejected("default", "ExtendedValidationFailed", &since)}, plain: true},
		"admitted":                            {ingresses: []routev1.RouteIngress{reported("default", "a.example.com", corev1.ConditionTrue)}},
		"not decided":                         {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoute("kafka", tc.ingresses...)
			r.CreationTimestamp = created
			if !tc.plain {
				r = withSecret(r)
			}
			l := newListener(listenersv1alpha1.RouteExposure{Routers: tc.routers})
			l.Objects = []exposure.Object{r}
			var got []metav1.Time
			for _, rejected := range route.Backend().Addresses(l, exposure.Placement{}).Rejected {
				got = append(got, rejected.Since)
			}
			check.Equal(t, "rejected since", tc.want, got)
		})
	}
}
