// Package backends is the list of the ways in which Listeners are reached. A backend is added here, and nowhere else in
// the code.
package backends

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/exposure/service"
)

// All returns the backends. The first one that exposes a class is that of its Listeners.
func All() []exposure.Backend {
	return []exposure.Backend{
		route.Backend{},
		service.Backend{}, // exposes every class
	}
}

// AddToScheme registers the types of the kinds that the backends generate.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, b := range All() {
		if err := b.AddToScheme(scheme); err != nil {
			return fmt.Errorf("registering the kinds of %T: %w", b, err)
		}
	}
	return nil
}
