package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// table is a table of text. One without rows was not measured.
type table struct {
	title  string
	header []string
	rows   [][]string
}

// Measured reports whether there are results.
func (t table) Measured() bool { return len(t.rows) > 0 }

// Markdown returns the table for a page.
func (t table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.header)
	rule := []string{"---"}
	for range t.header[1:] {
		rule = append(rule, "---:")
	}
	fmt.Fprintf(&b, "|%s|\n", strings.Join(rule, "|"))
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

func milliseconds(value float64) string { return fmt.Sprintf("%.0f ms", value) }

func seconds(value float64) string { return fmt.Sprintf("%.1f s", value) }

// mebibytes returns "" for 0, which stands for a value that was not measured.
func mebibytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}

// startTable compares how long single Pods take to start, and what the race with the node authorizer costs.
func (r results) startTable() table {
	t := table{
		title:  "one Pod, from creation to Running",
		header: []string{"volume", "Pods", "p50", "p90", "p99", "more than emptyDir, p50", "more than " + floor + ", p50 / p99", "delayed by the node authorizer", "p50 of those", "p99 of the others"},
	}
	if r.starts == nil {
		return t
	}
	base := result.Quantile(r.starts.Variants[0].Milliseconds, 0.5)
	var service []float64
	for _, v := range r.starts.Variants {
		if v.Name == floor {
			service = v.Milliseconds
		}
	}
	for _, v := range r.starts.Variants {
		median := result.Quantile(v.Milliseconds, 0.5)
		var delayed, others []float64
		for i, value := range v.Milliseconds {
			if slices.Contains(v.Races, i) {
				delayed = append(delayed, value)
			} else {
				others = append(others, value)
			}
		}
		row := []string{
			v.Name, strconv.Itoa(len(v.Milliseconds)), milliseconds(median), milliseconds(result.Quantile(v.Milliseconds, 0.9)),
			milliseconds(result.Quantile(v.Milliseconds, 0.99)), fmt.Sprintf("%+.0f ms", median-base), "", strconv.Itoa(len(delayed)), "", "",
		}
		if len(service) > 0 {
			more := func(q float64) float64 { return result.Quantile(v.Milliseconds, q) - result.Quantile(service, q) }
			row[6] = fmt.Sprintf("%+.0f / %+.0f ms", more(0.5), more(0.99))
		}
		if len(delayed) > 0 {
			row[8] = milliseconds(result.Quantile(delayed, 0.5))
		}
		if len(others) > 0 {
			row[9] = milliseconds(result.Quantile(others, 0.99))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// floor is the variant that the others are compared with: what Kubernetes needs for such Pods and their Services.
const floor = "emptyDir and a Service"

// burstTable compares how long many Pods take.
func (r results) burstTable() table {
	t := table{header: []string{"volume", "bursts", "the last Pod runs after (median)", "fastest", "slowest", "of " + floor, "delayed by the node authorizer"}}
	if r.bursts == nil {
		return t
	}
	t.title = fmt.Sprintf("%d Pods at once on one node, from creation to Running", r.bursts.Pods)
	var base float64
	for _, v := range r.bursts.Variants {
		if v.Name == floor {
			base = result.Quantile(v.Last, 0.5)
		}
	}
	for _, v := range r.bursts.Variants {
		median := result.Quantile(v.Last, 0.5)
		row := []string{
			v.Name, strconv.Itoa(len(v.Last)), seconds(median / 1000), seconds(slices.Min(v.Last) / 1000), seconds(slices.Max(v.Last) / 1000), "",
			fmt.Sprintf("%d of %d", v.Races, len(v.All)),
		}
		if base > 0 {
			row[5] = fmt.Sprintf("%.2f", median/base)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// processorTable shows the CPU time for each Pod of a burst by component.
func (r results) processorTable() table {
	t := table{title: "CPU time for each Pod of a burst", header: []string{"component"}}
	if r.bursts == nil {
		return t
	}
	names := map[string]bool{}
	for _, v := range r.bursts.Variants {
		t.header = append(t.header, v.Name)
		for name := range v.Processor {
			names[name] = true
		}
	}
	sum := []string{"all"}
	for range r.bursts.Variants {
		sum = append(sum, "")
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row := []string{name}
		for _, v := range r.bursts.Variants {
			row = append(row, milliseconds(v.Processor[name]*1000/float64(max(len(v.All), 1))))
		}
		t.rows = append(t.rows, row)
	}
	for i, v := range r.bursts.Variants {
		var all float64
		for _, value := range v.Processor {
			all += value
		}
		sum[i+1] = milliseconds(all * 1000 / float64(max(len(v.All), 1)))
	}
	t.rows = append(t.rows, sum)
	return t
}

// agentMemory describes the memory of the node agent, or is "" if it was not measured.
func (r results) agentMemory() string {
	if r.bursts == nil || r.bursts.Agent == nil {
		return ""
	}
	m := r.bursts.Agent
	return fmt.Sprintf("%s at most, and %s at the end, %s of it pages of files", mebibytes(m.Peak), mebibytes(m.Resident), mebibytes(m.File))
}

// writeTable shows the writes for each Pod by component and kind.
func (r results) writeTable() table {
	t := table{title: "writes for one Pod, from its creation until it runs", header: []string{"request"}}
	if r.starts == nil {
		return t
	}
	type key struct{ component, resource, verb string }
	counts := map[key][]float64{}
	for i, w := range r.starts.Writes {
		t.header = append(t.header, w.Variant)
		for _, c := range w.Counts {
			k := key{c.Component, c.Resource, c.Verb}
			if counts[k] == nil {
				counts[k] = make([]float64, len(r.starts.Writes))
			}
			counts[k][i] += float64(c.Count) / float64(w.Pods)
		}
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.component, b.component), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	row := func(name string, values []float64) {
		cells := []string{name}
		for _, v := range values {
			cells = append(cells, strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0"))
		}
		t.rows = append(t.rows, cells)
	}
	ours, all := make([]float64, len(r.starts.Writes)), make([]float64, len(r.starts.Writes))
	for _, k := range keys {
		row(k.component+": "+k.verb+" "+k.resource, counts[k])
		for i, v := range counts[k] {
			all[i] += v
			if k.component == "operator" || k.component == "node agent" {
				ours[i] += v
			}
		}
	}
	row("all of operator and node agent", ours)
	row("all", all)
	return t
}

func (r results) updateTable() table {
	t := table{title: "from a change of the class until the file has it", header: []string{"changes", "p50", "p90", "p99"}}
	if r.updates == nil {
		return t
	}
	values := r.updates.Milliseconds
	t.rows = append(t.rows, []string{
		strconv.Itoa(len(values)), milliseconds(result.Quantile(values, 0.5)), milliseconds(result.Quantile(values, 0.9)), milliseconds(result.Quantile(values, 0.99)),
	})
	return t
}

// sizeTable shows what the operator needs with many Listeners.
func (r results) sizeTable() table {
	t := table{
		title:  "the operator with many Listeners",
		header: []string{"Listeners", "nodes", "start", "of them new", "until idle", "CPU time", "peak memory", "at the end", "of that files", "lists and watches", "reads", "writes", "events"},
	}
	for _, s := range r.sizes {
		for _, start := range []struct {
			what string
			run  result.Run
		}{{"with new Listeners", s.New}, {"again", s.Again}} {
			n := start.run.Requests
			t.rows = append(t.rows, []string{
				strconv.Itoa(s.Listeners), strconv.Itoa(s.Nodes), start.what, strconv.Itoa(start.run.New), seconds(start.run.Seconds), seconds(start.run.Processor),
				mebibytes(start.run.Peak), mebibytes(start.run.Resident), mebibytes(start.run.File), strconv.Itoa(n["list"] + n["watch"]), strconv.Itoa(n["get"]),
				strconv.Itoa(start.run.Writes()), strconv.Itoa(n["events"]),
			})
		}
	}
	return t
}
