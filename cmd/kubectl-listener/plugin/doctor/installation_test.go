package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
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
	for account, needed := range map[string][]authorizationv1.ResourceAttributes{
		names.Operator: operatorPermissions, names.NodeAgent: append(agentPermissions, sccPermission),
	} {
		for _, p := range needed {
			resource, _ := strings.CutSuffix(p.Resource+"/"+p.Subresource, "/")
			if !slices.ContainsFunc(rules[account], func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, p.Group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, p.Verb) &&
					(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, p.Name))
			}) {
				t.Errorf("config/rbac does not give %s the permission %+v", account, p)
			}
		}
	}
}
