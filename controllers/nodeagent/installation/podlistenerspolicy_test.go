package installation

import (
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// userWith returns a client that impersonates a user with all permissions in the listeners API group, far more than the
// user has, so that only the policy restricts it.
func userWith(w *apiserver.World, user string) client.Client {
	w.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	w.Expect(w.Create(w.Context(), role)).To(Succeed())
	w.Expect(w.Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})).To(Succeed())
	config := apiserver.Config(w)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	w.Expect(err).NotTo(HaveOccurred())
	w.Eventually(func() error { return c.List(w.Context(), &listenersv1alpha1.PodListenersList{}) }).Should(Succeed())
	return c
}

// installPolicy applies a policy, and its binding, as they are installed in a namespace.
func installPolicy(w *apiserver.World, name string) {
	w.Helper()
	s := testSettings()
	s.Namespace = w.Namespace
	for _, c := range Components() {
		if c.Name == name {
			desired, err := c.Desired(newConfig(), s)
			w.Expect(err).NotTo(HaveOccurred())
			_, err = apply.New(w.Client, names.FieldManagerOperator).Apply(w.Context(), desired, nil)
			w.Expect(err).NotTo(HaveOccurred())
		}
	}
}

func newPodListeners(namespace, uid string) *listenersv1alpha1.PodListeners {
	return listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: namespace, Name: "web-0"}, types.UID(uid), "node-1")
}

// Messages of denials.
const (
	mayNotCreate = "only the listener operator may create PodListeners"
	mayNotChange = "only the listener operator may change PodListeners"
	mayNotDelete = "may delete PodListeners"
	mayNotStatus = "may change the status of a Listener"
	mayNotNumber = "may set the annotation listener-operator.dev/numbers"
)

// denied reports whether err has the message of a denial.
func denied(err error, message string) bool {
	return err != nil && strings.Contains(err.Error(), message)
}

func TestOnlyTheOperatorWritesPodListenersAndStatus(t *testing.T) {
	w := apiserver.NewWorld(t)
	installPolicy(w, names.PodListenersPolicy)
	namespace := w.Namespace
	serviceAccount := func(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	operator := userWith(w, serviceAccount(namespace, names.Operator))
	// It takes a moment until the API server enforces a new policy, and grants new permissions.
	probe := func(c client.Client) func() error {
		return func() error { return c.Create(t.Context(), newPodListeners(namespace, "probe"), client.DryRunAll) }
	}
	w.Eventually(probe(w.Client)).Should(MatchError(ContainSubstring(mayNotCreate)))
	w.Eventually(probe(operator)).Should(Succeed())

	existing := newPodListeners(namespace, "1")
	w.Expect(operator.Create(t.Context(), existing)).To(Succeed())
	patch := func(c client.Client, patch string) error {
		return c.Patch(t.Context(), existing.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	update := func(c client.Client, change func(*listenersv1alpha1.PodListeners)) error {
		updated := existing.DeepCopy()
		change(updated)
		return c.Update(t.Context(), updated, client.DryRunAll)
	}
	applied := func(c client.Client, uid string, listeners map[string]any) error {
		content := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"listeners": listeners}}}
		content.SetGroupVersionKind(listenersv1alpha1.GroupVersion.WithKind("PodListeners"))
		content.SetNamespace(namespace)
		content.SetName(listenersv1alpha1.PodListenersName(types.UID(uid)))
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(content), client.FieldOwner("tenant"), client.ForceOwnership, client.DryRunAll)
	}
	annotated := func(name, value string) *listenersv1alpha1.Listener {
		return &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{names.AnnotationNumbers: value}}}
	}
	listener := annotated("web", "{}")
	w.Expect(w.Create(t.Context(), listener)).To(Succeed())
	listener.Status = &listenersv1alpha1.ListenerStatus{KeptClassName: "public", IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	w.Expect(operator.Status().Update(t.Context(), listener)).To(Succeed())
	patchStatus := func(c client.Client, patch string) error {
		return c.Status().Patch(t.Context(), listener.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	annotate := func(c client.Client, value string) error {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"listener-operator.dev/numbers":%s,"a":"b"}}}`, value)
		return c.Patch(t.Context(), listener.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	other := listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeCluster}
	type want struct{ create, change, same, delete, status, number string } // messages of denials, "" for allowed
	others := want{mayNotCreate, mayNotChange, "", mayNotDelete, mayNotStatus, mayNotNumber}
	for name, tc := range map[string]struct {
		user string // "" for an administrator of the cluster
		want want
	}{
		"the operator":             {serviceAccount(namespace, names.Operator), want{}},
		"the garbage collector":    {serviceAccount("kube-system", "generic-garbage-collector"), want{}},
		"the namespace controller": {serviceAccount("kube-system", "namespace-controller"), want{}},
		"an administrator":         {"", want{mayNotCreate, mayNotChange, "", "", "", ""}},
		"an editor":                {"editor", others},
		"a node agent":             {serviceAccount(namespace, names.NodeAgent), others},
		"an operator elsewhere":    {serviceAccount("elsewhere", names.Operator), others},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.Client
			if tc.user != "" {
				c = userWith(w, tc.user)
			}
			for _, request := range []struct {
				name, want string
				err        error
			}{
				{"create", tc.want.create, c.Create(t.Context(), newPodListeners(namespace, "2"), client.DryRunAll)},
				{"create by apply", tc.want.create, applied(c, "2", map[string]any{})},
				{"change by apply", tc.want.change, applied(c, "1", map[string]any{"data": map[string]any{"scope": "Cluster"}})},
				{"patch of spec", tc.want.change, patch(c, `{"spec":{"listeners":{"data":{"scope":"Cluster"}}}}`)},
				{"patch of labels", tc.want.change, patch(c, `{"metadata":{"labels":{"a":"b"}}}`)},
				{"patch of annotations", tc.want.change, patch(c, `{"metadata":{"annotations":{"a":"b"}}}`)},
				{"patch of finalizers", tc.want.change, patch(c, `{"metadata":{"finalizers":["example.com/x"]}}`)},
				{"patch of owners", tc.want.change, patch(c, `{"metadata":{"ownerReferences":null}}`)},
				{"update of spec", tc.want.change, update(c, func(p *listenersv1alpha1.PodListeners) { p.Spec.Listeners["data"] = other })},
				{"update without a change", tc.want.same, update(c, func(*listenersv1alpha1.PodListeners) {})},
				{"status of a Listener", tc.want.status, patchStatus(c, `{"status":{"keptClassName":"secret"}}`)},
				{"status of a Listener with port numbers", tc.want.status, patchStatus(c, `{"status":{"lastNodePorts":{"http":30080},"sharedPorts":{"http":9000}}}`)},
				{"removal of the status of a Listener", tc.want.status, patchStatus(c, `{"status":null}`)},
				{"the same status of a Listener", tc.want.same, patchStatus(c, `{"status":{"keptClassName":"public"}}`)},
				{"numbers of a Listener", tc.want.number, annotate(c, `"{\"nodePorts\":{\"http\":30080}}"`)},
				{"the same numbers of a Listener", tc.want.same, annotate(c, `"{}"`)},
				{"removal of the numbers of a Listener", "", annotate(c, "null")},
				{"a new Listener with numbers", tc.want.number, c.Create(t.Context(), annotated("restored", "{}"), client.DryRunAll)},
				{"a new Listener", "", c.Create(t.Context(), annotated("new", ""), client.DryRunAll)},
				{"spec of a Listener", "", c.Patch(t.Context(), listener.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"className":"a"}}`)), client.DryRunAll)},
				{"delete", tc.want.delete, c.Delete(t.Context(), existing.DeepCopy(), client.DryRunAll)},
				{"delete all", tc.want.delete, c.DeleteAllOf(t.Context(), &listenersv1alpha1.PodListeners{}, client.InNamespace(namespace), client.DryRunAll)},
			} {
				if request.want == "" && request.err != nil || request.want != "" && !denied(request.err, request.want) {
					t.Errorf("%s: error is %v, want %q", request.name, request.err, request.want)
				}
			}
		})
	}
}
