//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// pinnedUntilLost creates a class whose volumes leave a lost node within seconds, instead of the one of a recipe, and
// returns what to replace in the recipe.
func (s *scenario) pinnedUntilLost() (from, to string) {
	s.Helper()
	class := s.createClass(pinnedBy(listenersv1alpha1.Pinning{
		Policy: listenersv1alpha1.PinningPolicyRequired, ReleaseAfter: &metav1.Duration{Duration: 15 * time.Second},
	}))
	return names.AnnotationListenerClass + ": stable-node", names.AnnotationListenerClass + ": " + class.Name
}

// shell runs a command of a recipe's page in the scenario's namespace.
func (s *scenario) shell(command string) {
	s.Helper()
	config, err := os.ReadFile(testbed.Kubeconfig())
	s.must(err)
	own := filepath.Join(s.TempDir(), "kubeconfig")
	s.must(os.WriteFile(own, config, 0o600))
	command = "kubectl config set-context --current --namespace " + s.namespace + "\n" + command
	cmd := exec.CommandContext(s.timeoutContext(), "sh", "-euc", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+own, "PATH="+filepath.Dir(testbed.Kubectl())+":"+os.Getenv("PATH"))
	output, err := cmd.CombinedOutput()
	s.Logf("$ %s\n%s", command, output)
	if err != nil {
		s.Fatalf("running %s: %v", command, err)
	}
}

// endpointsOf returns the address and the port of each replica of a StatefulSet, from its Listener, by the name of the
// Pod.
func (s *scenario) endpointsOf(set, port string) map[string]string {
	s.Helper()
	var listeners listenersv1alpha1.ListenerList
	s.must(api.List(s.ctx, &listeners, client.InNamespace(s.namespace), client.MatchingLabels{"app": set}))
	endpoints := map[string]string{}
	for i := range listeners.Items {
		l := &listeners.Items[i]
		if l.Status != nil && l.Status.Endpoints[port] != "" {
			endpoints[l.Labels[appsv1.StatefulSetPodNameLabel]] = l.Status.Endpoints[port]
		}
	}
	return endpoints
}

// rollingRestart restarts the replicas of a StatefulSet as a user does, and checks that they have the same addresses.
func (s *scenario) rollingRestart(set, port string) {
	s.Helper()
	before := s.endpointsOf(set, port)
	s.shell(fmt.Sprintf("kubectl rollout restart statefulset/%[1]s && kubectl rollout status statefulset/%[1]s", set))
	if diff := cmp.Diff(before, s.endpointsOf(set, port)); diff != "" {
		s.Errorf("addresses (-before +after the restart):\n%s", diff)
	}
}

// awaitRemoved waits until a replica is gone with its claims, and so with its Listener and Service, as the retention
// policy of a recipe says.
func (s *scenario) awaitRemoved(pod string) {
	s.Helper()
	mustAwaitDeleted(s, &corev1.Pod{}, s.key(pod))
	for _, claim := range []string{"listener-" + pod, "data-" + pod} {
		mustAwaitDeleted(s, &corev1.PersistentVolumeClaim{}, s.key(claim))
	}
	mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key("listener-"+pod))
	mustAwaitDeleted(s, &corev1.Service{}, s.key("listener-"+pod))
}

// podsOn returns the Pods of a StatefulSet on a node.
func (s *scenario) podsOn(node int, set string) []*corev1.Pod {
	s.Helper()
	var pods corev1.PodList
	s.must(api.List(s.ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{"app": set}))
	var found []*corev1.Pod
	for i := range pods.Items {
		if nodeOf(&pods.Items[i]) == node {
			found = append(found, &pods.Items[i])
		}
	}
	if len(found) == 0 {
		s.Fatalf("no Pod runs on node %d", node)
	}
	return found
}

// loseNode deletes a node for good, and waits until the Pods of a StatefulSet that ran there are ready on others: at
// another address, with the same port. Nothing else may have changed.
func (s *scenario) loseNode(node int, deleteNode func() error, set, port string) {
	s.Helper()
	lost, before := s.podsOn(node, set), s.endpointsOf(set, port)
	s.must(deleteNode())
	var moved []string
	for _, pod := range lost {
		s.awaitReady(pod.Name, pod)
		moved = append(moved, pod.Name)
	}
	s.Logf("these Pods have moved: %q", moved)
	after := s.endpointsOf(set, port)
	for name := range before {
		oldHost, oldPort, _ := net.SplitHostPort(before[name])
		newHost, newPort, _ := net.SplitHostPort(after[name])
		if oldPort != newPort || (oldHost != newHost) != slices.Contains(moved, name) {
			s.Errorf("the address of %s was %s and is %s", name, before[name], after[name])
		}
	}
}
