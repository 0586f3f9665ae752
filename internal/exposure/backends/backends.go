// Package backends is the list of the backends that expose Listeners.
//
// To add a backend, write a package beside this one that returns an exposure.Backend, and add it to All. Package
// perport does most of the work of a backend that generates an object for each port. The kinds that it generates or
// reads are registered, discovered, watched and permitted. CONTRIBUTING.md has a list of all that is left to write.
package backends

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/gateway"
	"github.com/listener-operator/listener-operator/internal/exposure/hostport"
	"github.com/listener-operator/listener-operator/internal/exposure/ingress"
	"github.com/listener-operator/listener-operator/internal/exposure/podaddresses"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/exposure/serviceaddresses"
	"github.com/listener-operator/listener-operator/internal/platform"
)

// List is a list of backends. The first one that exposes a class is the backend of its Listeners.
type List []*exposure.Backend

func All() List {
	return List{
		route.Backend(),
		ingress.Backend(),
		gateway.Backend(listenersv1alpha1.GatewayRouteKindTLS),
		gateway.Backend(listenersv1alpha1.GatewayRouteKindHTTP),
		gateway.Backend(listenersv1alpha1.GatewayRouteKindTCP),
		gateway.Backend(listenersv1alpha1.GatewayRouteKindUDP),
		hostport.Backend(),
		podaddresses.Backend(),
		serviceaddresses.Backend(), // exposes every class
	}
}

func (l List) Of(class *listenersv1alpha1.ListenerClass) *exposure.Backend {
	return l[slices.IndexFunc(l, func(b *exposure.Backend) bool { return b.Exposes(class) })]
}

func (l List) AddToScheme(scheme *runtime.Scheme) error {
	for _, backend := range l {
		for _, kind := range backend.Kinds() {
			if err := kind.AddToScheme(scheme); err != nil {
				return fmt.Errorf("registering kind %s of backend %s: %w", kind.Kind, backend.Name, err)
			}
		}
	}
	return nil
}

// OptionalKinds returns the kinds that the backends generate or read, each once, for platform.Watch.
func (l List) OptionalKinds() []platform.OptionalKind {
	var kinds []platform.OptionalKind
	for _, kind := range l.kinds((*exposure.Backend).Kinds) {
		kinds = append(kinds, platform.OptionalKind{
			GroupVersionKind: kind.GroupVersionKind, OtherVersions: kind.OtherVersions, Resource: kind.Resource,
			Aggregated: kind.Aggregated, BuiltIn: kind.BuiltIn,
		})
	}
	return kinds
}

// Generated returns the kinds that the backends generate, each once.
func (l List) Generated() []*exposure.Kind {
	return l.kinds(func(b *exposure.Backend) []*exposure.Kind { return b.Generates })
}

// kinds returns kinds of the backends, each once.
func (l List) kinds(of func(b *exposure.Backend) []*exposure.Kind) (kinds []*exposure.Kind) {
	for _, backend := range l {
		for _, kind := range of(backend) {
			if !slices.ContainsFunc(kinds, func(k *exposure.Kind) bool {
				return k.GroupVersionKind == kind.GroupVersionKind
			}) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// Permissions returns the permissions that the operator needs for the kinds that the backends generate, and for those
// that they read, a rule for each API group.
func (l List) Permissions() (generated, read []rbacv1.PolicyRule) {
	generates := l.Generated()
	reads := slices.DeleteFunc(l.kinds((*exposure.Backend).Kinds), func(kind *exposure.Kind) bool {
		return slices.Contains(generates, kind)
	})
	return permissions(generates, "list", "watch", "create", "patch", "delete"), permissions(reads, "list", "watch")
}

func permissions(kinds []*exposure.Kind, verbs ...string) (rules []rbacv1.PolicyRule) {
	for _, kind := range kinds {
		i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return r.APIGroups[0] == kind.Group })
		if i < 0 {
			i, rules = len(rules), append(rules, rbacv1.PolicyRule{APIGroups: []string{kind.Group}, Verbs: verbs})
		}
		rules[i].Resources = append(rules[i].Resources, kind.Resource)
	}
	return rules
}
