package plugin_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/backends/testdata/tunnel"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The commands show the objects of a backend, and say what its reasons mean, by what it declares.
func TestABackendThatIsAddedIsShown(t *testing.T) {
	crd := envtest.CRDInstallOptions{
		Paths: []string{"../../../internal/exposure/backends/testdata/tunnel/crd.yaml"}, ErrorIfPathMissing: true,
	}
	all := slices.Concat(backends.List{tunnel.Backend()}, backends.All())
	w := newWorld(t)
	check.Must(t, all.AddToScheme(w.Scheme()))
	w.class.Spec = listenersv1alpha1.ListenerClassSpec{
		ServiceType:        listenersv1alpha1.ServiceTypeClusterIP,
		ServiceAnnotations: map[string]string{tunnel.Annotation: "{listener}.{namespace}.example.com"},
	}
	w.update(t, w.class)
	shows := func(command string, words ...string) {
		t.Helper()
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		c := plugin.NewCommand(streams, all)
		c.SetArgs(append(strings.Fields(command), "--kubeconfig", kubeconfig(t, apiserver.Config(t)),
			"--cache-dir", t.TempDir(), "--namespace", w.namespace))
		err := c.ExecuteContext(t.Context())
		for _, word := range words {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%s does not show %q: %v\n%s", command, word, err, out)
			}
		}
	}

	shows("doctor", w.class.Name, "needs Tunnels, and the cluster does not serve tunnels.example.com/v1")
	_, err := envtest.InstallCRDs(apiserver.Config(t), crd)
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, envtest.UninstallCRDs(apiserver.Config(t), crd)) })
	shows("why listener/web", "Tunnel", "none belongs to Listener web")

	w.create(t, &tunnel.Tunnel{
		TypeMeta: metav1.TypeMeta{APIVersion: tunnel.GroupVersion.String(), Kind: "Tunnel"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "web-http",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(w.listener, listenersv1alpha1.GroupVersion.WithKind("Listener")),
			},
		},
	})
	shows("why listener/web", "exposed by Tunnel", "Tunnel "+w.namespace+"/web-http", "No step is wrong")
	shows("map --output svg", ">Tunnel<")
	for reason, words := range map[string]string{
		reasons.Foreign("Tunnel"):    "delete the Tunnel that the message names",
		reasons.Rejected("Tunnel"):   "correct what the API server rejects",
		reasons.WaitingFor("Tunnel"): "ask an administrator whether the controller for the Tunnel runs",
	} {
		condition := newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, reason)
		w.notReady(t, condition)
		shows("why listener/web", condition.Message, words)
	}
}
