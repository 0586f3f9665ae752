package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// operatorNamespace is the namespace of the operator in config/default.
const operatorNamespace = "listener-operator"

// rolloutTimeout is how long each step of the operator's rollout may take.
const rolloutTimeout = 2 * time.Minute

// installOperator builds the operator, installs it, and waits until it is available on every node.
func (d *demo) installOperator(ctx context.Context) error {
	ref, err := d.loadOperator(ctx)
	if err != nil {
		return err
	}
	d.progress.Printf("installing the operator: make deploy IMG=%s", ref)
	if _, err := exec.LookPath("make"); err != nil {
		return errors.New("make is missing: apt-get install make")
	}
	kubectl := d.cluster.Kubectl() + " --kubeconfig=" + d.cluster.Kubeconfig()
	if _, err := d.run(ctx, "make", "deploy", "IMG="+ref, "KUBECTL="+kubectl); err != nil {
		return err
	}
	return d.awaitOperator(ctx, ref)
}

// loadOperator builds the operator's programs, loads an image of them into the nodes, and returns the image's name. The
// name depends on the content: after a change of the code, the demo runs the new operator.
func (d *demo) loadOperator(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "demo-")
	if err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d.progress.Printf("building the operator (a minute or two, the first time)")
	if err := tools.BuildLocal(ctx, ".", dir, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	licenses := filepath.Join(dir, "licenses")
	if _, err := d.run(ctx, "go", "-C", "hack", "run", "./licenses", "-output", licenses, "./cmd/operator", "./cmd/node-agent"); err != nil {
		return "", err
	}
	spec := image.Operator(licenses, dir, "demo", "")
	img, err := image.Build(spec)
	if err != nil {
		return "", fmt.Errorf("building the operator's image: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of the operator's image: %w", err)
	}
	ref := "listener-operator:demo-" + digest.Hex[:8]
	d.progress.Printf("loading the image %s into the nodes", ref)
	return ref, d.cluster.LoadImage(ctx, ref, spec)
}

// awaitOperator waits until the operator runs with the given image, and its node agent on every node.
func (d *demo) awaitOperator(ctx context.Context, ref string) error {
	const agents = "daemonset/" + names.NodeAgent
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
		if _, err := d.kubectl(ctx, append([]string{"--namespace=" + operatorNamespace}, args...)...); err != nil {
			return err
		}
	}
	d.progress.Printf("the operator is available, with a node agent on each of %d nodes", nodes)
	return nil
}
