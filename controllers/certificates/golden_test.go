package certificates

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// TestWrittenObjects compares with golden files, which the test of the policies that confine the operator reads.
func TestWrittenObjects(t *testing.T) {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("listeneroperators.listener-operator.dev")
	crd.SetUID("uid")
	c := fakeclient.New(t, interceptor.Funcs{}, crd)
	authorities := &Authorities{APIReader: c, Applier: apply.New(c, names.FieldManagerOperator), Namespace: "somewhere"}
	authorities.set(state{roots: certificate.Roots{{Since: time.Unix(0, 0)}}})
	trust := &Trust{Authorities: authorities}
	certificates, err := authorities.trusted("default", "uid")
	check.Must(t, err)
	check.Must(t, trust.applyBundle(t.Context(), "default", certificates, nil))
	check.Must(t, trust.applyConfigMap(t.Context(), "default", certificates, nil))
	check.Must(t, authorities.write(t.Context(), authorities.state().roots, nil))
	for name, o := range map[string]client.Object{
		"secret":             &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "somewhere", Name: names.CertificateAuthoritySecret}},
		"configmap":          &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: names.CertificateAuthorityConfigMap}},
		"clustertrustbundle": &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: names.TrustBundlePrefix + "default"}},
	} {
		kinds, _, err := c.Scheme().ObjectKinds(o)
		check.Must(t, err)
		check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		golden.Compare(t, name, o)
	}
}
