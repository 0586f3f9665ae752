// Command bench measures the operator as a process of its own against a real API server that holds many Listeners: how
// much memory it takes, how long it works after a start, and what it asks the API server for. There are no kubelets and
// no controllers but the operator's: nodes, claims, volumes and Pods are objects and no more. It prints one table;
// nothing here passes or fails.
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
)

// options are what is measured.
type options struct {
	// listeners is the number of Listeners of the largest measurement. The first one has a tenth of them, to show
	// whether the costs are linear.
	listeners int
	// nodes is the number of nodes that their Pods are on.
	nodes int
	// operator is the operator's program.
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

// run measures, and prints the table to out and what it does to progress.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
	}
	say("starting an API server")
	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.stop(); err == nil {
			err = stopErr
		}
	}()
	say("adding %d nodes", o.nodes)
	if err := c.addNodes(ctx, o.nodes); err != nil {
		return err
	}
	var rows []row
	for _, listeners := range []int{o.listeners / 10, o.listeners} {
		say("adding up to %d Listeners, with claims, volumes and Pods", listeners)
		if err := c.addListeners(ctx, listeners, o.nodes); err != nil {
			return err
		}
		for _, what := range []string{"with new Listeners", "again"} {
			say("starting the operator, %s", what)
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
	// took is the time from the start of the program until it had no work any more.
	took time.Duration
	// processor is how much of the processors' time it took.
	processor time.Duration
	// peak and resident are its memory in bytes: the most that it had, and what it had in the end.
	peak, resident int64
	// requests are those that it sent, by kind of request.
	requests map[string]int
}

func table(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Listeners\tstart\tuntil idle\tCPU time\tpeak memory\tin the end\tlists and watches\treads\twrites\tevents\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%.1f s\t%.1f s\t%d MiB\t%d MiB\t%d\t%d\t%d\t%d\t\n", r.listeners, r.start, r.took.Seconds(), r.processor.Seconds(),
			r.peak>>20, r.resident>>20, r.requests["list"]+r.requests["watch"], r.requests["get"],
			r.requests["create"]+r.requests["patch"]+r.requests["update"]+r.requests["delete"], r.requests["tell"])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}
