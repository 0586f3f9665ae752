//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/test/pages"
)

// quickStart runs the commands of docs/quick-start.md as they are, except for the first block, which installs the
// operator. Requests are sent from outside the cluster; each is answered with its own address, before and after the
// restart.
func quickStart(t *testing.T) {
	s := newScenario(t)
	bin, requests := t.TempDir(), filepath.Join(t.TempDir(), "requests")
	for name, script := range map[string]string{
		"kubectl": "exec " + testbed.Kubectl() + " --kubeconfig " + testbed.Kubeconfig() + " --namespace " + s.namespace + ` "$@"`,
		"curl":    `echo "$1" >> ` + requests,
	} {
		s.must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // a program
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
		s.must(os.Remove(requests))
		s.eventually(func(ctx context.Context) error {
			got, err := fetch(ctx, externalClient, url)
			if err == nil && !strings.HasPrefix(url, "http://"+got+":") {
				t.Errorf("%s is answered with %q", url, got)
			}
			return err
		})
	}
	if blocks < 6 {
		t.Errorf("the page has %d blocks", blocks)
	}
}

// kubectl applies all samples as they are, each server has its own address, and the configuration of the operator stays
// as the administrator has left it. Before, the quick start does the same by its own commands.
func TestTheSamplesRun(t *testing.T) {
	t.Parallel()
	t.Run("the quick start", quickStart)
	s := newScenario(t)
	before := s.configuration()
	s.kubectl("apply", "-k", "../../config/samples")
	defer s.kubectl("delete", "-k", "../../config/samples", "--ignore-not-found")
	for _, name := range []string{"hello", "web-0", "web-1", "web-2"} {
		p := s.awaitReady(name)
		own := s.awaitPodListener(p, "listener").IngressAddresses[0]
		s.eventually(func(ctx context.Context) error {
			got, err := request(ctx, own, "/default-address/address")
			if err == nil && strings.TrimSpace(got) != own.Address {
				err = fmt.Errorf("the server has the address %q, want %q", got, own.Address)
			}
			return err
		})
		if name == "hello" {
			continue
		}
		if shared := s.awaitPodListener(p, "shared"); len(shared.IngressAddresses) == 0 {
			t.Errorf("%s has no address that it shares", p.Name)
		}
	}
	after := s.configuration()
	if after.UID != before.UID || after.Generation != before.Generation || after.Annotations[corev1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("the configuration was %+v and is %+v", before, after)
	}
}
