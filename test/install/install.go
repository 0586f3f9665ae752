// Package install builds the operator and installs it on a test cluster, as a user would.
//
// Only tests and test tools may import it.
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// Namespace is the namespace of the operator in config/default.
const Namespace = "listener-operator"

// rolloutTimeout is how long each step of the operator's rollout may take.
const rolloutTimeout = 2 * time.Minute

// Operator builds the operator, installs it, and waits until it is available on every node.
func Operator(ctx context.Context, c *cluster.Cluster, progress *cluster.Progress) error {
	ref, err := load(ctx, c, progress)
	if err != nil {
		return err
	}
	progress.Printf("installing the operator: make deploy IMG=%s", ref)
	if _, err := exec.LookPath("make"); err != nil {
		return errors.New("make is missing: apt-get install make")
	}
	kubectl := c.Kubectl() + " --kubeconfig=" + c.Kubeconfig()
	if _, err := run(ctx, "make", "deploy", "IMG="+ref, "KUBECTL="+kubectl); err != nil {
		return err
	}
	return awaitOperator(ctx, c, progress, ref)
}

// load builds the operator's programs, loads an image of them into the nodes, and returns the image's name. The name
// depends on the content: after a change of the code, the cluster runs the new operator.
func load(ctx context.Context, c *cluster.Cluster, progress *cluster.Progress) (string, error) {
	dir, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	progress.Printf("building the operator (a minute or two, the first time)")
	if err := tools.BuildLocal(ctx, ".", dir, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	licenses := filepath.Join(dir, "licenses")
	if _, err := run(ctx, "go", "-C", "hack", "run", "./licenses", "-output", licenses, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	spec := image.Operator(licenses, dir, "test", "")
	img, err := image.Build(spec)
	if err != nil {
		return "", fmt.Errorf("building the operator's image: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of the operator's image: %w", err)
	}
	ref := "listener-operator:test-" + digest.Hex[:8]
	progress.Printf("loading the image %s into the nodes", ref)
	return ref, c.LoadImage(ctx, ref, spec)
}

// awaitOperator waits until the operator runs with the given image, and its node agent on every node.
func awaitOperator(ctx context.Context, c *cluster.Cluster, progress *cluster.Progress, ref string) error {
	const agents = "daemonset/" + names.NodeAgent
	nodes := len(c.Nodes())
	timeout := "--timeout=" + rolloutTimeout.String()
	for _, args := range [][]string{
		{"rollout", "status", "deployment/" + names.Operator, timeout},
		{"wait", "--for=create", agents, timeout},
		{"wait", "--for=jsonpath={.spec.template.spec.containers[0].image}=" + ref, agents, timeout},
		{"rollout", "status", agents, timeout},
		{"wait", "--for=create", "listeneroperator/" + operatorv1alpha1.ListenerOperatorName, timeout},
		{"wait", "--for=condition=Available", "listeneroperator/" + operatorv1alpha1.ListenerOperatorName, timeout},
		{"wait", fmt.Sprintf("--for=jsonpath={.status.nodeAgent.ready}=%d", nodes), "listeneroperator/" + operatorv1alpha1.ListenerOperatorName, timeout},
	} {
		if _, err := Kubectl(ctx, c, append([]string{"--namespace=" + Namespace}, args...)...); err != nil {
			return err
		}
	}
	progress.Printf("the operator is available, with a node agent on each of %d nodes", nodes)
	return nil
}

// Kubectl runs kubectl on a cluster, and returns its output.
func Kubectl(ctx context.Context, c *cluster.Cluster, args ...string) (string, error) {
	return run(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

// stopTimeout is how long a program may take to end after SIGTERM.
const stopTimeout = 5 * time.Second

// run runs a program in the root of the checkout and returns its output, which an error also contains. When ctx is
// done, the program and its children get SIGTERM.
func run(ctx context.Context, name string, args ...string) (string, error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s: %w%s", filepath.Base(name), err, strings.TrimRight("\n"+string(output), "\n"))
	}
	return string(output), nil
}
