// Package report shows the results of benchmarks: as tables on a terminal, and as a page with plots. It computes
// nothing but quantiles, sums and differences.
package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// results are the results of all parts that were measured. Those of others are nil.
type results struct {
	environments []named
	starts       *result.Starts
	bursts       *result.Bursts
	updates      *result.Updates
	// sizes are sorted by the number of Listeners.
	sizes []*result.Size
}

// named is the environment of a part.
type named struct {
	Name    string
	Seconds float64
	result.Environment
}

func collect(parts []*result.Part) results {
	var r results
	for _, p := range parts {
		r.environments = append(r.environments, named{p.Name, p.Seconds, p.Environment})
		switch {
		case p.Starts != nil:
			r.starts = p.Starts
		case p.Bursts != nil:
			r.bursts = p.Bursts
		case p.Updates != nil:
			r.updates = p.Updates
		case p.Size != nil:
			r.sizes = append(r.sizes, p.Size)
		}
	}
	slices.SortFunc(r.sizes, func(a, b *result.Size) int { return a.Listeners - b.Listeners })
	return r
}

// Tables prints the results.
func Tables(out io.Writer, parts []*result.Part) error {
	r := collect(parts)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, table := range []table{r.startTable(), r.burstTable(), r.processorTable(), r.writeTable(), r.updateTable(), r.sizeTable()} {
		if len(table.rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", table.title)
		for _, cells := range append([][]string{table.header}, table.rows...) {
			for _, cell := range cells {
				fmt.Fprintf(w, "%s\t", cell)
			}
			fmt.Fprintln(w)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("printing a table: %w", err)
		}
	}
	return nil
}
