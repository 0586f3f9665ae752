package router

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// endpoints returns a slice of a Service with a port "http" and a port "other" on each ready address, and one address
// that is not ready.
func endpoints(namespace, service string, addresses ...string) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("other"), Port: ptr.To[int32](9090), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("datagrams"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolUDP)},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.99"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
	}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return slice
}

func toPort(port intstr.IntOrString) func(*routev1.Route) {
	return func(r *routev1.Route) { r.Spec.Port = &routev1.RoutePort{TargetPort: port} }
}

var toHTTP = toPort(intstr.FromString("http"))

// testListen is only validated by HAProxy, which does not listen on it.
var testListen = Listen{Address: "127.0.0.1", HTTP: 80, HTTPS: 443}

// It compares HAProxy's files with golden files, and validates them with HAProxy if that is installed.
func TestConfigurationOfRoutes(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string][]routev1.Route{
		"none": nil,
		"plain": {
			newRoute(1, "a", "web", "web.test", toHTTP),
			newRoute(2, "a", "web", "web.test", toPort(intstr.FromInt32(9090)), atPath("/other"), func(r *routev1.Route) { r.Name = "path" }),
		},
		"passthrough": {
			newRoute(1, "a", "web", "Web.test", toHTTP, passthrough()),
			newRoute(2, "a", "no-endpoints", "no-endpoints.test", toHTTP, withTLS(routev1.TLSConfig{
				Termination: routev1.TLSTerminationPassthrough, InsecureEdgeTerminationPolicy: routev1.InsecureEdgeTerminationPolicyRedirect,
			})),
		},
		"edge": {
			newRoute(1, "a", "web", "none.test", toHTTP, edge()),
			newRoute(2, "a", "allow", "allow.test", toHTTP, withTLS(routev1.TLSConfig{
				Termination: routev1.TLSTerminationEdge, InsecureEdgeTerminationPolicy: routev1.InsecureEdgeTerminationPolicyAllow,
			})),
			newRoute(3, "a", "redirect", "redirect.test", toHTTP, withTLS(routev1.TLSConfig{
				Termination: routev1.TLSTerminationEdge, InsecureEdgeTerminationPolicy: routev1.InsecureEdgeTerminationPolicyRedirect,
				Certificate: "CERTIFICATE", Key: "KEY",
			})),
		},
		"reencrypt": {
			newRoute(1, "a", "web", "service.test", toHTTP, withTLS(routev1.TLSConfig{Termination: routev1.TLSTerminationReencrypt})),
			newRoute(2, "a", "other", "other.test", toHTTP, withTLS(routev1.TLSConfig{
				Termination: routev1.TLSTerminationReencrypt, DestinationCACertificate: "CA",
			}), func(r *routev1.Route) { r.Spec.To.Name = "web" }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var decisions []decision
			for i := range routes {
				decisions = append(decisions, decision{route: &routes[i]})
			}
			rejected := newRoute(9, "a", "rejected", "rejected.test", edge())
			decisions = append(decisions, decision{route: &rejected, rejection: &rejection{}})
			slices := []discoveryv1.EndpointSlice{
				endpoints("a", "web", "10.0.0.2", "10.0.0.1"), endpoints("a", "web", "10.0.0.2"), endpoints("a", "another", "10.0.0.3"), endpoints("b", "web", "10.0.0.4"),
			}
			files, err := render(testListen, decisions, slices)
			check.Must(t, err)
			golden.Compare(t, name, files)
			validate(t, files)
		})
	}
}

// newPair returns a CA, and a certificate for x.test that it has issued.
func newPair(t *testing.T) (*pki.Authority, pki.Pair) {
	t.Helper()
	authority, err := pki.NewAuthority("authority")
	check.Must(t, err)
	pair, err := authority.Issue(pki.Request{DNSNames: []string{"x.test"}})
	check.Must(t, err)
	return authority, pair
}

// validate validates files with HAProxy, in which CERTIFICATE, KEY and CA are replaced by real ones.
func validate(t *testing.T, files map[string]string) {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Log("HAProxy is not installed, so the configuration is not validated")
		return
	}
	authority, pair := newPair(t)
	real := map[string]string{defaultPair: string(pair.Cert) + string(pair.Key), serviceCA: string(authority.Cert)}
	for name, content := range files {
		switch filepath.Dir(name) {
		case "certificates":
			content = real[defaultPair]
		case "destinations":
			content = real[serviceCA]
		}
		real[name] = content
	}
	h := &haproxy{dir: t.TempDir()}
	check.Must(t, h.write(real))
	if err := h.check(t.Context()); err != nil {
		t.Error(err)
	}
	check.Must(t, os.WriteFile(filepath.Join(h.dir, configFile), []byte("nonsense\n"), 0o600))
	if h.check(t.Context()) == nil {
		t.Error("HAProxy accepts an invalid configuration")
	}
}
