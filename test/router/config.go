package router

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Files in HAProxy's directory.
const (
	configFile      = "haproxy.cfg"
	certificateList = "certificates.list"
	defaultPair     = "default.pem"
	serviceCA       = "service-ca.crt"
	masterSocket    = "master.sock"
)

//go:embed haproxy.cfg
var configText string

var configTemplate = template.Must(template.New(configFile).Option("missingkey=error").Parse(configText))

// Listen is the address and the ports that a router listens on.
type Listen struct {
	// Address is an IP address of the node.
	Address string
	// HTTP and HTTPS are its ports, on the platform always 80 and 443.
	HTTP, HTTPS int
}

// backend is the backend of an admitted Route in HAProxy's configuration.
type backend struct {
	// Name is unique among all backends.
	Name string
	// Host is in lower case.
	Host string
	// Path starts with a slash, or is empty.
	Path string
	// Passthrough, Edge and Reencrypt are the terminations. All are false for a Route without TLS.
	Passthrough, Edge, Reencrypt bool
	// Insecure means that the port without TLS serves the Route, Redirect that it redirects clients to the other port.
	Insecure, Redirect bool
	// DestinationCA is the file with the authority of the servers' certificates, for re-encryption.
	DestinationCA string
	// VerifyHost is the name that these certificates must be valid for. Empty means any.
	VerifyHost string
	Servers    []server
}

// server is an endpoint of a Route's Service.
type server struct {
	Name, Address string
}

// configData contains the values for the template.
type configData struct {
	Listen   Listen
	HTTP     string
	HTTPS    string
	Backends []backend
}

// render returns all files of HAProxy's directory, except for defaultPair and serviceCA, by their path relative to it.
func render(listen Listen, decisions []decision, endpoints []discoveryv1.EndpointSlice) (map[string]string, error) {
	files := map[string]string{}
	data := configData{Listen: listen, HTTP: bind(listen.Address, listen.HTTP), HTTPS: bind(listen.Address, listen.HTTPS)}
	var list strings.Builder
	for _, d := range decisions {
		if d.rejection != nil {
			continue
		}
		b := newBackend(d.route, endpoints)
		if certificate := pair(d.route); certificate != "" {
			file := path.Join("certificates", b.Name+".pem")
			files[file] = certificate
			fmt.Fprintf(&list, "%s %s\n", file, b.Host)
		}
		if b.Reencrypt && d.route.Spec.TLS.DestinationCACertificate != "" {
			files[b.DestinationCA] = d.route.Spec.TLS.DestinationCACertificate
		}
		data.Backends = append(data.Backends, b)
	}
	byPath(data.Backends)
	var config bytes.Buffer
	if err := configTemplate.Execute(&config, data); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", configFile, err)
	}
	files[configFile] = config.String()
	files[certificateList] = list.String()
	return files, nil
}

func bind(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// byPath sorts backends by the length of their paths, the longest first.
func byPath(backends []backend) {
	slices.SortStableFunc(backends, func(a, b backend) int { return len(b.Path) - len(a.Path) })
}

// newBackend returns the backend of an admitted Route.
func newBackend(route *routev1.Route, endpoints []discoveryv1.EndpointSlice) backend {
	b := backend{
		Name:    route.Namespace + ":" + route.Name,
		Host:    strings.ToLower(route.Spec.Host),
		Path:    route.Spec.Path,
		Servers: servers(route, endpoints),
	}
	if route.Spec.TLS == nil {
		b.Insecure = true
		return b
	}
	switch route.Spec.TLS.Termination {
	case routev1.TLSTerminationPassthrough:
		b.Passthrough = true
	case routev1.TLSTerminationReencrypt:
		b.Reencrypt = true
		if route.Spec.TLS.DestinationCACertificate != "" {
			b.DestinationCA = path.Join("destinations", b.Name+".crt")
		} else {
			// The platform's certificates for Services are trusted by default.
			b.DestinationCA = serviceCA
			b.VerifyHost = route.Spec.To.Name + "." + route.Namespace + ".svc"
		}
	default:
		b.Edge = true
	}
	b.Redirect = route.Spec.TLS.InsecureEdgeTerminationPolicy == routev1.InsecureEdgeTerminationPolicyRedirect
	b.Insecure = route.Spec.TLS.InsecureEdgeTerminationPolicy == routev1.InsecureEdgeTerminationPolicyAllow && !b.Passthrough
	return b
}

// pair returns a Route's own certificate and key in one text, or "" if the Route uses the default certificate.
func pair(route *routev1.Route) string {
	if route.Spec.TLS == nil || route.Spec.TLS.Certificate == "" {
		return ""
	}
	parts := []string{route.Spec.TLS.Certificate, route.Spec.TLS.Key, route.Spec.TLS.CACertificate}
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return strings.TrimSpace(strings.Join(parts, "\n")) + "\n"
}

// servers returns the ready endpoints of a Route's Service, sorted by address.
func servers(route *routev1.Route, endpoints []discoveryv1.EndpointSlice) []server {
	found := map[string]server{}
	for i := range endpoints {
		slice := &endpoints[i]
		if slice.Namespace != route.Namespace || slice.Labels[discoveryv1.LabelServiceName] != route.Spec.To.Name {
			continue
		}
		for _, port := range slice.Ports {
			if !matchesPort(port, route.Spec.Port) {
				continue
			}
			for _, address := range ready(slice) {
				target := net.JoinHostPort(address, strconv.Itoa(int(*port.Port)))
				found[target] = server{Name: strings.NewReplacer(":", "-", "[", "", "]", "").Replace(target), Address: target}
			}
		}
	}
	result := make([]server, 0, len(found))
	for _, target := range slices.Sorted(maps.Keys(found)) {
		result = append(result, found[target])
	}
	return result
}

// matchesPort reports whether an endpoint port is the target port of a Route. A Route without a target port matches
// all.
func matchesPort(port discoveryv1.EndpointPort, want *routev1.RoutePort) bool {
	if port.Port == nil || port.Protocol != nil && *port.Protocol != corev1.ProtocolTCP {
		return false
	}
	if want == nil {
		return true
	}
	if want.TargetPort.Type == intstr.Int {
		return *port.Port == want.TargetPort.IntVal
	}
	return port.Name != nil && *port.Name == want.TargetPort.StrVal
}

// ready returns the addresses of the ready endpoints of a slice.
func ready(slice *discoveryv1.EndpointSlice) []string {
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			addresses = append(addresses, endpoint.Addresses...)
		}
	}
	return addresses
}
