package pods

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/listener-operator/listener-operator/test/bench/memory"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

// ticks is the number of clock ticks per second in /proc, which Linux defines for all architectures.
const ticks = 100

// process is an entry of /proc.
type process struct {
	program string
	// cluster states that the command names a file of the cluster.
	cluster bool
	parent  int
	// seconds is its CPU time, including its children that have ended.
	seconds float64
}

// components are the programs whose CPU time is reported. Others count as "containers": the pause programs of Pods,
// runc, the shims of containerd, and the network plugins.
var components = map[string]string{
	"kube-apiserver": "kube-apiserver", "etcd": "etcd", "kube-controller-manager": "kube-controller-manager", "kube-scheduler": "kube-scheduler",
	"kubelet": "kubelet", "kube-proxy": "kube-proxy", "containerd": "containerd", "operator": "operator", "node-agent": "node agent",
}

// processes returns the cluster's processes by their pid.
func (b *Bench) processes() (map[int]process, error) {
	dir := filepath.Dir(b.cluster.Kubeconfig())
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	all := map[int]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid, dir); ok {
			all[pid] = p
		}
	}
	own := map[int]process{}
	for pid, p := range all {
		if belongs(all, p) {
			own[pid] = p
		}
	}
	return own, nil
}

// agentMemory returns the memory of the node agent that has used most.
func (b *Bench) agentMemory() (*result.Memory, error) {
	all, err := b.processes()
	if err != nil {
		return nil, err
	}
	var most *result.Memory
	for pid, p := range all {
		if components[p.program] != "node agent" {
			continue
		}
		m, err := memory.Of(pid)
		if err != nil {
			return nil, err
		}
		if most == nil || m.Peak > most.Peak {
			most = &m
		}
	}
	return most, nil
}

// processorTimes returns the CPU time in seconds of the cluster's processes so far, by component.
func (b *Bench) processorTimes() (map[string]float64, error) {
	all, err := b.processes()
	if err != nil {
		return nil, err
	}
	times := map[string]float64{}
	for _, p := range all {
		component, ok := components[p.program]
		if !ok {
			component = "containers"
		}
		times[component] += p.seconds
	}
	return times, nil
}

// belongs reports whether a process, or an ancestor of it, is a program of the cluster.
func belongs(all map[int]process, p process) bool {
	for !p.cluster {
		parent, ok := all[p.parent]
		if !ok {
			return false
		}
		p = parent
	}
	return true
}

// readProcess reads a process. It reports false if the process has ended, and for threads of the kernel.
func readProcess(pid int, clusterDir string) (process, bool) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	command, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || len(command) == 0 {
		return process{}, false
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return process{}, false
	}
	program, _, _ := bytes.Cut(command, []byte{0})
	// The second field, the name, may contain anything, and ends at the last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return process{}, false
	}
	p := process{program: filepath.Base(string(program)), cluster: bytes.Contains(command, []byte(clusterDir))}
	p.parent, _ = strconv.Atoi(fields[1])
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		value, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return process{}, false
		}
		p.seconds += value / ticks
	}
	return p, true
}
