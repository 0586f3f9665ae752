package nodeagent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// image is the image for which installRBAC gives permission.
const image = "listener-operator:test"

// installRBAC creates the RBAC objects of config/rbac for an operator and its agents in this namespace.
func installRBAC(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	for _, file := range []string{"operator.yaml", "node-agent.yaml"} {
		raw, err := os.ReadFile("../../config/rbac/" + file)
		if err != nil {
			t.Fatal(err)
		}
		manifests := strings.NewReplacer("namespace: listener-operator", "namespace: "+namespace, "listener-operator:latest", image).Replace(string(raw))
		for document := range strings.SplitSeq(manifests, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), object); err != nil {
				t.Fatal(err)
			}
			switch object.GetKind() {
			case "ClusterRole":
			case "ClusterRoleBinding":
				object.SetName(object.GetName() + "-" + namespace)
			default:
				object.SetNamespace(namespace)
			}
			if err := c.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil { // ClusterRoles exist since an earlier test
				t.Fatal(err)
			}
		}
	}
}

// cached reads as an administrator, because the manager's cache does not get single objects, and writes with the
// operator's permissions.
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

// reconcilerWithRBAC returns a Reconciler with the permissions of the operator.
func reconcilerWithRBAC(operator, admin client.Client, namespace string) *Reconciler {
	r := reconciler(&cached{Client: operator, cache: admin}, namespace)
	r.apiReader = operator
	return r
}

// asOperator returns a client with a token of the operator in a namespace. It waits until its permissions take effect.
func asOperator(t *testing.T, admin *rest.Config, namespace string) client.Client {
	t.Helper()
	c, err := client.New(apiserver.WithToken(t, admin, namespace, names.Operator), client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() error {
		return errors.Join(c.List(t.Context(), &corev1.PodList{}), client.IgnoreNotFound(c.Get(t.Context(),
			client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, &appsv1.DaemonSet{})))
	}, apiserver.Timeout, "20ms").Should(Succeed())
	return c
}

// TestOperatorPermissionsSuffice uses the permissions that the operator is installed with, the policies that confine
// it, and OwnerReferencesPermissionEnforcement, as on OpenShift.
func TestOperatorPermissionsSuffice(t *testing.T) {
	admin, namespace := fresh(t)
	installRBAC(t, admin, namespace)
	c := asOperator(t, apiserver.Config(t), namespace)
	confine(t, c, admin)
	if err := (&Reconciler{Client: c, apiReader: c, Namespace: namespace}).createConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := reconcilerWithRBAC(c, admin, namespace)
	installed := mustReconcile(t, r)
	if err := admin.Delete(t.Context(), installed); err != nil {
		t.Fatal(err)
	}
	for range requiredCount() + 1 {
		config := &operatorv1alpha1.ListenerOperator{}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(installed), config); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		agents := &appsv1.DaemonSet{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.NodeAgent}, agents); err == nil && agents.DeletionTimestamp != nil {
			collectGarbage(t, admin, agents)
		}
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(installed), installed); !apierrors.IsNotFound(err) {
		t.Errorf("reading the configuration returns %v, want not found", err)
	}
}
