package command

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// AWS's controllers have a resource of this name.
func TestAKindOfAnotherGroupDoesNotStandInTheWay(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "elbv2.services.k8s.aws", Version: "v1alpha1", Kind: "Listener"}, meta.RESTScopeNamespace)
	e := &Environment{from: "gathered"}
	for _, given := range []string{"listener", "Listener", "listeners"} {
		kinds, err := e.only(fake.NewClientBuilder().WithRESTMapper(mapper).Build(), given, []Kind{KindPod, KindClaim, KindListener})
		if err != nil || len(kinds) != 1 || kinds[0] != KindListener {
			t.Errorf("%s: %v, %v", given, kinds, err)
		}
	}
}
