//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster/operators"
)

// cloudNativePGUser is the user of the servers by default.
const cloudNativePGUser = 26

// CloudNativePG hands annotations of its Cluster on to Pods, which get a volume by them. A client outside the cluster
// writes to the primary server and reads from each instance, at its own address, which stays when another instance is
// promoted, and when the operator replaces the Pods, and is gone with the Cluster.
func TestOperatorOfCloudNativePG(t *testing.T) {
	s := newOperatorScenario(t, operators.CloudNativePG, "ghcr.io/cloudnative-pg/postgresql:15", postgreSQLImage)
	s.provideDisks(cloudNativePGUser, "orders-1", "orders-2", "orders-3")
	s.enableInjection()
	s.optIn()
	s.applyOperatorRecipe("cloudnative-pg")
	s.shell("kubectl wait --for condition=Ready --timeout 10m cluster/orders")
	listeners := ownListeners("orders-", 4)[1:] // they are numbered from 1 on
	var pods []*corev1.Pod
	for _, listener := range listeners {
		pods = append(pods, s.awaitReady(strings.TrimSuffix(listener, "-listener")))
	}
	login, authority := s.secretOf("orders-app"), filepath.Join(t.TempDir(), "ca.crt")
	s.must(os.WriteFile(authority, s.secretOf("orders-ca")["ca.crt"], 0o600))
	p := &postgreSQL{
		scenario: s, login: fmt.Sprintf("%s:%s", login["username"], login["password"]), database: string(login["dbname"]),
		sslMode: "verify-ca&sslrootcert=" + authority,
		endpoints: func() map[string]string {
			endpoints := map[string]string{}
			for _, listener := range listeners {
				endpoint, err := s.endpoints(listener, "postgresql")
				s.must(err)
				endpoints[strings.TrimSuffix(listener, "-listener")] = endpoint
			}
			return endpoints
		},
		primary: s.primaryInstance,
	}
	p.use("at first", 3)

	before := s.nodePorts("postgresql", listeners...)
	s.restart(p.primary())
	p.use("after the primary server was deleted", 3)

	for i := range pods {
		pods[i] = s.awaitReady(pods[i].Name)
	}
	s.shell(`kubectl annotate cluster orders kubectl.kubernetes.io/restartedAt="$(date)" --overwrite`)
	for _, pod := range pods {
		s.awaitReady(pod.Name, pod)
	}
	if diff := cmp.Diff(before, s.nodePorts("postgresql", listeners...)); diff != "" {
		t.Errorf("node ports (-before +after the operator replaced the Pods):\n%s", diff)
	}
	p.use("after the operator replaced the Pods", 3)

	s.shell("kubectl delete cluster orders")
	for _, listener := range listeners {
		mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key(listener))
	}
}

// primaryInstance returns the name of the Pod that CloudNativePG has labeled as the primary server, or none while it
// promotes another.
func (s *scenario) primaryInstance() string {
	s.Helper()
	var pods corev1.PodList
	s.must(api.List(s.ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{"cnpg.io/instanceRole": "primary"}))
	if len(pods.Items) == 0 {
		return ""
	}
	return pods.Items[0].Name
}
