package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
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

// TestADefinitionThatIsNotEstablishedIsReported without an API server, which establishes each definition at once.
func TestADefinitionThatIsNotEstablishedIsReported(t *testing.T) {
	const name = "listeners.listeners.stackable.tech"
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[apiextensionsv1.ConditionStatus]check.State{
		apiextensionsv1.ConditionTrue: check.OK, apiextensionsv1.ConditionFalse: check.Failed,
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: status},
			}},
		}).Build()
		d := &doctor{Examination: &check.Examination{Client: c}}
		f := d.definition(t.Context(), check.Finding{Kind: "CustomResourceDefinition", Name: name}, "v1alpha1")
		if f.State != want || want == check.Failed && f.Message != "is not established" {
			t.Errorf("established %s: %s: %s, want %s", status, f.State, f.Message, want)
		}
	}
}
