//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/pages"
)

// quickStart runs the commands of docs/quick-start.md as they are, except for the first block, which installs the
// operator. Requests are sent from outside of the cluster; each is answered with its own address, before and after the
// restart.
func quickStart(t *testing.T) {
	s := newScenario(t)
	bin, requests := t.TempDir(), filepath.Join(t.TempDir(), "requests")
	for name, script := range map[string]string{
		"kubectl": "exec " + testbed.Kubectl() + " --kubeconfig " + testbed.Kubeconfig() + " --namespace " + s.namespace + ` "$@"`,
		"curl":    `echo "$1" >> ` + requests,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	blocks := 0
	for _, b := range pages.Blocks(t, "sh") {
		if b.Page != "docs/quick-start.md" {
			continue
		}
		if blocks++; blocks == 1 {
			continue
		}
		cmd := exec.CommandContext(s.timeoutContext(), "bash", "-ec", b.Text)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s", b.Page, b.Line, err, out)
		}
		t.Logf("%s\n%s", b.Text, out)
		raw, err := os.ReadFile(requests)
		if os.IsNotExist(err) {
			continue
		}
		url := strings.TrimSpace(string(raw))
		if err := os.Remove(requests); err != nil {
			t.Fatal(err)
		}
		if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
			got, err := fetch(ctx, externalClient, url)
			if err == nil && !strings.HasPrefix(url, "http://"+got+":") {
				t.Errorf("%s is answered with %q", url, got)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if blocks < 6 {
		t.Errorf("the page has %d blocks", blocks)
	}
}
