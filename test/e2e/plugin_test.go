//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// TestThePluginRunsInKubectl: kubectl finds the plugin by its name, passes it flags and the kubeconfig, and completes
// its commands.
func TestThePluginRunsInKubectl(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	bin := t.TempDir()
	if err := tools.BuildLocal(s.ctx, "cmd/kubectl-listener", bin, "."); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testbed.Kubectl(), bin+"/kubectl"); err != nil {
		t.Fatal(err)
	}
	complete, err := os.ReadFile("../../cmd/kubectl-listener/kubectl_complete-listener")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin+"/kubectl_complete-listener", complete, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(s.timeoutContext(), bin+"/kubectl", args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+testbed.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		}
		if err != nil {
			t.Fatal(err)
		}
		return string(out), 0
	}

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

	class := s.createClass(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	own := s.awaitPodListener(s.awaitReady("web"), "listener").IngressAddresses[0]
	endpoint := net.JoinHostPort(own.Address, strconv.Itoa(int(own.Ports["http"])))
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
