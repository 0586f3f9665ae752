package router

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/cert"
)

// Identity is how a router differs from the other routers of a cluster: an IngressController of OpenShift.
type Identity struct {
	// Name is what the router calls itself in the status of Routes.
	Name string
	// Domain is what follows spec.subdomain in the host of a Route that has a subdomain and no host. Empty means that
	// the router leaves such Routes without a host.
	Domain string
	// CanonicalHostname is what host names of Routes may be aliases of. It may be empty.
	CanonicalHostname string
	// Shard selects, by their labels, the Routes that the router sees. Nil selects all.
	Shard labels.Selector
}

// The reasons for which the platform's router does not admit a Route.
const (
	reasonNotAdmitted         = "RouteNotAdmitted"
	reasonNoHost              = "NoHostValue"
	reasonInvalidHost         = "InvalidHost"
	reasonHostClaimed         = "HostAlreadyClaimed"
	reasonExternalCertificate = "ExternalCertificateValidationFailed"
	reasonInvalidTLS          = "ExtendedValidationFailed"
)

// refusal is why a router does not admit a Route, in the words of the platform's router.
type refusal struct {
	reason, message string
}

// verdict is what a router makes of a Route of its shard.
type verdict struct {
	// route is the Route with the host that this router gives it, and with the certificate of its Secret if it names
	// one.
	route *routev1.Route
	// refusal is nil if the Route is admitted.
	refusal *refusal
}

// secretReader returns a Secret and what keeps the platform's router from reading it. Without any of both the Secret
// does not exist.
type secretReader func(namespace, name string) (secret *corev1.Secret, missingVerbs []string)

// admit decides on all Routes of the router's shard, the oldest first. Claims are settled as by the platform's router
// with its default settings: a host belongs to the namespace of its oldest Route, even if that Route is refused later
// on for another reason, and wildcards are not allowed.
func admit(id Identity, routes []routev1.Route, secrets secretReader) []verdict {
	var verdicts []verdict
	claims := map[string][]*routev1.Route{}
	for _, route := range byAge(routes) {
		if id.Shard != nil && !id.Shard.Matches(labels.Set(route.Labels)) {
			continue
		}
		if route.Spec.Host == "" && route.Spec.Subdomain != "" && id.Domain != "" {
			route.Spec.Host = route.Spec.Subdomain + "." + id.Domain
		}
		verdicts = append(verdicts, verdict{route: route, refusal: decide(route, claims, secrets)})
	}
	return verdicts
}

// decide takes the steps of the platform's router in their order.
func decide(route *routev1.Route, claims map[string][]*routev1.Route, secrets secretReader) *refusal {
	if r := checkWildcard(route); r != nil {
		return r
	}
	if r := checkHost(route); r != nil {
		return r
	}
	if r := claim(route, claims); r != nil {
		return r
	}
	if r := readCertificate(route, secrets); r != nil {
		return r
	}
	return checkTLS(route)
}

// byAge returns copies of Routes, the oldest first.
func byAge(routes []routev1.Route) []*routev1.Route {
	sorted := make([]*routev1.Route, 0, len(routes))
	for i := range routes {
		sorted = append(sorted, routes[i].DeepCopy())
	}
	slices.SortFunc(sorted, func(a, b *routev1.Route) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
	})
	return sorted
}

func checkWildcard(route *routev1.Route) *refusal {
	switch route.Spec.WildcardPolicy {
	case routev1.WildcardPolicyNone, "":
		return nil
	case routev1.WildcardPolicySubdomain:
		return &refusal{reasonNotAdmitted, "wildcard routes are not allowed"}
	default:
		return &refusal{reasonNotAdmitted, fmt.Sprintf("unknown wildcard policy %v", route.Spec.WildcardPolicy)}
	}
}

func checkHost(route *routev1.Route) *refusal {
	host := route.Spec.Host
	if host == "" {
		return &refusal{reasonNoHost, "no host value was defined for the route"}
	}
	path := field.NewPath("spec", "host")
	var errs field.ErrorList
	for _, message := range utilvalidation.IsDNS1123Subdomain(host) {
		errs = append(errs, field.Invalid(path, host, message))
	}
	for label := range strings.SplitSeq(host, ".") {
		for _, message := range utilvalidation.IsDNS1123Label(label) {
			errs = append(errs, field.Invalid(path, host, message))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		messages = append(messages, err.Error())
	}
	return &refusal{reasonInvalidHost, "host name validation errors: " + strings.Join(messages, ", ")}
}

// claim enters a Route into the claims of its host, unless an older Route stands in its way.
func claim(route *routev1.Route, claims map[string][]*routev1.Route) *refusal {
	host := route.Spec.Host
	holders := claims[host]
	switch {
	case len(holders) == 0:
	case holders[0].Namespace != route.Namespace:
		return &refusal{reasonHostClaimed, fmt.Sprintf("a route in another namespace holds %s and is older than %s", host, route.Name)}
	case slices.ContainsFunc(holders, func(holder *routev1.Route) bool { return excludes(holder, route) }):
		return &refusal{reasonHostClaimed, fmt.Sprintf("route %s already exposes %s and is older", holders[0].Name, host)}
	}
	claims[host] = append(holders, route)
	return nil
}

// excludes tells whether two Routes of a namespace cannot share their host: what arrives must be told apart by its
// path, which the router does not see where TLS passes through.
func excludes(holder, route *routev1.Route) bool {
	return holder.Spec.Path == route.Spec.Path ||
		holder.Spec.TLS != nil && route.Spec.TLS != nil && holder.Spec.TLS.Termination == routev1.TLSTerminationPassthrough
}

// readCertificate puts the certificate of the Secret that a Route names into the Route.
func readCertificate(route *routev1.Route, secrets secretReader) *refusal {
	if route.Spec.TLS == nil || route.Spec.TLS.ExternalCertificate == nil || route.Spec.TLS.ExternalCertificate.Name == "" {
		return nil
	}
	name := route.Spec.TLS.ExternalCertificate.Name
	path := field.NewPath("spec", "tls", "externalCertificate")
	secret, missingVerbs := secrets(route.Namespace, name)
	var errs field.ErrorList
	for _, verb := range missingVerbs {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("router serviceaccount does not have permission to %s this secret", verb)))
	}
	switch {
	case secret == nil:
		errs = append(errs, field.NotFound(path, fmt.Sprintf("secrets %q not found", name)))
	case secret.Type != corev1.SecretTypeTLS:
		errs = append(errs, field.Invalid(path, name, fmt.Sprintf("secret of type %q required", corev1.SecretTypeTLS)))
	}
	if err := errs.ToAggregate(); err != nil {
		return &refusal{reasonExternalCertificate, err.Error()}
	}
	route.Spec.TLS.Certificate = string(secret.Data[corev1.TLSCertKey])
	route.Spec.TLS.Key = string(secret.Data[corev1.TLSPrivateKeyKey])
	return nil
}

// checkTLS finds out what HAProxy could not load.
func checkTLS(route *routev1.Route) *refusal {
	if route.Spec.TLS == nil {
		return nil
	}
	config := route.Spec.TLS
	path := field.NewPath("spec", "tls")
	var errs field.ErrorList
	if config.Certificate != "" {
		if _, err := cert.ParseCertsPEM([]byte(config.Certificate)); err != nil {
			errs = append(errs, field.Invalid(path.Child("certificate"), "redacted certificate data", err.Error()))
		} else if err := checkKey(config); err != nil {
			errs = append(errs, field.Invalid(path.Child("key"), "redacted key data", err.Error()))
		}
	}
	if config.DestinationCACertificate != "" {
		if _, err := cert.ParseCertsPEM([]byte(config.DestinationCACertificate)); err != nil {
			errs = append(errs, field.Invalid(path.Child("destinationCACertificate"), "redacted destination ca certificate data",
				fmt.Sprintf("failed to parse destination CA certificate: %v", err)))
		}
	}
	if err := errs.ToAggregate(); err != nil {
		return &refusal{reasonInvalidTLS, err.Error()}
	}
	return nil
}

// checkKey tells what is wrong with a key.
func checkKey(config *routev1.TLSConfig) error {
	if config.Key == "" {
		return errors.New("no key specified")
	}
	_, err := tls.X509KeyPair([]byte(config.Certificate), []byte(config.Key))
	return err
}
