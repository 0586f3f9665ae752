package router

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/cert"
)

// Identity distinguishes a router from the other routers of a cluster. On OpenShift it is an IngressController.
type Identity struct {
	// Name is the router's name in the status of Routes.
	Name string
	// Domain is appended to spec.subdomain for the host of a Route without spec.host. If it is empty, such Routes get
	// no host.
	Domain string
	// CanonicalHostname is a name that host names of Routes may be aliases of. It may be empty.
	CanonicalHostname string
	// Shard selects the Routes of the router by their labels. Nil selects all.
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

// rejection is the reason why a router does not admit a Route, with the same text as the platform's router.
type rejection struct {
	reason, message string
}

// decision is the result of admission for a Route of the router's shard.
type decision struct {
	// route is the Route with the host of this router, and with the certificate of the Secret that it refers to.
	route *routev1.Route
	// rejection is nil if the Route is admitted.
	rejection *rejection
}

// secretReader returns a Secret, or nil if it does not exist, and the verbs for which the platform's router has no
// permission.
type secretReader func(namespace, name string) (secret *corev1.Secret, missingVerbs []string)

// admit decides which Routes of the router's shard are admitted, the oldest first. It follows the platform's router
// with its default settings: a host belongs to the namespace of its oldest Route, even if that Route is rejected for
// another reason, and wildcards are not allowed.
func admit(id Identity, routes []routev1.Route, secrets secretReader) []decision {
	var decisions []decision
	claims := map[string][]*routev1.Route{}
	for _, route := range byAge(routes) {
		if id.Shard != nil && !id.Shard.Matches(labels.Set(route.Labels)) {
			continue
		}
		if route.Spec.Host == "" && route.Spec.Subdomain != "" && id.Domain != "" {
			route.Spec.Host = route.Spec.Subdomain + "." + id.Domain
		}
		decisions = append(decisions, decision{route: route, rejection: decide(id, route, claims, secrets)})
	}
	return decisions
}

// rejections are the Routes that were rejected for their Secrets, by uid, as they were then.
type rejections map[types.UID]remembered

type remembered struct {
	route     *routev1.Route
	rejection *rejection
}

// remember replaces decisions about Secrets by earlier ones about the same version of a Route: the platform's router
// looks at a Secret again when the Route changes, or after half an hour. A change of the status does not count.
func (r rejections) remember(decisions []decision, routes []routev1.Route) {
	given := map[types.UID]*routev1.Route{}
	for i := range routes {
		given[routes[i].UID] = &routes[i]
	}
	maps.DeleteFunc(r, func(uid types.UID, _ remembered) bool { return given[uid] == nil })
	for i := range decisions {
		d, uid := &decisions[i], decisions[i].route.UID
		last, ok := r[uid]
		concernsSecret := d.rejection == nil || d.rejection.reason == reasonExternalCertificate || d.rejection.reason == reasonInvalidTLS
		if ok && concernsSecret && sameVersion(last.route, given[uid]) {
			d.rejection = last.rejection
		}
		delete(r, uid)
		if usesSecret(d.route) && d.rejection != nil && concernsSecret {
			r[uid] = remembered{given[uid], d.rejection}
		}
	}
}

// sameVersion reports whether only the status of a Route has changed.
func sameVersion(before, after *routev1.Route) bool {
	return equality.Semantic.DeepEqual(before.Spec, after.Spec) && maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations)
}

// usesSecret reports whether a Route refers to a Secret with its certificate.
func usesSecret(route *routev1.Route) bool {
	return route.Spec.TLS != nil && route.Spec.TLS.ExternalCertificate != nil && route.Spec.TLS.ExternalCertificate.Name != ""
}

// decide runs the checks of the platform's router in the same order.
func decide(id Identity, route *routev1.Route, claims map[string][]*routev1.Route, secrets secretReader) *rejection {
	if r := checkWildcard(route); r != nil {
		return r
	}
	if r := checkHost(route); r != nil {
		return r
	}
	if r := claim(id, route, claims); r != nil {
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

func checkWildcard(route *routev1.Route) *rejection {
	switch route.Spec.WildcardPolicy {
	case routev1.WildcardPolicyNone, "":
		return nil
	case routev1.WildcardPolicySubdomain:
		return &rejection{reasonNotAdmitted, "wildcard routes are not allowed"}
	default:
		return &rejection{reasonNotAdmitted, fmt.Sprintf("unknown wildcard policy %v", route.Spec.WildcardPolicy)}
	}
}

func checkHost(route *routev1.Route) *rejection {
	host := route.Spec.Host
	if host == "" {
		return &rejection{reasonNoHost, "no host value was defined for the route"}
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
	return &rejection{reasonInvalidHost, "host name validation errors: " + strings.Join(messages, ", ")}
}

// claim adds a Route to the claims of its host, unless it conflicts with an older Route. One that was admitted before
// is replaced by the older one, which then has just got the host.
func claim(id Identity, route *routev1.Route, claims map[string][]*routev1.Route) *rejection {
	host := route.Spec.Host
	holders := claims[host]
	message := ""
	switch {
	case len(holders) == 0:
	case holders[0].Namespace != route.Namespace:
		message = fmt.Sprintf("a route in another namespace holds %s and is older than %s", host, route.Name)
	case slices.ContainsFunc(holders, func(holder *routev1.Route) bool { return conflicts(holder, route) }):
		message = fmt.Sprintf("route %s already exposes %s and is older", holders[0].Name, host)
	}
	if message == "" {
		claims[host] = append(holders, route)
		return nil
	}
	if replaced := "replaced by older route " + holders[0].Name; hadHost(id, route, replaced) {
		message = replaced
	}
	return &rejection{reasonHostClaimed, message}
}

// hadHost reports whether the router admitted the Route with its host, or rejected it last with the message.
func hadHost(id Identity, route *routev1.Route, message string) bool {
	return slices.ContainsFunc(route.Status.Ingress, func(e routev1.RouteIngress) bool {
		return e.RouterName == id.Name && e.Host == route.Spec.Host && slices.ContainsFunc(e.Conditions, func(c routev1.RouteIngressCondition) bool {
			return c.Type == routev1.RouteAdmitted && (c.Status == corev1.ConditionTrue || c.Message == message)
		})
	})
}

// conflicts reports whether two Routes of a namespace cannot share their host: they must differ by path, which the
// router cannot read if TLS is passed through.
func conflicts(holder, route *routev1.Route) bool {
	return holder.Spec.Path == route.Spec.Path ||
		holder.Spec.TLS != nil && route.Spec.TLS != nil && holder.Spec.TLS.Termination == routev1.TLSTerminationPassthrough
}

// readCertificate copies the certificate of the Secret that a Route refers to into the Route.
func readCertificate(route *routev1.Route, secrets secretReader) *rejection {
	if !usesSecret(route) {
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
		return &rejection{reasonExternalCertificate, err.Error()}
	}
	route.Spec.TLS.Certificate = string(secret.Data[corev1.TLSCertKey])
	route.Spec.TLS.Key = string(secret.Data[corev1.TLSPrivateKeyKey])
	return nil
}

// checkTLS rejects what HAProxy cannot load.
func checkTLS(route *routev1.Route) *rejection {
	if route.Spec.TLS == nil {
		return nil
	}
	config := route.Spec.TLS
	path := field.NewPath("spec", "tls")
	var errs field.ErrorList
	if config.Certificate != "" {
		if _, err := cert.ParseCertsPEM([]byte(config.Certificate)); err != nil {
			errs = append(errs, field.Invalid(path.Child("certificate"), "redacted certificate data", err.Error()))
		}
		if err := checkKey(config); err != nil {
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
		return &rejection{reasonInvalidTLS, err.Error()}
	}
	return nil
}

// checkKey returns an error if the key does not belong to the certificate.
func checkKey(config *routev1.TLSConfig) error {
	if config.Key == "" {
		return errors.New("no key specified")
	}
	_, err := tls.X509KeyPair([]byte(config.Certificate), []byte(config.Key))
	return err
}
