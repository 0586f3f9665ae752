package apiserver_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestEachTestHasItsOwnNamespace(t *testing.T) {
	if first, second := apiserver.Namespace(t), apiserver.Namespace(t); first == second {
		t.Errorf("both are %s", first)
	}
}

func TestManagerReadsFromItsCache(t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t), Name: names.CertificateAuthorityConfigMap}}
	check.Must(t, apiserver.Client(t).Create(t.Context(), config))
	mgr := apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		_, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		return err
	})
	if err := mgr.GetClient().Get(t.Context(), client.ObjectKeyFromObject(config), &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
}
