// Package traefik installs Traefik, a controller for Ingresses and Gateways, on a test cluster, and the Gateway API.
// Its program is built from its Go module. Clients outside reach it through a load balancer: Ingresses at ports 80 and
// 443, and listeners of Gateways at HTTPPort, TLSPort and TCPPorts.
//
// It does not depend on the operator.
package traefik

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"path/filepath"

	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// IngressClass is the name of the IngressClass that it serves. The cluster has no default one.
const IngressClass = "traefik"

// GatewayClass is the name of the GatewayClass that it serves.
const GatewayClass = IngressClass

// The ports that listeners of Gateways may have, by their protocol. Each is an entry point.
const (
	HTTPPort = 9080
	TLSPort  = 9443
)

// TCPPorts returns the ports that listeners of Gateways with protocol TCP may have.
func TCPPorts() []int { return []int{9001, 9002, 9003} }

// gatewayAPI is the Go module with the CRDs of the Gateway API, in the version that Traefik is built with.
const gatewayAPI = "sigs.k8s.io/gateway-api"

// Namespace is the namespace in which it runs, in a Deployment named traefik.
const Namespace = "traefik"

//go:embed traefik.yaml
var manifests string

// Install installs Traefik, or completes its installation, and returns when it serves at the address, which the load
// balancer of package metallb gives it. Building it takes minutes, once.
func Install(ctx context.Context, c *cluster.Cluster, address string, progress io.Writer) error {
	programs, err := tools.Ensure(ctx, "traefik")
	if err != nil {
		return err
	}
	if err := metallb.SetPool(ctx, c, Namespace, []string{Namespace}, address+"-"+address); err != nil {
		return err
	}
	ref, err := c.PushImage(ctx, "traefik", cluster.ProgramImage(filepath.Join(programs, "traefik"), "/traefik", "65534"))
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing the Gateway API and Traefik")
	if err := installGatewayAPI(ctx, c); err != nil {
		return err
	}
	rendered, err := cluster.Render(manifests, map[string]any{
		"Namespace": Namespace, "IngressClass": IngressClass, "Image": ref, "LoadBalancerClass": metallb.LoadBalancerClass, "TCPPorts": TCPPorts(),
	})
	if err != nil {
		return err
	}
	if err := c.Install(ctx, "Traefik", rendered, Namespace, "deployment/traefik"); err != nil {
		return err
	}
	assigned := "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=" + address
	if err := c.RunKubectl(ctx, nil, "wait", assigned, "service/traefik", "--namespace="+Namespace, "--timeout=120s"); err != nil {
		return fmt.Errorf("waiting for the address of Traefik: %w", err)
	}
	return nil
}

// installGatewayAPI makes the cluster serve the Gateway API, with the kinds of its experimental channel.
func installGatewayAPI(ctx context.Context, c *cluster.Cluster) error {
	dir, err := tools.ModuleDir(ctx, "traefik", gatewayAPI)
	if err != nil {
		return err
	}
	err = c.RunKubectl(ctx, nil, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(dir, "config", "crd", "experimental"))
	if err != nil {
		return fmt.Errorf("installing the Gateway API: %w", err)
	}
	if err := c.RunKubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd/gatewayclasses.gateway.networking.k8s.io"); err != nil {
		return fmt.Errorf("waiting for the Gateway API: %w", err)
	}
	return nil
}
