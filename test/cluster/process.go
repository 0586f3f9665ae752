package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running program in /proc. What runs is never recorded, because a record could be outdated after a crash,
// an interrupt or a reboot.
type process struct {
	pid int
	// argv is the command line.
	argv []string
	// pidNamespace identifies its process namespace.
	pidNamespace string
}

// processes returns all processes on the host that match, without those that exit meanwhile and zombies.
func processes(match func(process) bool) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := readProcess(pid)
		if err == nil && len(p.argv) > 0 && match(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// readProcess reads one process. A zombie has no command line, and neither has a process whose program the kernel is
// starting.
func readProcess(pid int) (process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return process{}, err
	}
	namespace, err := os.Readlink(filepath.Join(dir, "ns", "pid"))
	if err != nil {
		return process{}, err
	}
	p := process{pid: pid, pidNamespace: namespace}
	if cmdline = bytes.TrimSuffix(cmdline, []byte{0}); len(cmdline) > 0 {
		p.argv = strings.Split(string(cmdline), "\x00")
	}
	return p, nil
}

// awaitExecuted waits until a process that was just started has its command line, or has exited. exec.Cmd.Start returns
// earlier: it waits until the kernel closes the old program's files, which happens before the new arguments are set up.
func awaitExecuted(pid int) {
	for {
		if p, err := readProcess(pid); err != nil || len(p.argv) > 0 || p.exited() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// signal sends a signal to the process unless it has exited.
func (p process) signal(s unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", p.pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The file descriptor keeps the process ID from being reused. Check that it was not reused before.
	now, err := readProcess(p.pid)
	if err != nil || now.pidNamespace != p.pidNamespace || !slices.Equal(now.argv, p.argv) {
		return nil //nolint:nilerr // it has exited
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return nil
}

// exited reports whether the process has exited, even if its parent has not reaped it. A process without a command line
// may not have exited: the first process of a namespace then still waits for all others.
func (p process) exited() bool {
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return true
	}
	if _, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")); !ok || bytes.ContainsAny(state[:1], "ZX") {
		return true
	}
	namespace, err := os.Readlink(filepath.Join(dir, "ns", "pid"))
	return err == nil && namespace != p.pidNamespace // the process ID was reused
}

// wait waits until the process has exited.
func (p process) wait(ctx context.Context) error {
	if err := until(ctx, func() (bool, error) { return p.exited(), nil }); err != nil {
		return fmt.Errorf("waiting for process %d (%s) to exit: %w", p.pid, filepath.Base(p.argv[0]), err)
	}
	return nil
}
