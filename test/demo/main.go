// Command demo shows what the operator does: it brings up a Kubernetes cluster on this machine, installs the operator
// as a user would, runs an etcd of three members, and connects to each of them from a client outside the cluster, at
// the addresses that etcd advertises.
//
// It checks everything that it shows, and fails if a check does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/test/cluster"
)

// variant is a way to expose etcd. Each has a cluster of its own, because members do not change their addresses.
type variant struct {
	// cluster is the name of the cluster on this machine.
	cluster string
	// class is the name of the file with the ListenerClass.
	class string
	// loadBalancer states whether the cluster has a load balancer.
	loadBalancer bool
}

// variants are the variants by verb.
var variants = map[string]variant{
	"up":               {cluster: "demo", class: "node-ports.yaml"},
	"up-load-balancer": {cluster: "demo-lb", class: "load-balancer.yaml", loadBalancer: true},
}

const usage = `usage: demo VERB

  up                  bring up a cluster with the operator and an etcd, and use etcd from outside; can be repeated
  up-load-balancer    the same on another cluster, with the load balancer MetalLB instead of node ports
  down                delete the clusters and everything that belongs to them

It needs root and Go. The first time it builds Kubernetes, which takes about ten minutes on two cores.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "\ninterrupted: %v\n\nthe same command continues from here, `make demo-down` deletes the cluster\n", err)
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run runs the program. Results go to stdout, progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	log.SetLogger(logr.Discard()) // after 30 seconds without a logger, controller-runtime prints a stack trace
	if len(args) != 1 {
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
	if v, ok := variants[args[0]]; ok {
		return up(ctx, v, stdout, stderr)
	}
	if args[0] != "down" {
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
	var errs []error
	for _, v := range variants {
		errs = append(errs, cluster.Down(ctx, v.cluster, stderr))
	}
	return errors.Join(errs...)
}
