package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/test/bench/result"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// environment describes this machine and what is measured on it.
func environment(ctx context.Context, now time.Time) (result.Environment, error) {
	e := result.Environment{Date: now.UTC().Truncate(time.Second), Go: runtime.Version(), CPUs: runtime.NumCPU()}
	kubernetes, err := tools.Ensure(ctx, "kubernetes")
	if err != nil {
		return e, err
	}
	for _, command := range []struct {
		value  *string
		prefix string
		name   string
		args   []string
	}{
		{&e.Commit, "", "git", []string{"describe", "--always", "--dirty"}},
		{&e.Kubernetes, "Kubernetes v", filepath.Join(kubernetes, "kube-apiserver"), []string{"--version"}},
		{&e.Kernel, "", "uname", []string{"-sr"}},
	} {
		output, err := exec.CommandContext(ctx, command.name, command.args...).Output()
		if err != nil {
			return e, fmt.Errorf("running %s: %w", command.name, err)
		}
		*command.value = strings.TrimPrefix(strings.TrimSpace(string(output)), command.prefix)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return e, fmt.Errorf("opening /proc: %w", err)
	}
	processors, err := proc.CPUInfo()
	if err != nil {
		return e, fmt.Errorf("reading the processor's name: %w", err)
	}
	if len(processors) > 0 {
		e.Processor = processors[0].ModelName
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return e, fmt.Errorf("reading the size of the memory: %w", err)
	}
	e.MemoryGiB = float64(ptr.Deref(memory.MemTotalBytes, 0)) / (1 << 30)
	e.Busy, err = busyProcessors(ctx, proc, e.CPUs)
	return e, err
}

// busyDuration is the time for which the work of the machine before a part is measured.
const busyDuration = 5 * time.Second

// busyProcessors returns how many of the processors are not idle for busyDuration, on average. Unlike the load average,
// it does not count the part before.
func busyProcessors(ctx context.Context, proc procfs.FS, cpus int) (float64, error) {
	before, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the times of the processors: %w", err)
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(busyDuration):
	}
	after, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the times of the processors: %w", err)
	}
	return busyBetween(before.CPUTotal, after.CPUTotal, cpus)
}

// busyBetween returns how many of the processors were not idle between two readings of their times, on average.
func busyBetween(before, after procfs.CPUStat, cpus int) (float64, error) {
	all := allTimes(after) - allTimes(before)
	if all <= 0 {
		return 0, errors.New("the times of the processors have not changed")
	}
	return float64(cpus) * (1 - (idleTimes(after)-idleTimes(before))/all), nil
}

// idleTimes returns the seconds in which processors did nothing.
func idleTimes(t procfs.CPUStat) float64 { return t.Idle + t.Iowait }

// allTimes returns the seconds that have passed, of all processors together. Times of guests are part of others.
func allTimes(t procfs.CPUStat) float64 {
	return idleTimes(t) + t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
}
