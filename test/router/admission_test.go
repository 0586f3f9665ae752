package router

import (
	"fmt"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// newRoute returns a Route whose creation timestamp has the given number of seconds.
func newRoute(second int, namespace, name, host string, change ...func(*routev1.Route)) routev1.Route {
	route := routev1.Route{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("uid-%02d", second)),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC)),
		},
		Spec: routev1.RouteSpec{Host: host, To: routev1.RouteTargetReference{Kind: "Service", Name: name}, WildcardPolicy: routev1.WildcardPolicyNone},
	}
	for _, c := range change {
		c(&route)
	}
	return route
}

func atPath(path string) func(*routev1.Route) { return func(r *routev1.Route) { r.Spec.Path = path } }

func withTLS(config routev1.TLSConfig) func(*routev1.Route) {
	return func(r *routev1.Route) { r.Spec.TLS = &config }
}

func passthrough() func(*routev1.Route) {
	return withTLS(routev1.TLSConfig{Termination: routev1.TLSTerminationPassthrough})
}

func edge() func(*routev1.Route) {
	return withTLS(routev1.TLSConfig{Termination: routev1.TLSTerminationEdge})
}

func labelled(key, value string) func(*routev1.Route) {
	return func(r *routev1.Route) { r.Labels = map[string]string{key: value} }
}

func subdomain(name string) func(*routev1.Route) {
	return func(r *routev1.Route) { r.Spec.Subdomain = name }
}

// inStatus gives a Route the entry of the router without a name.
func inStatus(host string, admitted corev1.ConditionStatus, message string) func(*routev1.Route) {
	return func(r *routev1.Route) {
		r.Status.Ingress = []routev1.RouteIngress{{Host: host, Conditions: []routev1.RouteIngressCondition{
			{Type: routev1.RouteAdmitted, Status: admitted, Message: message},
		}}}
	}
}

// noSecrets is for Routes that refer to no Secret.
func noSecrets(string, string) (*corev1.Secret, []string) { return nil, nil }

// outcome returns "host" for an admitted Route, otherwise "host: reason: message".
func outcome(d decision) string {
	if d.rejection == nil {
		return d.route.Spec.Host
	}
	return fmt.Sprintf("%s: %s: %s", d.route.Spec.Host, d.rejection.reason, d.rejection.message)
}

func outcomes(decisions []decision) map[string]string {
	got := map[string]string{}
	for _, d := range decisions {
		got[d.route.Namespace+"/"+d.route.Name] = outcome(d)
	}
	return got
}

func TestHostBelongsToOldestRoute(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		routes []routev1.Route
		want   map[string]string
	}{
		"a younger Route of the namespace is rejected, in any order": {
			routes: []routev1.Route{newRoute(2, "a", "young", "x.test"), newRoute(1, "a", "old", "x.test")},
			want:   map[string]string{"a/old": "x.test", "a/young": "x.test: HostAlreadyClaimed: route old already exposes x.test and is older"},
		},
		"a Route of another namespace is rejected even with another path": {
			routes: []routev1.Route{newRoute(1, "a", "old", "x.test"), newRoute(2, "b", "young", "x.test", atPath("/b"))},
			want: map[string]string{
				"a/old": "x.test", "b/young": "x.test: HostAlreadyClaimed: a route in another namespace holds x.test and is older than young",
			},
		},
		"Routes of a namespace share a host with different paths": {
			routes: []routev1.Route{newRoute(1, "a", "root", "x.test"), newRoute(2, "a", "sub", "x.test", atPath("/sub"))},
			want:   map[string]string{"a/root": "x.test", "a/sub": "x.test"},
		},
		"a Route with passthrough shares no host": {
			routes: []routev1.Route{newRoute(1, "a", "through", "x.test", passthrough()), newRoute(2, "a", "sub", "x.test", edge(), atPath("/sub"))},
			want: map[string]string{
				"a/through": "x.test", "a/sub": "x.test: HostAlreadyClaimed: route through already exposes x.test and is older",
			},
		},
		"an older Route replaces one that was admitted": {
			routes: []routev1.Route{newRoute(1, "a", "old", "x.test"), newRoute(2, "a", "young", "x.test", inStatus("x.test", corev1.ConditionTrue, ""))},
			want:   map[string]string{"a/old": "x.test", "a/young": "x.test: HostAlreadyClaimed: replaced by older route old"},
		},
		"a Route that was replaced keeps the message": {
			routes: []routev1.Route{
				newRoute(1, "a", "old", "x.test"),
				newRoute(2, "b", "young", "x.test", inStatus("x.test", corev1.ConditionFalse, "replaced by older route old")),
			},
			want: map[string]string{"a/old": "x.test", "b/young": "x.test: HostAlreadyClaimed: replaced by older route old"},
		},
		"a Route that was admitted with another host is not replaced": {
			routes: []routev1.Route{newRoute(1, "a", "old", "x.test"), newRoute(2, "a", "young", "x.test", inStatus("y.test", corev1.ConditionTrue, ""))},
			want:   map[string]string{"a/old": "x.test", "a/young": "x.test: HostAlreadyClaimed: route old already exposes x.test and is older"},
		},
		"the UID decides between Routes of the same age": {
			routes: []routev1.Route{
				newRoute(1, "a", "second", "x.test", func(r *routev1.Route) { r.UID = "b" }),
				newRoute(1, "a", "first", "x.test", func(r *routev1.Route) { r.UID = "a" }),
			},
			want: map[string]string{"a/first": "x.test", "a/second": "x.test: HostAlreadyClaimed: route first already exposes x.test and is older"},
		},
		"a Route that is rejected for its TLS keeps its host": {
			routes: []routev1.Route{
				newRoute(1, "a", "broken", "x.test", withTLS(routev1.TLSConfig{Termination: routev1.TLSTerminationEdge, Certificate: "none"})),
				newRoute(2, "a", "young", "x.test"),
			},
			want: map[string]string{
				"a/broken": `x.test: ExtendedValidationFailed: [spec.tls.certificate: Invalid value: "redacted certificate data": ` +
					`data does not contain any valid RSA or ECDSA certificates, spec.tls.key: Invalid value: "redacted key data": no key specified]`,
				"a/young": "x.test: HostAlreadyClaimed: route broken already exposes x.test and is older",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := outcomes(admit(Identity{}, tc.routes, noSecrets))
			check.Equal(t, "outcomes", tc.want, got)
		})
	}
}

func TestRouteWithoutValidHostIsRejected(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		route  routev1.Route
		domain string
		want   string
	}{
		"a subdomain becomes a host below the router's domain": {newRoute(1, "a", "r", "", subdomain("web")), "apps.test", "web.apps.test"},
		"a host takes precedence over a subdomain":             {newRoute(1, "a", "r", "x.test", subdomain("web")), "apps.test", "x.test"},
		"no host and no subdomain":                             {newRoute(1, "a", "r", ""), "apps.test", ": NoHostValue: no host value was defined for the route"},
		"a subdomain without a domain": {
			newRoute(1, "a", "r", "", subdomain("web")), "", ": NoHostValue: no host value was defined for the route",
		},
		"a label that is too long": {
			newRoute(1, "a", "r", long+".test"), "", long + `.test: InvalidHost: host name validation errors: spec.host: Invalid value: "` +
				long + `.test": must be no more than 63 characters`,
		},
		"a wildcard": {
			newRoute(1, "a", "r", "x.test", func(r *routev1.Route) { r.Spec.WildcardPolicy = routev1.WildcardPolicySubdomain }), "",
			"x.test: RouteNotAdmitted: wildcard routes are not allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := admit(Identity{Domain: tc.domain}, []routev1.Route{tc.route}, noSecrets)
			check.Equal(t, "outcome", []string{tc.want}, []string{outcome(got[0])})
		})
	}
}

// A Route outside of the shard claims no host either.
func TestRouterServesOnlyItsShard(t *testing.T) {
	t.Parallel()
	routes := []routev1.Route{
		newRoute(1, "a", "elsewhere", "x.test"),
		newRoute(2, "b", "here", "x.test", labelled("shard", "blue")),
	}
	blue := Identity{Shard: labels.SelectorFromSet(labels.Set{"shard": "blue"})}
	check.Equal(t, "in the shard", map[string]string{"b/here": "x.test"}, outcomes(admit(blue, routes, noSecrets)))
	want := map[string]string{
		"a/elsewhere": "x.test", "b/here": "x.test: HostAlreadyClaimed: a route in another namespace holds x.test and is older than here",
	}
	check.Equal(t, "without a shard", want, outcomes(admit(Identity{}, routes, noSecrets)))
}

func TestCertificateIsReadFromSecretOfRoute(t *testing.T) {
	t.Parallel()
	_, pair := newPair(t)
	_, other := newPair(t)
	secret := func(kind corev1.SecretType, certificate, key []byte) *corev1.Secret {
		return &corev1.Secret{Type: kind, Data: map[string][]byte{"tls.crt": certificate, "tls.key": key}}
	}
	const where = "x.test: ExternalCertificateValidationFailed: spec.tls.externalCertificate: "
	for name, tc := range map[string]struct {
		secret  *corev1.Secret
		missing []string
		want    string
	}{
		"used":          {secret: secret(corev1.SecretTypeTLS, pair.Cert, pair.Key), want: "x.test"},
		"missing":       {want: where + `Not found: "secrets \"cert\" not found"`},
		"wrong type":    {secret: secret(corev1.SecretTypeOpaque, pair.Cert, pair.Key), want: where + `Invalid value: "cert": secret of type "kubernetes.io/tls" required`},
		"not permitted": {secret: secret(corev1.SecretTypeTLS, pair.Cert, pair.Key), missing: []string{"get"}, want: where + "Forbidden: router serviceaccount does not have permission to get this secret"},
		"not a certificate": {
			secret: secret(corev1.SecretTypeTLS, []byte("none"), pair.Key),
			want: `x.test: ExtendedValidationFailed: [spec.tls.certificate: Invalid value: "redacted certificate data": ` +
				`data does not contain any valid RSA or ECDSA certificates, spec.tls.key: Invalid value: "redacted key data": ` +
				"tls: failed to find any PEM data in certificate input]",
		},
		"not its key": {
			secret: secret(corev1.SecretTypeTLS, pair.Cert, other.Key),
			want: `x.test: ExtendedValidationFailed: spec.tls.key: Invalid value: "redacted key data": ` +
				"tls: private key does not match public key",
		},
		"no key": {
			secret: secret(corev1.SecretTypeTLS, pair.Cert, nil),
			want:   `x.test: ExtendedValidationFailed: spec.tls.key: Invalid value: "redacted key data": no key specified`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route := newRoute(1, "a", "r", "x.test", withTLS(routev1.TLSConfig{
				Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
			}))
			got := admit(Identity{}, []routev1.Route{route}, func(string, string) (*corev1.Secret, []string) { return tc.secret, tc.missing })
			check.Equal(t, "outcome", tc.want, outcome(got[0]))
			if got[0].rejection == nil && got[0].route.Spec.TLS.Certificate != string(pair.Cert) {
				t.Error("the Route is not served with the Secret's certificate")
			}
		})
	}
}

func TestRouteRejectedForItsSecretIsLookedAtAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	_, pair := newPair(t)
	var secret *corev1.Secret
	seen := rejections{}
	run := func(routes ...routev1.Route) string {
		decisions := admit(Identity{}, routes, func(string, string) (*corev1.Secret, []string) { return secret, nil })
		seen.remember(decisions, routes)
		reasons := ""
		for _, d := range decisions {
			if d.rejection != nil {
				reasons += d.rejection.reason
			}
		}
		return reasons
	}
	route := newRoute(1, "a", "r", "x.test", withTLS(routev1.TLSConfig{
		Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
	}))
	other := newRoute(2, "a", "other", "y.test")
	if got := run(route); got != reasonExternalCertificate {
		t.Errorf("without a Secret: %q", got)
	}
	secret = &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}}
	inStatus("x.test", corev1.ConditionFalse, "words")(&route)
	if got := run(route, other); got != reasonExternalCertificate {
		t.Errorf("after a change of the Secret, of the status and of other Routes: %q", got)
	}
	route.Annotations = map[string]string{"touched": "yes"}
	if got := run(route, other); got != "" {
		t.Errorf("after a change of the Route: %q", got)
	}
	if run(other); len(seen) > 0 {
		t.Errorf("remembers %v", seen)
	}
}
