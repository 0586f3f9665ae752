// Command bench measures what a listener volume costs a Pod, on a test cluster, and what the operator needs with many
// Listeners, at an API server without nodes. It works in parts of at most ten minutes, and keeps the result of each:
// when it is run again, it measures only the parts that are missing. From all results it generates docs/performance.md
// and the plots in it. It measures, and judges nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/bench/pods"
	"github.com/listener-operator/listener-operator/test/bench/report"
	"github.com/listener-operator/listener-operator/test/bench/result"
	"github.com/listener-operator/listener-operator/test/bench/size"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// options configure the measurements.
type options struct {
	// out is the directory of the results.
	out string
	// docs is the directory of the generated page; "" generates none.
	docs string
	// operator is the path of the operator's program, for the parts with many Listeners.
	operator string
	// parts are the names of the parts to measure; all if there are none.
	parts string
	// again measures parts that have been measured before.
	again bool
	// quick measures a few values only, without many Listeners.
	quick bool
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "dist/bench", "`directory` of the results, from the repository's root")
	flag.StringVar(&o.docs, "docs", "docs", "`directory` of the generated page performance.md; empty generates none")
	flag.StringVar(&o.operator, "operator", "bin/operator", "`path` of the operator's program")
	flag.StringVar(&o.parts, "parts", "", "comma-separated `names` of the parts to measure, or none; all by default: "+strings.Join(partNames(), ","))
	flag.BoolVar(&o.again, "again", false, "measure the selected parts although their results are there")
	flag.BoolVar(&o.quick, "quick", false, "measure a few values only, in less than five minutes")
	flag.Parse()
	// `go -C test run` starts it in test/, but users give paths from the repository's root.
	if root, err := checkout.Root(); err == nil {
		_ = os.Chdir(root)
	}
	log.SetLogger(logr.Discard()) // controller-runtime complains about a missing logger
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// bench measures parts. Its cluster exists from the first part that needs it.
type bench struct {
	options
	progress *cluster.Progress
	pods     *pods.Bench
}

// parts are all parts, in the order in which they are measured.
var parts = []struct {
	name string
	// quick states that the part is also measured with few values.
	quick   bool
	measure func(*bench, context.Context, *result.Part) error
}{
	{"starts", true, func(b *bench, ctx context.Context, p *result.Part) (err error) {
		p.Starts, err = b.pods.Starts(ctx, b.choose(40, 6))
		return err
	}},
	{"bursts", true, func(b *bench, ctx context.Context, p *result.Part) (err error) {
		p.Bursts, err = b.pods.Bursts(ctx, b.choose(3, 1), b.choose(50, 10))
		return err
	}},
	{"updates", true, func(b *bench, ctx context.Context, p *result.Part) (err error) {
		p.Updates, err = b.pods.Updates(ctx, b.choose(100, 10))
		return err
	}},
	{"size-100", true, sizeOf(100)},
	{"size-1000", false, sizeOf(1000)},
	{"size-10000", false, sizeOf(10000)},
}

// nodes is the number of nodes in the parts with many Listeners.
const nodes = 1000

func sizeOf(listeners int) func(*bench, context.Context, *result.Part) error {
	return func(b *bench, ctx context.Context, p *result.Part) (err error) {
		p.Size, err = size.Measure(ctx, size.Options{
			Dir: b.data(), Operator: b.operator, Listeners: listeners, Nodes: nodes, Progress: b.progress,
		})
		return err
	}
}

func partNames() []string {
	names := make([]string, 0, len(parts))
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func (b *bench) choose(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// partTimeout is how long a part may take on a machine that has other work.
const partTimeout = time.Hour

// run measures the parts that are missing, prints the tables to out and the steps to messages, and generates the page.
func run(ctx context.Context, o options, out, messages io.Writer) (err error) {
	b := &bench{options: o, progress: cluster.NewProgress(messages)}
	defer func() {
		if b.pods != nil {
			err = errors.Join(err, pods.Down(context.WithoutCancel(ctx)))
		}
	}()
	measured, err := b.measureAll(ctx)
	if err != nil {
		return err
	}
	if err := report.Tables(out, measured); err != nil {
		return err
	}
	if o.docs == "" {
		return nil
	}
	b.progress.Printf("generating %s", filepath.Join(o.docs, "performance.md"))
	return report.Generate(o.docs, measured)
}

// measureAll measures the selected parts that are missing. It returns the results of all parts, those that were not
// measured here as they are in the page.
func (b *bench) measureAll(ctx context.Context) ([]*result.Part, error) {
	wanted, err := b.selected()
	if err != nil {
		return nil, err
	}
	published, err := report.Published(b.docs)
	if err != nil {
		return nil, err
	}
	if b.again {
		if err := os.RemoveAll(b.data()); err != nil {
			return nil, fmt.Errorf("removing the objects of earlier measurements: %w", err)
		}
	}
	var all []*result.Part
	for _, p := range parts {
		part, err := b.loadOrMeasure(ctx, p.name, slices.Contains(wanted, p.name), p.measure)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", p.name, err)
		}
		if part = cmp.Or(part, published[p.name]); part != nil {
			all = append(all, part)
		}
	}
	return all, nil
}

// loadOrMeasure returns the result of a part. It measures the part if that is wanted and there is no result, or if it
// is wanted again. It returns nil if there is no result, and none is wanted.
func (b *bench) loadOrMeasure(
	ctx context.Context, name string, wanted bool, measure func(*bench, context.Context, *result.Part) error,
) (*result.Part, error) {
	store := result.Store(b.out)
	part, err := store.Load(name)
	if err != nil || !wanted || part != nil && !b.again {
		return part, err
	}
	if part, err = b.measure(ctx, name, measure); err != nil {
		return nil, err
	}
	return part, store.Save(part)
}

// data is the directory of the objects of parts with many Listeners.
func (b *bench) data() string { return filepath.Join(b.out, "objects") }

// selected returns the names of the parts to measure.
func (b *bench) selected() ([]string, error) {
	var names []string
	for _, p := range parts {
		if p.quick || !b.quick {
			names = append(names, p.name)
		}
	}
	switch b.parts {
	case "":
		return names, nil
	case "none":
		return nil, nil
	}
	names = strings.Split(b.parts, ",")
	for _, name := range names {
		if !slices.Contains(partNames(), name) {
			return nil, fmt.Errorf("there is no part %q; the parts are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return names, nil
}

// measure measures one part.
func (b *bench) measure(ctx context.Context, name string, measure func(*bench, context.Context, *result.Part) error) (*result.Part, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, partTimeout, fmt.Errorf("not finished after %s", partTimeout))
	defer cancel()
	began := time.Now()
	part := &result.Part{Name: name}
	var err error
	if part.Environment, err = environment(ctx, began); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(name, "size-") && b.pods == nil {
		if b.pods, err = pods.Up(ctx, b.progress); err != nil {
			return nil, err
		}
	}
	if err := measure(b, ctx, part); err != nil {
		return nil, err
	}
	part.Seconds = time.Since(began).Seconds()
	b.progress.Printf("%s took %s", name, time.Since(began).Round(time.Second))
	return part, nil
}
