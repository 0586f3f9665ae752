//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// TestGetShowsWhereListenersAreReached: kubectl get shows the address with its port, the reason, the Pod and its node.
// A Listener whose Pods are scaled away says that its address is reserved.
func TestGetShowsWhereListenersAreReached(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	pod := s.awaitReady("web-0")
	own := s.awaitPodListener(pod, "listener").IngressAddresses[0]
	// The server has two ports; "echo" sorts before "http".
	address := fmt.Sprintf("%s:%d +1", own.Address, own.Ports["echo"])
	rows := s.kubectl("get", "lsn", "-o", "wide", "-l", "apps.kubernetes.io/pod-index=0")
	expectFields(t, rows, "listener-web-0", address, "True", "AddressesAssigned", class.Name, "web-0", pod.Spec.NodeName)
	expectFields(t, s.kubectl("get", "podlsn"), "web-0", pod.Spec.NodeName, "listener="+address)
	expectFields(t, s.kubectl("get", "listener-operator"), "listener.listeners.stackable.tech/listener-web-0", "listeneroperator.listener-operator.dev/cluster")
	expectFields(t, s.kubectl("get", "lsnop"), "cluster")
	explained := strings.Join(s.kubectl("explain", "listener.spec.extraPodSelectorLabels"), " ")
	if text := strings.Join(strings.Fields(explained), " "); !strings.Contains(text, "in addition to mounting a volume of this Listener. A Listener with more than 64 is not accepted. Defaults to none.") {
		t.Errorf("kubectl explain: %s", explained)
	}

	s.patch(set, func() { set.Spec.Replicas = new(int32) })
	s.awaitCondition("listener-web-0", listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonReserved)
	expectFields(t, s.kubectl("get", "lsn"), "listener-web-0", address, "True", "Reserved")
	var replicas int32 = 1
	s.get(set, s.key("web"))
	s.patch(set, func() { set.Spec.Replicas = &replicas })
	s.awaitCondition("listener-web-0", listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned)
}

// TestTheSamplesRun: kubectl applies all samples as they are, each server has its own address, and the configuration of
// the operator stays as the administrator has left it. Before, the quick start does the same by its own commands.
func TestTheSamplesRun(t *testing.T) {
	t.Parallel()
	t.Run("the quick start", quickStart)
	s := newScenario(t)
	before := &operatorv1alpha1.ListenerOperator{}
	s.get(before, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
	s.kubectl("apply", "-k", "../../config/samples")
	defer s.kubectl("delete", "-k", "../../config/samples", "--ignore-not-found")
	for i := range 3 {
		p := s.awaitReady(fmt.Sprintf("web-%d", i))
		own := s.awaitPodListener(p, "listener").IngressAddresses[0]
		if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
			got, err := request(ctx, own, "/default-address/address")
			if err == nil && strings.TrimSpace(got) != own.Address {
				err = fmt.Errorf("the server has the address %q, want %q", got, own.Address)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if shared := s.awaitPodListener(p, "shared"); len(shared.IngressAddresses) == 0 {
			t.Errorf("%s has no address that it shares", p.Name)
		}
	}
	after := &operatorv1alpha1.ListenerOperator{}
	s.get(after, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
	if after.UID != before.UID || after.Generation != before.Generation || after.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("the configuration was %+v and is %+v", before, after)
	}
}

// expectFields checks that each of these texts is in some line of a table.
func expectFields(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) }) {
			t.Errorf("no line has %q:\n%s", text, strings.Join(lines, "\n"))
		}
	}
}

// kubectl runs kubectl in the namespace of the scenario, and returns the lines of its output.
func (s *scenario) kubectl(args ...string) []string {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, testbed.Kubectl(), append([]string{"--kubeconfig", testbed.Kubeconfig(), "-n", s.namespace}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	s.Logf("kubectl %s:\n%s", strings.Join(args, " "), output)
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

// TestMistakesShowOnThePod: what keeps a claim from being provisioned is an event of the Pod, too.
func TestMistakesShowOnThePod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.create(pod("missing", map[string]map[string]string{"listener": byClass(s.namespace)}))
	t.Logf("event: %s", s.awaitEvent("Pod", "missing", listenersv1alpha1.ReasonClassNotFound, s.namespace))
	s.create(pod("misspelled", map[string]map[string]string{"listener": {"listener.stackable.tech/listener-class": s.namespace}}))
	t.Logf("event: %s", s.awaitEvent("Pod", "misspelled", listenersv1alpha1.ReasonInvalidClaim, "did you mean", names.AnnotationListenerClass))
	s.create(pod("elsewhere", map[string]map[string]string{"listener": byName("shop/web")}))
	t.Logf("event: %s", s.awaitEvent("Pod", "elsewhere", listenersv1alpha1.ReasonInvalidName, "name alone"))
}

// TestAPodThatCannotReachTheNodeOfItsVolumeSaysWhatToDo: the scheduler only names a node affinity conflict.
func TestAPodThatCannotReachTheNodeOfItsVolumeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	set := statefulSet("db", 1, byClass(class.Name))
	s.create(set)
	node := s.awaitReady("db-0").Spec.NodeName
	s.get(set, s.key("db"))
	s.patch(set, func() { set.Spec.Template.Spec.Affinity = notOn(node) })
	t.Logf("event: %s", s.awaitEvent("Pod", "db-0", listenersv1alpha1.ReasonPinnedToNode, node, "listener-db-0", names.AnnotationRelease))
}

// TestSilentMistakesAreReported: the class of a bound claim, and a Listener that is deleted under its Pods.
func TestSilentMistakesAreReported(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(statefulSet("web", 1, byClass(class.Name)))
	s.awaitReady("web-0")
	var pvc corev1.PersistentVolumeClaim
	s.get(&pvc, s.key("listener-web-0"))
	s.patch(&pvc, func() { pvc.Annotations[names.AnnotationListenerClass] = "other" })
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "listener-web-0", listenersv1alpha1.ReasonSelectorChanged, class.Name))

	shared := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class.Name, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}},
	}
	s.create(shared)
	s.create(pod("client", map[string]map[string]string{"listener": byName("shared")}))
	s.awaitReady("client")
	s.remove(shared)
	t.Logf("event: %s", s.awaitEvent("Pod", "client", listenersv1alpha1.ReasonListenerNotFound, "shared"))
}
