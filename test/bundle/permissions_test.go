package bundle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// rulesOf returns the RBAC rules of each ServiceAccount.
func rulesOf(all []operatorsv1alpha1.StrategyDeploymentPermissions) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, p := range all {
		rules[p.ServiceAccountName] = append(rules[p.ServiceAccountName], p.Rules...)
	}
	return rules
}

func TestPermissionsAreThoseOfConfig(t *testing.T) {
	namespaced, cluster := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, name := range []string{"operator.yaml", "node-agent.yaml"} {
		data, err := os.ReadFile(root + "config/rbac/" + name)
		check.Must(t, err)
		data = bytes.ReplaceAll(data, []byte("listener-operator:latest"), []byte(csv(t).Annotations["containerImage"]))
		rules := map[string][]rbacv1.PolicyRule{} // by kind and name of a role
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
		for {
			var o struct { // a role, or a binding
				metav1.TypeMeta
				Metadata metav1.ObjectMeta
				Rules    []rbacv1.PolicyRule
				RoleRef  rbacv1.RoleRef
				Subjects []rbacv1.Subject
			}
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("parsing %s: %v", name, err)
			}
			rules[o.Kind+o.Metadata.Name] = o.Rules
			for _, subject := range o.Subjects {
				granted := cluster
				if o.Kind == "RoleBinding" {
					granted = namespaced
				}
				granted[subject.Name] = append(granted[subject.Name], rules[o.RoleRef.Kind+o.RoleRef.Name]...)
			}
		}
	}
	strategy := csv(t).Spec.InstallStrategy.StrategySpec
	if diff := cmp.Diff(namespaced, rulesOf(strategy.Permissions)); diff != "" {
		t.Errorf("permissions in the namespace; run make bundle (-config +bundle):\n%s", diff)
	}
	if diff := cmp.Diff(cluster, rulesOf(strategy.ClusterPermissions)); diff != "" {
		t.Errorf("permissions in the cluster; run make bundle (-config +bundle):\n%s", diff)
	}
}

func TestRolesForUsersAreThoseOfConfig(t *testing.T) {
	data, err := os.ReadFile(root + "config/rbac/users.yaml")
	check.Must(t, err)
	want, got := map[string]any{}, map[string]any{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		role := &unstructured.Unstructured{}
		check.Must(t, sigsyaml.Unmarshal([]byte(document), role))
		want[role.GetName()] = role.Object
	}
	for _, o := range load(t).Objects {
		if o.GetKind() == "ClusterRole" {
			got[o.GetName()] = o.Object
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("roles for users; run make bundle (-config +bundle):\n%s", diff)
	}
}

// Administrators write classes, and only the operator writes PodListeners.
func TestUsersGetNoPermissionToWriteClassesAndPodListeners(t *testing.T) {
	got := map[string][]string{} // verbs by role and resource
	for _, o := range load(t).Objects {
		if o.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role))
		for label, value := range role.Labels {
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					key := label + "=" + value + " " + resource
					got[key] = append(got[key], rule.Verbs...)
				}
			}
		}
	}
	read := []string{"get", "list", "watch"}
	const to = "rbac.authorization.k8s.io/aggregate-to-"
	want := map[string][]string{
		to + "view=true listenerclasses": read, to + "view=true listeners": read, to + "view=true podlisteners": read,
		to + "view=true podcertificaterequests": read,
		to + "edit=true listeners":              {"create", "update", "patch", "delete", "deletecollection"},
	}
	check.Equal(t, "permissions of users", want, got)
}

func TestNoExcessivePermissions(t *testing.T) {
	strategy := csv(t).Spec.InstallStrategy.StrategySpec
	for _, p := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		for _, r := range p.Rules {
			for _, word := range slices.Concat(r.APIGroups, r.Resources, r.ResourceNames, r.Verbs, r.NonResourceURLs) {
				if strings.Contains(word, "*") {
					t.Errorf("%s has a rule with a wildcard: %v", p.ServiceAccountName, r)
				}
			}
			for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
				if slices.Contains(r.Verbs, verb) {
					t.Errorf("%s may %s: %v", p.ServiceAccountName, verb, r)
				}
			}
			onlyReadsNamed := len(r.ResourceNames) > 0 && !slices.ContainsFunc(r.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			if slices.Contains(r.Resources, "customresourcedefinitions") && !onlyReadsNamed {
				t.Errorf("%s may do more than read named CRDs: %v", p.ServiceAccountName, r)
			}
			// In its own namespace only, and by the permission of a Role.
			authorities := slices.Equal(r.ResourceNames, []string{"listener-operator-certificate-authorities"})
			if slices.Contains(r.Resources, "secrets") && (!authorities || !slices.ContainsFunc(strategy.Permissions, hasRule(r))) {
				t.Errorf("%s has a rule for secrets: %v", p.ServiceAccountName, r)
			}
			for _, resource := range []string{
				"nodes/proxy", "pods/exec", "serviceaccounts/token",
				"roles", "rolebindings", "clusterroles", "clusterrolebindings",
			} {
				if slices.Contains(r.Resources, resource) {
					t.Errorf("%s has a rule for %s: %v", p.ServiceAccountName, resource, r)
				}
			}
		}
	}
}

// hasRule returns whether permissions have a rule.
func hasRule(rule rbacv1.PolicyRule) func(operatorsv1alpha1.StrategyDeploymentPermissions) bool {
	return func(p operatorsv1alpha1.StrategyDeploymentPermissions) bool {
		return slices.ContainsFunc(p.Rules, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, rule) })
	}
}

func TestNodeAgentMayOnlyReadPodListeners(t *testing.T) {
	strategy := csv(t).Spec.InstallStrategy.StrategySpec
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"listeners.stackable.tech"}, Resources: []string{"podlisteners"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"}, ResourceNames: []string{agent}, Verbs: []string{"use"}},
	}
	check.Equal(t, "permissions of the node agent in the cluster", want, rulesOf(strategy.ClusterPermissions)[agent])
	if rules := rulesOf(strategy.Permissions)[agent]; len(rules) > 0 {
		t.Errorf("permissions of the node agent in its namespace: %v", rules)
	}
}
