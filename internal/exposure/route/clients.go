package route

import (
	"fmt"
	"net/netip"
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// clientAnnotations are those by which OpenShift's router restricts the clients of a Route: the current one, and the
// one that earlier routers know.
func clientAnnotations() []string {
	return []string{"haproxy.router.openshift.io/ip_allowlist", "haproxy.router.openshift.io/ip_whitelist"}
}

// clientsOf returns these annotations for a Route of the Listener. A list in which a router finds anything else than
// ranges, each after a single space, restricts nobody.
func clientsOf(l *exposure.Listener) map[string]string {
	clients, _ := exposure.AllowedClients(l.Class, l.Listener) // a refused Listener gets no Routes
	if len(clients) == 0 {
		return nil
	}
	annotations := map[string]string{}
	for _, annotation := range clientAnnotations() {
		annotations[annotation] = strings.Join(exposure.FormatClients(clients), " ")
	}
	return annotations
}

// clientsProblem returns why Routes would not restrict clients, or "".
func clientsProblem(l *exposure.Listener, _ *corev1ac.ServiceApplyConfiguration, _ []netip.Prefix) string {
	for _, annotation := range clientAnnotations() {
		if _, ok := l.Class.Spec.Route.Annotations[annotation]; ok {
			return fmt.Sprintf("spec.route.annotations of ListenerClass %s has %s, which is the same for all Listeners; use spec.allowedClients of the class instead",
				l.Class.Name, annotation)
		}
	}
	return ""
}
