//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// buildPlugin builds the plugin in a directory, beside kubectl.
func (s *scenario) buildPlugin(dir string) {
	s.Helper()
	s.must(tools.BuildLocal(s.ctx, "cmd/kubectl-listener", dir, "."))
	s.must(os.Symlink(testbed.Kubectl(), filepath.Join(dir, "kubectl")))
}

// plugin builds the plugin, and returns a function that runs kubectl with it. That returns all output and the exit
// status.
func (s *scenario) plugin() func(args ...string) (string, int) {
	s.Helper()
	bin := s.TempDir()
	s.buildPlugin(bin)
	complete, err := os.ReadFile("../../cmd/kubectl-listener/kubectl_complete-listener")
	s.must(err)
	s.must(os.WriteFile(bin+"/kubectl_complete-listener", complete, 0o700)) //nolint:gosec // a program
	return func(args ...string) (string, int) {
		s.Helper()
		cmd := exec.CommandContext(s.timeoutContext(), bin+"/kubectl", args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+testbed.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		}
		s.must(err)
		return string(out), 0
	}
}

// kubectl finds the plugin by its name, passes it flags and the kubeconfig, and completes its commands.
func TestThePluginRunsInKubectl(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	run := s.plugin()

	help, status := run("listener", "--help")
	if status != 0 || !strings.Contains(help, "kubectl listener [command]") {
		t.Errorf("kubectl listener --help: status %d\n%s", status, help)
	}
	if out, _ := run("plugin", "list", "--name-only"); !strings.Contains(out, "kubectl-listener") {
		t.Errorf("kubectl plugin list:\n%s", out)
	}
	if out, status := run("__complete", "listener", "d"); status != 0 || !strings.Contains(out, "doctor") {
		t.Errorf("completion of kubectl listener d: status %d\n%s", status, out)
	}

	_, _, own := s.createReachablePod()
	endpoint := hostPort(own, "http")
	if out, status := run("listener", "get", "--namespace", s.namespace); status != 0 || !strings.Contains(out, "web") || !strings.Contains(out, endpoint) {
		t.Errorf("kubectl listener get: status %d, want a line with %s\n%s", status, endpoint, out)
	}
	out, status := run("listener", "get", "-n", s.namespace, "-o", "json")
	if !json.Valid([]byte(out)) || status != 0 {
		t.Errorf("kubectl listener get -o json: status %d\n%s", status, out)
	}
	if out, status := run("listener", "why", "web", "-n", s.namespace); status != 0 {
		t.Errorf("kubectl listener why: status %d\n%s", status, out)
	}
	if out, status := run("listener", "why", "no-such-pod", "-n", s.namespace); status == 0 {
		t.Errorf("kubectl listener why no-such-pod: status 0\n%s", out)
	}
}

// kubectl get shows the address with its port, the reason, the Pod and its node. A Listener whose Pods are scaled away
// says that its address is reserved.
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
	output, err := kubectl(s.ctx, append([]string{"-n", s.namespace}, args...)...)
	s.must(err)
	s.Logf("kubectl %s:\n%s", strings.Join(args, " "), output)
	return strings.Split(strings.TrimSpace(output), "\n")
}

// The commands of a remedy are those that the users of kubectl have, whatever the object is called. What would change
// something is only tried.
func TestTheCommandsOfRemediesRun(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	run := s.plugin()
	class, p, _ := s.createReachablePod()
	node := p.Spec.NodeName
	commands, arguments := regexp.MustCompile(`kubectl (?:'[^']*'|[^'),.:;]|[,.:;][^\s)])+`), regexp.MustCompile(`'[^']*'|\S+`)
	ran := map[string]bool{}
	for _, section := range reasons.Sections() {
		for _, reason := range section.Reasons {
			namespace := s.namespace
			if section.Title == "The operator" {
				namespace = operatorNamespace
			}
			remedy := strings.NewReplacer("POD", "web", "CLASS", class.Name).Replace(reason.For(namespace, "web-listener", "{node}", node))
			for _, command := range commands.FindAllString(remedy, -1) {
				var args []string
				for _, argument := range arguments.FindAllString(command, -1)[1:] {
					args = append(args, strings.Trim(argument, "'"))
				}
				switch {
				case ran[command]:
					continue
				case slices.Contains([]string{"annotate", "patch", "delete"}, args[0]):
					args = append(args, "--dry-run=server")
				case args[0] == "listener" && !slices.Contains(args, "--namespace"):
					args = append(args, "--namespace", namespace)
				}
				ran[command] = true
				out, status := run(args...)
				// These report by their status what is wrong elsewhere, and release refuses what is in use. Logs may
				// contain any words.
				reports := slices.Contains([]string{"doctor", "migrate", "release"}, args[1]) && args[0] == "listener" && status == 1
				if status != 0 && (!reports || strings.Contains(out, "unknown command") || strings.Contains(out, "unknown flag")) || strings.Contains(out, "Usage:") {
					t.Errorf("%s: %s: status %d\n%s", reason.Name, command, status, out)
				}
			}
		}
	}
	if len(ran) < 10 {
		t.Errorf("only these were found: %v", ran)
	}
}
