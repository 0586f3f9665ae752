// Command demo shows what the operator does: it brings up a Kubernetes cluster on this machine, installs the operator
// as a user would, runs an etcd of three members, and connects to each of them from a client outside of the cluster, at
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

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/test/cluster"
)

// clusterName is the name of the demo's cluster on this machine.
const clusterName = "demo"

const usage = `usage: demo VERB

  up      bring up a cluster with the operator and an etcd, and use etcd from outside; can be repeated
  down    delete the cluster and everything that belongs to it

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
		fmt.Fprintf(os.Stderr, "\ninterrupted: %v\n\n`make demo` continues from here, `make demo-down` deletes the cluster\n", err)
		os.Exit(1)
	default:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run runs the program. Results go to stdout, progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) != 1 {
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
	switch args[0] {
	case "up":
		return up(ctx, stdout, stderr)
	case "down":
		return cluster.Down(ctx, clusterName, stderr)
	default:
		fmt.Fprint(stderr, usage)
		return flag.ErrHelp
	}
}
