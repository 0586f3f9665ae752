// Package operator gives tests the operator as it is installed: its permissions of config/rbac, a token of it, and the
// policies that confine it. The operator is alone on an API server, so its tests share one, one after the other.
//
// Only tests may import it.
package operator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// Image is the image of the node agents for which the operator has permission.
const Image = "listener-operator:test"

// World is an API server for a test with gomega's assertions, and a namespace for the operator. Its client is that of
// an administrator.
type World struct {
	*testing.T
	gomega.Gomega
	client.Client
	Namespace string
	Config    *rest.Config
}

// NewWorld returns a World on the API server of an administrator's configuration, without the objects of the previous
// test. Eventually is within apiserver.Timeout.
func NewWorld(t *testing.T, admin *rest.Config) *World {
	t.Helper()
	w := &World{T: t, Gomega: gomega.NewWithT(t), Config: admin}
	w.SetDefaultEventuallyTimeout(apiserver.Timeout)
	w.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	w.Client, err = client.New(admin, client.Options{Scheme: apiserver.Scheme()})
	w.must(err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.must(w.Create(t.Context(), namespace))
	w.Namespace = namespace.Name
	Clean(t, w.Client, w.Namespace)
	return w
}

// Clean deletes the objects of the previous test, most of which are cluster-scoped, and prepares a namespace for the
// operator.
func Clean(t testing.TB, c client.Client, namespace string) {
	t.Helper()
	config := &operatorv1alpha1.ListenerOperator{}
	config.Name = operatorv1alpha1.ListenerOperatorName
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	policies, err := confinement.Policies(metav1.OwnerReference{})
	check.Must(t, errors.Join(err, client.IgnoreNotFound(c.Patch(t.Context(), config, release))))
	leftovers := []client.Object{config}
	for _, p := range policies {
		leftovers = append(leftovers, p.Policy, p.Binding)
	}
	for _, component := range installation.Components() {
		if object := component.Empty(); component.Optional.Empty() && !component.Namespaced {
			object.SetName(component.Name)
			leftovers = append(leftovers, object)
		}
	}
	for _, o := range leftovers {
		check.Must(t, client.IgnoreNotFound(c.Delete(t.Context(), o)))
	}
	// It is part of the operator's manifests.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.NodeAgent}}
	check.Must(t, c.Create(t.Context(), account))
}

func (w *World) must(err error) {
	w.Helper()
	check.Must(w, err)
}

// InstallRBAC creates the RBAC objects of config/rbac for an operator and its agents in the namespace.
func (w *World) InstallRBAC() {
	w.Helper()
	root, err := checkout.Root()
	w.must(err)
	for _, file := range []string{"operator.yaml", "node-agent.yaml"} {
		raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", file))
		w.must(err)
		manifests := strings.NewReplacer("namespace: listener-operator", "namespace: "+w.Namespace,
			"listener-operator:latest", Image).Replace(string(raw))
		for document := range strings.SplitSeq(manifests, "\n---\n") {
			object := Object(w, document)
			switch object.GetKind() {
			case "ClusterRole":
			case "ClusterRoleBinding":
				object.SetName(object.GetName() + "-" + w.Namespace)
			default:
				object.SetNamespace(w.Namespace)
			}
			// ClusterRoles exist since an earlier test.
			w.must(client.IgnoreAlreadyExists(w.Create(w.Context(), object)))
		}
	}
}

// Token returns the configuration of a client with a token of the operator.
func (w *World) Token() *rest.Config {
	w.Helper()
	return apiserver.WithToken(w, w.Config, w.Namespace, names.Operator)
}

// Operator installs the RBAC objects, and returns a client with a token of the operator when its permissions are in
// effect.
func (w *World) Operator() client.Client {
	w.Helper()
	w.InstallRBAC()
	c, err := client.New(w.Token(), client.Options{Scheme: apiserver.Scheme()})
	w.must(err)
	w.Eventually(func() error {
		return errors.Join(c.List(w.Context(), &corev1.PodList{}), client.IgnoreNotFound(c.Get(w.Context(),
			client.ObjectKey{Namespace: w.Namespace, Name: names.NodeAgent}, &appsv1.DaemonSet{})))
	}).Should(gomega.Succeed())
	return c
}

// ConfinedOperator is Operator with the policies that confine it in effect.
func (w *World) ConfinedOperator() client.Client {
	w.Helper()
	c := w.Operator()
	w.Confine(c)
	return c
}

// Confine creates the policies that confine the operator, with its permissions, and waits until they are in effect.
func (w *World) Confine(operator client.Client) {
	w.Helper()
	confined := func(manifest string) func() bool {
		return func() bool {
			err := operator.Create(w.Context(), Object(w, manifest), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "the listener operator may")
		}
	}
	manifests := []string{
		`{apiVersion: v1, kind: Service, metadata: {namespace: default, name: web}, spec: {ports: [{port: 80}]}}`,
		`{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: default, name: web},
  spec: {ports: []}}`,
	}
	for _, manifest := range manifests { // the API server may still enforce the policies of the previous test
		w.Eventually(confined(manifest)).Should(gomega.BeFalse(), manifest)
	}
	c := &confinement.Reconciler{Client: Cached(operator, w.Client), APIReader: operator}
	_, err := c.Reconcile(w.Context(), reconcile.Request{})
	w.must(err)
	for _, manifest := range manifests {
		w.Eventually(confined(manifest)).Should(gomega.BeTrue(), manifest)
	}
}

// Grant gives the operator one more permission.
func (w *World) Grant(rule rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "granted-"},
		Rules: []rbacv1.PolicyRule{rule}}
	w.must(w.Create(w.Context(), role))
	w.must(w.Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: names.Operator}},
	}))
}

// Object parses YAML.
func Object(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), o); err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}
	return o
}

// Cached returns a client that reads with cache, as an administrator, because the manager's cache does not get single
// objects, and writes with the permissions of c.
func Cached(c client.Client, cache client.Reader) client.Client { return &cached{c, cache} }

type cached struct {
	client.Client
	cache client.Reader
}

func (c *cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, o, options...)
}

func (c *cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cache.List(ctx, list, options...)
}
