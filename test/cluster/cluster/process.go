package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a running program as /proc shows it. What runs is always looked up, never remembered: no record can be
// out of date after a crash, an interrupt or a reboot.
type process struct {
	pid int
	// argv is the command line.
	argv []string
	// pidNamespace identifies the process namespace that it lives in.
	pidNamespace string
}

// processes returns all processes of the machine that match. Those that end meanwhile, and zombies, are left out.
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

// readProcess reads one process. A zombie has no command line.
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
	cmdline = bytes.TrimSuffix(cmdline, []byte{0})
	if len(cmdline) == 0 {
		return process{pid: pid}, nil
	}
	return process{pid: pid, argv: strings.Split(string(cmdline), "\x00"), pidNamespace: namespace}, nil
}

// signal sends a signal to the process unless it has ended.
func (p process) signal(s unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", p.pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// From here on the number cannot come to mean another process; make sure that it did not before.
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return nil
}

// alive tells whether the process still runs.
func (p process) alive() bool {
	now, err := readProcess(p.pid)
	return err == nil && now.pidNamespace == p.pidNamespace && strings.Join(now.argv, " ") == strings.Join(p.argv, " ")
}

// wait waits until the process has ended.
func (p process) wait(ctx context.Context) error {
	if err := until(ctx, func() (bool, error) { return !p.alive(), nil }); err != nil {
		return fmt.Errorf("waiting for process %d (%s) to end: %w", p.pid, filepath.Base(p.argv[0]), err)
	}
	return nil
}
