package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// TestDoctorChecksPermissionsThatTheOperatorHas compares the list with config/rbac.
func TestDoctorChecksPermissionsThatTheOperatorHas(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for account, file := range map[string]string{names.Operator: "operator.yaml", names.NodeAgent: "node-agent.yaml"} {
		raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal([]byte(document), role); err == nil && role.Kind == "ClusterRole" {
				rules[account] = append(rules[account], role.Rules...)
			}
		}
	}
	for _, p := range append(neededPermissions(), sccPermission()) {
		resource, _ := strings.CutSuffix(p.resource+"/"+p.subresource, "/")
		if !slices.ContainsFunc(rules[p.account], func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, p.group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, p.verb) &&
				(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, p.name))
		}) {
			t.Errorf("config/rbac does not give %s the permission %+v", p.account, p)
		}
	}
}
