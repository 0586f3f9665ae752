// Command network-policies enforces NetworkPolicies on a node of a test cluster: kube-network-policies, as kind runs
// it, decides whether a connection may begin. The node's rules, test/cluster/templates/network-policies.rules, queue
// the first packets of connections to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

// noNode is a name that no node has. The controller would also queue packets by itself, for the Pods of its node, with
// an nftables expression that not every kernel has.
const noNode = "none"

// nriSocket is the environment variable with the file descriptor of the connection to the container runtime.
const nriSocket = "NRI_PLUGIN_SOCKET"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig")
	queue := flag.Int("queue", 0, "number of the netfilter queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, *kubeconfig, *queue)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run enforces NetworkPolicies until ctx is done.
func run(ctx context.Context, kubeconfig string, queue int) error {
	// The controller must not connect to a runtime of the machine that the node is simulated on.
	if err := os.Setenv(nriSocket, "none"); err != nil {
		return fmt.Errorf("disabling NRI: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	controller, err := networkpolicy.NewController(
		client, factory.Networking().V1().NetworkPolicies(), core.Namespaces(), core.Pods(), nil, nil, nil, nil,
		networkpolicy.Config{NodeName: noNode, QueueID: queue},
	)
	if err != nil {
		return fmt.Errorf("creating the controller: %w", err)
	}
	factory.Start(ctx.Done())
	return controller.Run(ctx)
}
