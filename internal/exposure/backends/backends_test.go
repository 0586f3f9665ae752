package backends_test

import (
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

func TestBackendNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, backend := range backends.All() {
		name := backend.Name
		if name == "" || seen[name] {
			t.Errorf("%T has the name %q, which is empty or taken", backend, name)
		}
		seen[name] = true
	}
}

func TestLastBackendIsThePlainServiceAndExposesEveryClass(t *testing.T) {
	all := backends.All()
	for i, backend := range all {
		last := i == len(all)-1
		if got := backend.PlainService; got != last {
			t.Errorf("backend %s: PlainService is %t, want %t", backend.Name, got, last)
		}
		if got := backend.Exposes(&listenersv1alpha1.ListenerClass{}); got != last {
			t.Errorf("backend %s: Exposes is %t for a class that asks for no backend, want %t", backend.Name, got, last)
		}
	}
}
