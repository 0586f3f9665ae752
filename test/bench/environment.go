package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

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
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return e, fmt.Errorf("reading the processor's name: %w", err)
	}
	e.Processor = field(string(processors), "model name")
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return e, fmt.Errorf("reading the size of the memory: %w", err)
	}
	if kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(field(string(memory), "MemTotal"), " kB"), 64); err == nil {
		e.MemoryGiB = kilobytes / (1 << 20)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return e, fmt.Errorf("reading the load: %w", err)
	}
	if first, _, ok := strings.Cut(string(load), " "); ok {
		e.Load, err = strconv.ParseFloat(first, 64)
	}
	return e, err
}

// field returns the value of the first line "name: value".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
