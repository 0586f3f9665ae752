package confinement

import (
	"context"
	"os"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/backends/testdata/tunnel"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// tunnelOperator installs the kind of the made-up backend, and returns a client with the operator's permissions for it,
// confined by the common policies and by the one for the content.
func tunnelOperator(t *testing.T, w *apiserver.World) client.Client {
	t.Helper()
	const dir = "../../internal/exposure/backends/testdata/tunnel/"
	_, err := envtest.InstallCRDs(apiserver.Config(t), envtest.CRDInstallOptions{Paths: []string{dir + "crd.yaml"}, ErrorIfPathMissing: true})
	w.Expect(err).NotTo(HaveOccurred())
	list := backends.List{tunnel.Backend()}
	create := func(o client.Object) {
		t.Helper()
		w.Expect(w.Create(t.Context(), o)).To(Succeed())
		t.Cleanup(func() { w.Expect(w.Delete(context.Background(), o)).To(Succeed()) })
	}
	policies, err := load(list)
	w.Expect(err).NotTo(HaveOccurred())
	policies = slices.DeleteFunc(policies, func(p *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
		return p.Name != "listener-operator.metadata" && p.Name != "listener-operator.ownership"
	})
	content := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	raw, err := os.ReadFile(dir + "policy.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(yaml.UnmarshalStrict(raw, content)).To(Succeed())
	for _, policy := range append(policies, content) {
		bound := bind(policy, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "uid"})
		bound.Policy.Name += ".tunnel"
		bound.Binding.Name, bound.Binding.Spec.PolicyName = bound.Policy.Name, bound.Policy.Name
		create(bound.Policy)
		create(bound.Binding)
	}
	generated, _ := list.Permissions()
	rules := append(generated, rbacv1.PolicyRule{ // of any Listener's objects
		APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners/finalizers"}, Verbs: []string{"update"},
	})
	create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tunnels"}, Rules: rules})
	create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tunnels"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tunnels"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: names.Operator}},
	})
	config := apiserver.Config(t)
	config.Impersonate.UserName = "system:serviceaccount:" + w.Namespace + ":" + names.Operator
	operator, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	w.Expect(err).NotTo(HaveOccurred())
	for _, c := range []client.Client{w, operator} {
		w.Expect(list.AddToScheme(c.Scheme())).To(Succeed())
	}
	return operator
}

// What a stolen token may write by a backend follows from what the backend declares, and a policy of its own for the
// content.
func TestABackendThatIsAddedIsConfined(t *testing.T) {
	w := apiserver.NewWorld(t)
	operator := tunnelOperator(t, w)
	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid"}}
	newTunnel := func(name string) *tunnel.Tunnel {
		o := &tunnel.Tunnel{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: exposure.Labels(listener, nil)},
			Spec:       tunnel.Spec{Host: "web.example.com", ServiceName: "web"},
		}
		exposure.SetOwner(o, listener)
		return o
	}
	w.Eventually(func() error { return operator.Create(t.Context(), newTunnel("denied"), client.DryRunAll) }).Should(Succeed(), "its permissions")
	other := newTunnel("other")
	other.OwnerReferences, other.Labels = nil, nil
	w.Expect(w.Create(t.Context(), other)).To(Succeed())
	toShop, ofAnother, annotated, takenOver := newTunnel("new"), newTunnel("new"), newTunnel("new"), newTunnel("other")
	toShop.Spec.ServiceName = "shop"
	ofAnother.OwnerReferences = append(ofAnother.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"})
	annotated.Annotations = map[string]string{"example.com/a": "b"}
	takenOver.ResourceVersion = other.ResourceVersion
	create := func(o *tunnel.Tunnel) func() error {
		return func() error {
			return operator.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
		}
	}
	for name, tc := range map[string]struct {
		write func() error
		want  string
	}{
		"to another Service": {create(toShop), "no Tunnels but those of a Listener"},
		"of another owner":   {create(ofAnother), "no other owners than those of its kind"},
		"with an annotation": {create(annotated), "no annotations but its own"},
		"that exists, taken over": {func() error {
			return operator.Patch(t.Context(), takenOver.DeepCopyObject().(client.Object), client.MergeFrom(other), client.DryRunAll)
		}, "what belongs to no Listener"},
		"that exists, deleted": {func() error { return operator.Delete(t.Context(), other, client.DryRunAll) }, "what belongs to no Listener"},
	} {
		t.Run(name, func(t *testing.T) {
			// A policy takes effect a moment after it was created.
			NewWithT(t).Eventually(tc.write, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring(tc.want)))
		})
	}
}
