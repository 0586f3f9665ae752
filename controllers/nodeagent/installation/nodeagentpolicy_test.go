package installation

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// agentOn returns a client that impersonates the identity of a token of the node agent's Pod on a node, or of a token
// that is not bound to a node if node is "".
func agentOn(t *testing.T, namespace, node string) client.Client {
	t.Helper()
	config := apiserver.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + names.NodeAgent,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	if node != "" {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// permitEverything gives the node agent all permissions in the API group, far more than its ClusterRole, so that only
// the policy restricts it.
func permitEverything(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "everything-" + namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: names.NodeAgent}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// mustApply applies a component as it is installed in a namespace.
func mustApply(t *testing.T, c client.Client, component Component, namespace string) {
	t.Helper()
	s := testSettings()
	s.Namespace = namespace
	desired, err := component.Desired(newConfig(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply.New(c, names.FieldManagerOperator).Apply(t.Context(), desired, nil); err != nil {
		t.Fatal(err)
	}
}

// hint returns what a node agent creates for a Pod.
func hint(namespace, node, uid string) *listenersv1alpha1.PodListeners {
	return listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: namespace, Name: "web-0"}, types.UID(uid), node)
}

// Messages of denials.
const (
	onlyCreate = "a node agent may only create PodListeners"
	otherNode  = "of the node that its token is bound to"
	notEmpty   = "must leave spec.listeners empty"
	wrongName  = "PodListeners are named pod-<uid>"
	finalizer  = "must not set finalizers"
)

func denied(err error, message string) bool {
	return err != nil && strings.Contains(err.Error(), message)
}

// confined returns an administrator's client and the operator's namespace, once the policy is enforced.
func confined(t *testing.T) (admin client.Client, namespace string) {
	t.Helper()
	admin, namespace = apiserver.Client(t), apiserver.Namespace(t)
	permitEverything(t, admin, namespace)
	for _, c := range Components() {
		if strings.HasPrefix(c.Kind, "ValidatingAdmissionPolicy") {
			mustApply(t, admin, c, namespace)
		}
	}
	agent := agentOn(t, namespace, "node-a")
	// It takes a moment until the API server enforces a new policy, and grants new permissions.
	NewWithT(t).Eventually(func() error {
		return agent.Create(t.Context(), hint(namespace, "node-b", "probe"), client.DryRunAll)
	}, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring(otherNode)))
	return admin, namespace
}

func TestNodeAgentAnnouncesMountsOnItsNodeOnly(t *testing.T) {
	_, namespace := confined(t)
	for name, tc := range map[string]struct {
		node   string // the token's; "none" for no node
		change func(*listenersv1alpha1.PodListeners)
		want   string // "" for allowed
	}{
		"its own node":                     {},
		"another node":                     {change: func(p *listenersv1alpha1.PodListeners) { p.Spec.NodeName = "node-b" }, want: otherNode},
		"no node":                          {change: func(p *listenersv1alpha1.PodListeners) { p.Spec.NodeName = "" }, want: otherNode},
		"a token that is bound to no node": {node: "none", want: otherNode},
		"no node, and a token that is bound to no node": {
			node: "none", change: func(p *listenersv1alpha1.PodListeners) { p.Spec.NodeName = "" }, want: otherNode,
		},
		"addresses": {
			change: func(p *listenersv1alpha1.PodListeners) {
				p.Spec.Listeners["data"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeCluster}
			}, want: notEmpty,
		},
		"another name":              {change: func(p *listenersv1alpha1.PodListeners) { p.Name = "pod-other" }, want: wrongName},
		"a generated name":          {change: func(p *listenersv1alpha1.PodListeners) { p.GenerateName, p.Name = p.Name, "" }, want: wrongName},
		"no owner":                  {change: func(p *listenersv1alpha1.PodListeners) { p.OwnerReferences = nil }, want: wrongName},
		"another owner":             {change: func(p *listenersv1alpha1.PodListeners) { p.OwnerReferences[0].Kind = "Node" }, want: wrongName},
		"an owner of another group": {change: func(p *listenersv1alpha1.PodListeners) { p.OwnerReferences[0].APIVersion = "example.com/v1" }, want: wrongName},
		"two owners": {
			change: func(p *listenersv1alpha1.PodListeners) {
				p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "other"})
			}, want: wrongName,
		},
		"a finalizer": {change: func(p *listenersv1alpha1.PodListeners) { p.Finalizers = []string{"example.com/stay"} }, want: finalizer},
	} {
		t.Run("creating with "+name, func(t *testing.T) {
			node := map[string]string{"": "node-a", "none": ""}[tc.node]
			object := hint(namespace, "node-a", "1")
			if tc.change != nil {
				tc.change(object)
			}
			err := agentOn(t, namespace, node).Create(t.Context(), object, client.DryRunAll)
			if tc.want == "" && err != nil || tc.want != "" && !denied(err, tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestNodeAgentWritesNothingElse(t *testing.T) {
	admin, namespace := confined(t)
	agent := agentOn(t, namespace, "node-a")
	own := hint(namespace, "node-a", "2")
	if err := agent.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: ptr.To("c")}}
	if err := admin.Create(t.Context(), listener); err != nil {
		t.Fatal(err)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"serviceName":"other"}}`))
	for name, write := range map[string]func() error{
		"updating its own": func() error { return agent.Update(t.Context(), own.DeepCopy()) },
		"patching its own": func() error { return agent.Patch(t.Context(), own.DeepCopy(), label) },
		"deleting its own": func() error { return agent.Delete(t.Context(), own.DeepCopy()) },
		"deleting all": func() error {
			return agent.DeleteAllOf(t.Context(), &listenersv1alpha1.PodListeners{}, client.InNamespace(namespace))
		},
		"creating a Listener": func() error {
			return agent.Create(t.Context(), &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
		},
		"patching a Listener":          func() error { return agent.Patch(t.Context(), listener.DeepCopy(), label) },
		"patching a Listener's status": func() error { return agent.Status().Patch(t.Context(), listener.DeepCopy(), status) },
		"creating a ListenerClass": func() error {
			return agent.Create(t.Context(), &listenersv1alpha1.ListenerClass{
				ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := write(); !denied(err, onlyCreate) {
				t.Errorf("error is %v, want %q", err, onlyCreate)
			}
		})
	}
	t.Run("others are not confined", func(t *testing.T) {
		if err := admin.Patch(t.Context(), own.DeepCopy(), label); err != nil {
			t.Error(err)
		}
		if err := agentOn(t, "elsewhere", "node-a").Get(t.Context(), client.ObjectKeyFromObject(own), own); err == nil {
			t.Error("a ServiceAccount of this name in another namespace has permissions")
		}
	})
}
