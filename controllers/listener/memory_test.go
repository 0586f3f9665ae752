package listener

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// Everybody can create objects of these kinds, also some that seem to be those of a Listener.
func TestObjectsOfBackendsCostLittleMemory(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := backends.All().AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	k := &observe.Kinds{Scheme: scheme}
	all := map[string]*exposure.Kind{}
	for _, backend := range backends.All() {
		for _, kind := range backend.Kinds() {
			all[kind.Kind] = kind
		}
	}
	for _, kind := range all {
		keep := func(o client.Object) any {
			kept, err := trimForeign(kind)(o)
			if err != nil {
				t.Fatal(err)
			}
			return kept
		}
		for _, owner := range []string{"Listener", "Other"} {
			t.Run(fmt.Sprint(kind.Kind, " of ", owner), func(t *testing.T) {
				growth.CheckMemory(t, 1<<20, keep, func() client.Object {
					o := k.NewObject(kind)
					o.SetOwnerReferences([]metav1.OwnerReference{{Kind: owner, Name: "web", Controller: ptr.To(true)}})
					return o
				})
			})
		}
	}
}
