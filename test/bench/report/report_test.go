package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/bench/report"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

// parts are results of all kinds of parts.
func parts() []*result.Part {
	size := func(listeners int, peak int64) *result.Size {
		run := result.Run{New: listeners, Seconds: 3, Processor: 2, Memory: result.Memory{Peak: peak, Resident: peak, File: 40 << 20}, Requests: map[string]int{"create": listeners, "get": 7, "watch": 20}}
		return &result.Size{Listeners: listeners, Nodes: 1000, New: run, Again: run}
	}
	return []*result.Part{
		{Name: "starts", Environment: result.Environment{CPUs: 2, Busy: 1.5}, Starts: &result.Starts{
			Variants: []result.Variant{{Name: "emptyDir", Milliseconds: []float64{500, 600, 700}}, {Name: "emptyDir and a Service", Milliseconds: []float64{610, 620, 710}}, {Name: "fresh claim", Milliseconds: []float64{600, 640, 5000}, Races: []int{2}}},
			Timelines: []result.Timeline{
				{Name: "typical", Steps: []result.Step{{What: "Pod created"}, {What: "files written", Milliseconds: 300}, {What: "container runs", Milliseconds: 640}}},
				{Name: "slowest", Steps: []result.Step{{What: "Pod created"}, {What: "container runs", Milliseconds: 5000}}},
			},
			Writes: []result.Writes{
				{Variant: "emptyDir", Pods: 3}, {Variant: "fresh claim", Pods: 3, Counts: []result.Write{
					{Component: "kubelet", Verb: "patch", Resource: "pods/status", Count: 9}, {Component: "operator", Verb: "create", Resource: "podlisteners", Count: 3},
				}},
			},
		}},
		{Name: "bursts", Bursts: &result.Bursts{Pods: 2, Agent: &result.Memory{Peak: 20 << 20, Resident: 18 << 20, File: 12 << 20}, Variants: []result.Burst{
			{Name: "emptyDir and a Service", Last: []float64{4000}, All: []float64{3000, 4000}, Processor: map[string]float64{"kubelet": 1}},
			{Name: "hostPath and a Service", Last: []float64{5000}, All: []float64{5000}, Processor: map[string]float64{"kubelet": 1}},
			{Name: "fresh claim", Last: []float64{5000}, All: []float64{4000, 5000}, Processor: map[string]float64{"kubelet": 1.2, "operator": 0.2}},
		}}},
		{Name: "updates", Updates: &result.Updates{Milliseconds: []float64{10, 20}}},
		{Name: "size-1000", Size: size(1000, 100<<20)},
		{Name: "size-100", Size: size(100, 91<<20)},
	}
}

func TestThePageShowsAllResults(t *testing.T) {
	docs := t.TempDir()
	check.Must(t, report.Generate(docs, parts()))
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	check.Must(t, err)
	for _, words := range []string{
		"| fresh claim | 3 | 640 ms | 5000 ms | 5000 ms | +40 ms | +20 / +4290 ms | 1 | 5000 ms | 640 ms |",
		"| fresh claim | 1 | 5.0 s | 5.0 s | 5.0 s | 1.25 | 0 of 2 |",
		"| operator | 0 ms | 0 ms | 100 ms |",
		"| kubelet: patch pods/status | 0 | 3 |",
		"| all of operator and node agent | 0 | 1 |",
		"| 2 | 10 ms | 20 ms | 20 ms |",
		"| 1000 | 1000 | again | 1000 | 3.0 s | 2.0 s | 100 MiB | 100 MiB | 40 MiB |",
		"The node agent of that node needed 20 MiB at most, and 18 MiB at the end, 12 MiB of it pages of files.",
		"grows by 10 KiB between 100 and 1000 Listeners",
		"had other work when some parts began",
	} {
		if !strings.Contains(string(page), words) {
			t.Errorf("the page lacks %q", words)
		}
	}
	if strings.Contains(string(page), "Not measured") {
		t.Error("the page lacks results")
	}
	for _, link := range regexp.MustCompile(`\]\((performance/[^)]+)\)`).FindAllStringSubmatch(string(page), -1) {
		content, err := os.ReadFile(filepath.Join(docs, link[1]))
		if err != nil {
			t.Error(err)
		}
		if filepath.Ext(link[1]) == ".svg" {
			checkPlot(t, link[1], content)
		}
	}
}

// checkPlot checks that a plot is well-formed, small, and readable on a dark page.
func checkPlot(t *testing.T, name string, content []byte) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(content)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(content) > 200<<10 {
		t.Errorf("%s has %d bytes", name, len(content))
	}
	if !regexp.MustCompile(`(?i)fill:\s*#FFFFFF`).Match(content) {
		t.Errorf("%s has no white background", name)
	}
}

func TestPartsThatWereNotMeasuredAreNamed(t *testing.T) {
	docs := t.TempDir()
	check.Must(t, report.Generate(docs, parts()[4:]))
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	check.Must(t, err)
	if got := strings.Count(string(page), "Not measured yet."); got != 4 {
		t.Errorf("%d sections are not measured, want 4:\n%s", got, page)
	}
	var out strings.Builder
	if err := report.Tables(&out, parts()[4:]); err != nil || !strings.Contains(out.String(), "the operator with many Listeners") {
		t.Errorf("error %v, tables:\n%s", err, out.String())
	}
}

// The page in the repository is generated, and its plots and results are those that belong to it.
func TestThePageInTheRepositoryIsCurrent(t *testing.T) {
	root, err := checkout.Root()
	check.Must(t, err)
	published, err := report.Published(filepath.Join(root, "docs"))
	check.Must(t, err)
	var measured []*result.Part
	for _, name := range []string{"starts", "bursts", "updates", "size-100", "size-1000", "size-10000"} {
		if part := published[name]; part != nil {
			measured = append(measured, part)
		}
	}
	want, err := report.Page(measured)
	check.Must(t, err)
	got, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	check.Must(t, err)
	check.Equal(t, "generate the page with `go -C test run ./bench -parts none`, or do not edit it", string(want), string(got))
}
