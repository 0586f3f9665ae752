// Command bench measures the operator as a separate process against a real API server with many Listeners: how much
// memory it uses, how long it works after a start, and how many requests it sends. There are no kubelets and no
// controllers except the operator's: nodes, claims, volumes and Pods are only objects. It prints one table, and does
// not judge it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	testcluster "github.com/listener-operator/listener-operator/test/cluster"
)

// options configure the measurements.
type options struct {
	// listeners is the number of Listeners of the largest measurement. The first one has a tenth of them, which shows
	// whether costs are linear.
	listeners int
	// nodes is the number of nodes that run their Pods.
	nodes int
	// operator is the path of the operator's program.
	operator string
}

func main() {
	var o options
	flag.IntVar(&o.listeners, "listeners", 10000, "`number` of Listeners, each with a Service, a claim, a volume and a Pod")
	flag.IntVar(&o.nodes, "nodes", 1000, "`number` of nodes")
	flag.StringVar(&o.operator, "operator", "bin/operator", "`path` of the operator's program, from the repository's root")
	flag.Parse()
	// `go -C test run` starts it in test/, but users give paths from the repository's root.
	if root, err := checkout.Root(); err == nil {
		_ = os.Chdir(root)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// run measures, and prints the table to out and its steps to messages.
func run(ctx context.Context, o options, out, messages io.Writer) (err error) {
	progress := testcluster.NewProgress(messages)
	progress.Printf("starting an API server")
	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.stop(); err == nil {
			err = stopErr
		}
	}()
	progress.Printf("adding %d nodes", o.nodes)
	if err := c.addNodes(ctx, o.nodes); err != nil {
		return err
	}
	var rows []row
	for _, listeners := range []int{o.listeners / 10, o.listeners} {
		progress.Printf("adding up to %d Listeners, with claims, volumes and Pods", listeners)
		if err := c.addListeners(ctx, listeners, o.nodes); err != nil {
			return err
		}
		for _, what := range []string{"with new Listeners", "again"} {
			progress.Printf("starting the operator, %s", what)
			r, err := c.measure(ctx, o.operator)
			if err != nil {
				return err
			}
			r.listeners, r.start = listeners, what
			rows = append(rows, r)
		}
	}
	return table(out, rows)
}

// row is one measurement.
type row struct {
	listeners int
	start     string
	// took is the time from the start of the program until it was idle.
	took time.Duration
	// processor is the CPU time that it used.
	processor time.Duration
	// peak and resident are the largest and the last size of its memory, in bytes.
	peak, resident int64
	// requests are the numbers of its requests by verb. Requests for events are counted as "events".
	requests map[string]int
}

func table(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Listeners\tstart\tuntil idle\tCPU time\tpeak memory\tat the end\tlists and watches\treads\twrites\tevents\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%.1f s\t%.1f s\t%d MiB\t%d MiB\t%d\t%d\t%d\t%d\t\n", r.listeners, r.start, r.took.Seconds(), r.processor.Seconds(),
			r.peak>>20, r.resident>>20, r.requests["list"]+r.requests["watch"], r.requests["get"],
			r.requests["create"]+r.requests["patch"]+r.requests["update"]+r.requests["delete"], r.requests["events"])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}
