package platform_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestOperatorRoleAllowsToWatchTheCRDsAndAPIServicesOfOptionalKindsOnly(t *testing.T) {
	want := map[string][]string{}
	for _, o := range append(platform.Kinds(), backends.All().OptionalKinds()...) {
		if o.BuiltIn {
			continue
		}
		want["customresourcedefinitions"] = append(want["customresourcedefinitions"], o.Resource+"."+o.Group)
		if o.Aggregated {
			want["apiservices"] = append(want["apiservices"], o.Version+"."+o.Group)
		}
	}
	raw, err := os.ReadFile("../../config/rbac/operator.yaml")
	check.Must(t, err)
	got := map[string][]string{}
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		check.Must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			if resource := rule.Resources[0]; slices.Contains([]string{"customresourcedefinitions", "apiservices"}, resource) &&
				slices.Contains(rule.Verbs, "watch") {
				got[resource] = append(got[resource], rule.ResourceNames...)
			}
		}
	}
	check.Equal(t, "resource names in the role", want, got, cmpopts.SortSlices(strings.Compare))
}
