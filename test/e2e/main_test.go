//go:build e2e

// Package e2e has the end-to-end tests of the operator, on a real cluster: three nodes, a real API server, kubelets and
// containers, and a client outside the cluster that reaches nodes but neither Pods nor Services.
//
// The cluster is started before the first test and stopped after the last one. KUBERNETES is its minor version, such as
// 1.33, if that is not to be the newest one. MICROSHIFT is a checkout of github.com/openshift/microshift, if the
// cluster is to run OpenShift's API server. KEEP=1 keeps it running, and a cluster that runs is reused.
//
// The name of a file begins with its subject. Most scenarios are about addresses, listeners, volumes, or mistakes of
// users. exposure_ has those of each type of exposure, restart_, lostnodes and faults what fails, install_, migration
// and security_ what administrators see, and product_ the products of docs/recipes. What they share is in scenario,
// objects, await and outside (the client).
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	routev1 "github.com/openshift/api/route/v1"
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
)

// clusterName is the cluster's name: the value of the environment variable CLUSTER, or "e2e".
var clusterName = cmp.Or(os.Getenv("CLUSTER"), "e2e")

// microShift is a checkout of MicroShift, from which the cluster gets OpenShift's API server, or empty.
var microShift = os.Getenv("MICROSHIFT")

const (
	operatorNamespace = "listener-operator"
	operatorImage     = "listener-operator:e2e"
	serverImage       = "e2e-server:1"
)

// The cluster and its API, set by TestMain.
var (
	testbed *cluster.Cluster
	api     client.WithWatch
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime complains about a missing logger
	code, err := 1, selectGroup()
	if err == nil {
		code, err = run(m)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if testbed, err = cluster.Up(ctx, cluster.Options{
		Name: clusterName, Nodes: 3, Kubernetes: os.Getenv("KUBERNETES"), MicroShift: microShift, Progress: os.Stderr,
	}); err != nil {
		return 0, err
	}
	if os.Getenv("KEEP") == "" {
		defer func() {
			if downErr := cluster.Down(context.Background(), clusterName, os.Stderr); err == nil {
				err = downErr
			}
		}()
	}
	if api, err = newClient(testbed); err != nil {
		return 0, err
	}
	if err := loadServer(ctx); err != nil {
		return 0, err
	}
	prepare := []func(context.Context) error{metallb.Build, install} // MetalLB now, because the scenarios have little time
	if microShift != "" {
		prepare = []func(context.Context) error{install}
	}
	if underOLM {
		prepare = []func(context.Context) error{prepareOLM}
	}
	if underHelm {
		prepare = []func(context.Context) error{prepareHelm}
	}
	for _, step := range prepare {
		if err := step(ctx); err != nil {
			return 0, err
		}
	}
	defer func() { err = errors.Join(err, stopRouters()) }()
	code = m.Run()
	ctx, cancel = context.WithTimeout(context.Background(), 5*timeout) // for all namespaces; the context above may have expired
	defer cancel()
	err = awaitEndedNamespaces(ctx)
	if underOLM || underHelm {
		return code, err // permissions are removed before the operator has stopped, so some requests are denied
	}
	return code, errors.Join(err, checkPermissions(ctx))
}

func newClient(c *cluster.Cluster) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, listenersv1alpha1.AddToScheme, operatorv1alpha1.AddToScheme,
		routev1.Install, gatewayv1.Install,
		operatorsv1.AddToScheme, operatorsv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// loadServer builds the test server and loads its image onto all nodes.
func loadServer(ctx context.Context) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	server := filepath.Join(root, programs(), "e2e-server")
	build := exec.CommandContext(ctx, "go", "-C", "test", "build", "-trimpath", "-o", server, "./e2e/server")
	build.Dir, build.Stderr, build.Env = root, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the test server: %w", err)
	}
	return testbed.LoadImage(ctx, serverImage, cluster.ProgramImage(server, "/server", "65532"))
}

// install builds the operator, installs it with make deploy, and waits until it and its node agents are ready.
func install(ctx context.Context) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	if err := loadOperator(ctx, root, operatorImage); err != nil {
		return err
	}
	if err := deploy(ctx); err != nil {
		return err
	}
	// A reused cluster runs an older image of the same name.
	if err := command(ctx, root, testbed.Kubectl(), "-n", operatorNamespace, "delete", "pods", "--all", "--wait=false"); err != nil {
		return err
	}
	_, err = await(ctx, &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName},
		isAvailableOnAllNodes)
	if err != nil {
		_ = command(context.WithoutCancel(ctx), root, testbed.Kubectl(), "-n", operatorNamespace, "get", "pods,daemonsets,events")
		return fmt.Errorf("waiting for the operator to be available: %w", err)
	}
	return nil
}

// deploy runs make deploy. An error has what it prints.
func deploy(ctx context.Context) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	return deployFrom(ctx, root, operatorImage)
}

// deployFrom runs make deploy of a checkout, for an image that the nodes have.
func deployFrom(ctx context.Context, root, image string) error {
	cmd := exec.CommandContext(ctx, "make", "deploy", "IMG="+image, "KUBECTL="+testbed.Kubectl())
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+testbed.Kubeconfig())
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running make deploy: %w: %s", err, output)
	}
	return nil
}

// loadOperator builds the operator of the checkout root, and loads its image onto all nodes.
func loadOperator(ctx context.Context, root, ref string) error {
	if err := buildOperator(ctx, root); err != nil {
		return err
	}
	return testbed.LoadImage(ctx, ref, operatorSpec(root, "e2e"))
}

// buildOperator builds the operator of a checkout, with variables of make.
func buildOperator(ctx context.Context, root string, variables ...string) error {
	return command(ctx, root, "make", append(variables, "build", "licenses", "BIN="+programs())...)
}

// operatorSpec is the image of what buildOperator has built.
func operatorSpec(root, version string) image.Spec {
	dir := filepath.Join(root, programs())
	return image.Operator(filepath.Join(dir, "licenses"), dir, version, "")
}

// programs is the directory in a checkout for what these tests build. Those on other clusters may run at the same time.
func programs() string { return filepath.Join("bin", clusterName) }

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+testbed.Kubeconfig())
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s %v: %w", name, args, err)
	}
	return nil
}

// nodeOf returns the number of the node that a Pod runs on.
func nodeOf(pod *corev1.Pod) int { return nodeNumber(pod.Spec.NodeName) }

// nodeNumber returns the number of the node with this name.
func nodeNumber(name string) int {
	var node int
	_, _ = fmt.Sscanf(name, "node-%d", &node)
	return node
}
