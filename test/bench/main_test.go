package main

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/bench/report"
	"github.com/listener-operator/listener-operator/test/bench/result"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// A part that is there is not measured again, and a part of the page that was not measured here stays in the page.
func TestOnlyMissingPartsAreMeasured(t *testing.T) {
	dir := t.TempDir()
	store, docs := result.Store(filepath.Join(dir, "out")), filepath.Join(dir, "docs")
	published := &result.Part{Name: "updates", Updates: &result.Updates{Milliseconds: []float64{1}}}
	check.Must(t, report.Generate(docs, []*result.Part{published}))
	stored := &result.Part{Name: "starts", Starts: &result.Starts{Variants: []result.Variant{{Name: "emptyDir", Milliseconds: []float64{1}}}}}
	check.Must(t, store.Save(stored))
	var out bytes.Buffer
	options := options{out: string(store), docs: docs, parts: "starts"}
	check.Must(t, run(t.Context(), options, &out, &out))
	got, err := report.Published(docs)
	check.Must(t, err)
	check.Equal(t, "results behind the page", map[string]*result.Part{"starts": stored, "updates": published}, got)
}

// Waiting for disks is idle, and the time that a hypervisor takes is not. The time of users includes guests.
func TestProcessorsThatAreNotIdleAreBusy(t *testing.T) {
	before := procfs.CPUStat{User: 100, System: 50, Idle: 1000}
	after := procfs.CPUStat{User: 102, System: 51, Idle: 1005, Iowait: 1, Steal: 1, Guest: 2}
	if busy, err := busyBetween(before, after, 2); err != nil || math.Abs(busy-0.8) > 1e-9 {
		t.Errorf("%v busy processors (%v), want 0.8 of 2", busy, err)
	}
	if busy, err := busyBetween(after, after, 2); err == nil {
		t.Errorf("%v busy processors in no time, want an error", busy)
	}
}

func TestPartsAreSelected(t *testing.T) {
	for name, tc := range map[string]struct {
		options options
		want    []string
	}{
		"all":        {options{}, []string{"starts", "bursts", "updates", "size-100", "size-1000", "size-10000"}},
		"quick":      {options{quick: true}, []string{"starts", "bursts", "updates", "size-100"}},
		"two":        {options{parts: "bursts,size-1000"}, []string{"bursts", "size-1000"}},
		"none":       {options{parts: "none"}, nil},
		"an unknown": {options{parts: "startz"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{options: tc.options, progress: cluster.NewProgress(nil)}
			got, err := b.selected()
			if (err != nil) != (name == "an unknown") {
				t.Errorf("error %v", err)
			}
			check.Equal(t, "parts", tc.want, got)
		})
	}
}
