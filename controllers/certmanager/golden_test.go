package certmanager

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// TestWrittenCertificate compares with a golden file, which the test of the policies that confine the operator reads.
func TestWrittenCertificate(t *testing.T) {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("listeneroperators.listener-operator.dev")
	crd.SetUID("uid")
	c := fakeclient.New(t, interceptor.Funcs{}, crd)
	r := &Reconciler{APIReader: c, Applier: apply.New(c, names.FieldManagerOperator)}
	key := types.NamespacedName{Namespace: "default", Name: "shop-listener-tls"}
	members := []member{listener("a", 1, issuer("x"), "192.0.2.1", "shop.example")}
	if err := r.apply(t.Context(), key, members, nil); err != nil || members[0].problem != "" {
		t.Fatal(members[0].problem, err)
	}
	certificate := apply.Object(names.KindCertificate, key)
	check.Must(t, c.Get(t.Context(), key, certificate))
	certificate.SetResourceVersion("")
	certificate.SetManagedFields(nil)
	golden.Compare(t, "certificate", certificate)
}
