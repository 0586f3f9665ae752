// Package metallb installs the load balancer MetalLB on a test cluster, in its layer 2 mode: the nodes answer ARP
// requests for the addresses of LoadBalancer Services. Its programs are built from its Go module, and installed by the
// manifests in that module. BGP, and FRR for it, are not installed.
//
// It does not depend on the operator.
package metallb

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// Namespace is the load balancer's namespace. Its configuration has to be there.
const Namespace = "metallb-system"

// LoadBalancerClass is the spec.loadBalancerClass of the Services that the load balancer serves. It leaves all others
// alone, so that tests can have Services that nobody serves.
const LoadBalancerClass = "metallb.example/l2"

// toolSet is the tool set with the programs, whose go.mod pins the module.
const toolSet = "metallb"

const module = "go.universe.tf/metallb"

// webhookTimeout is how long the load balancer may take until its webhook serves.
const webhookTimeout = time.Minute

var (
	//go:embed kustomization.yaml
	kustomization string
	//go:embed advertisement.yaml
	advertisement []byte
)

// Install installs the load balancer, or completes its installation, and returns when it serves its configuration. It
// assigns no address before there is an IPAddressPool.
func Install(ctx context.Context, c *cluster.Cluster, progress io.Writer) error {
	controller, err := push(ctx, c, "controller", "65534")
	if err != nil {
		return err
	}
	speaker, err := push(ctx, c, "speaker", "")
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing the load balancer MetalLB")
	source, err := tools.ModuleDir(ctx, toolSet, module)
	if err != nil {
		return err
	}
	manifests, err := c.Kustomize(ctx, kustomization, filepath.Join(source, "config", "native"), map[string]string{
		"Controller": controller, "Speaker": speaker, "LoadBalancerClass": LoadBalancerClass,
	})
	if err != nil {
		return err
	}
	if err := c.Install(ctx, "the load balancer", manifests, Namespace, "deployment/controller", "daemonset/speaker"); err != nil {
		return err
	}
	return configure(ctx, c, advertisement)
}

// SetPool creates an IPAddressPool whose addresses only Services in these namespaces get, or changes its addresses.
// Each is a range like "192.0.2.1-192.0.2.9". Without a range it deletes the pool, and does not fail if there is none.
// No namespaces mean all.
func SetPool(ctx context.Context, c *cluster.Cluster, name string, namespaces []string, ranges ...string) error {
	if len(ranges) == 0 {
		return c.RunKubectl(ctx, nil, "delete", "ipaddresspools.metallb.io", name, "--namespace="+Namespace, "--ignore-not-found")
	}
	spec := map[string]any{"addresses": ranges}
	if len(namespaces) > 0 {
		spec["serviceAllocation"] = map[string]any{"namespaces": namespaces}
	}
	pool, err := json.Marshal(map[string]any{
		"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
		"metadata": map[string]any{"name": name, "namespace": Namespace}, "spec": spec,
	})
	if err != nil {
		return fmt.Errorf("encoding IPAddressPool %s: %w", name, err)
	}
	return configure(ctx, c, pool)
}

// configure applies a manifest of the load balancer's configuration. The webhook that checks it is part of the load
// balancer, and is not covered by its readiness: it serves once its certificate is issued, and when the node that it
// was on was stopped, once its Pod runs again and the API server knows its address. No object shows that.
func configure(ctx context.Context, c *cluster.Cluster, manifest []byte) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, webhookTimeout, true, func(ctx context.Context) (bool, error) {
		last = c.RunKubectl(ctx, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("configuring the load balancer: %w", last)
	}
	return nil
}

// Build builds the programs, which takes minutes, once. Install does so, too.
func Build(ctx context.Context) error {
	_, err := tools.Ensure(ctx, toolSet)
	return err
}

// push builds and pushes the image of a program, and returns its name.
func push(ctx context.Context, c *cluster.Cluster, program, user string) (string, error) {
	programs, err := tools.Ensure(ctx, toolSet)
	if err != nil {
		return "", err
	}
	return c.PushImage(ctx, "metallb-"+program, cluster.ProgramImage(filepath.Join(programs, program), "/"+program, user))
}
