// Package backends is the list of the backends that expose Listeners.
//
// To add a backend, write a package beside this one that returns an exposure.Backend, add it to All, and add the field
// by which a ListenerClass asks for it to package listenersv1alpha1. Package perport does most of the work of a backend
// that generates an object for each port. The kinds that a backend generates or reads are registered, discovered and
// watched. What it generates needs rules in config/rbac/operator.yaml, a policy that states its content in
// controllers/confinement/policies, a sample in config/samples and a page in docs.
package backends

import (
	"fmt"
	"slices"

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
	for _, backend := range l {
		for _, kind := range backend.Kinds() {
			if slices.ContainsFunc(kinds, func(k platform.OptionalKind) bool {
				return k.GroupVersionKind == kind.GroupVersionKind
			}) {
				continue
			}
			kinds = append(kinds, platform.OptionalKind{
				GroupVersionKind: kind.GroupVersionKind, OtherVersions: kind.OtherVersions, Resource: kind.Resource,
				Aggregated: kind.Aggregated, BuiltIn: kind.BuiltIn,
			})
		}
	}
	return kinds
}
