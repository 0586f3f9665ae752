package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/test/cluster/nodeinit/spec"
)

// machine is a simulated machine: a process namespace, and for nodes also a network, a mount and a host-name namespace,
// held by a nodeinit process. Killing that process is a power cut.
type machine struct {
	name string
	// dir is the directory of the machine's disk.
	dir string
	// logs is the directory of its log files.
	logs string
	// init is the nodeinit program.
	init string
	// namespaces are the namespaces that the machine does not share with the host, as flags of clone(2).
	namespaces uintptr
}

// daemon is a long-running program on a machine.
type daemon struct {
	name string
	argv []string
}

// allNamespaces are the namespaces that a program enters to run on a machine. Entering one that the machine shares with
// the host has no effect.
const allNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS

// startTimeout is how long a machine may take to start.
const startTimeout = 10 * time.Second

// killTimeout is how long the kernel may take to terminate all processes of a machine.
const killTimeout = 20 * time.Second

// specFile is the machine's specification, whose path also identifies its first process.
func (m machine) specFile() string { return filepath.Join(m.dir, "machine.json") }

// logFile is the file for a daemon's output.
func (m machine) logFile(daemon string) string {
	return filepath.Join(m.logs, m.name+"-"+daemon+".log")
}

// holders has the first processes of machines as they were last found, by the path of the specification. Whether they
// still run is looked up; that saves looking at all processes, for example for each connection from outside.
var holders sync.Map

// holder returns the machine's first process, or false if the machine is off.
func (m machine) holder() (process, bool, error) {
	isHolder := func(p process) bool {
		return len(p.argv) == 2 && p.argv[0] == m.init && p.argv[1] == m.specFile()
	}
	if last, ok := holders.Load(m.specFile()); ok {
		if p, err := readProcess(last.(process).pid); err == nil && isHolder(p) {
			return p, true, nil
		}
	}
	found, err := processes(isHolder)
	if err != nil || len(found) == 0 {
		return process{}, false, err
	}
	holders.Store(m.specFile(), found[0])
	return found[0], true, nil
}

// errNotRunning is returned when a machine is not running.
var errNotRunning = errors.New("is not running")

// running returns the machine's first process, or errNotRunning.
func (m machine) running() (process, error) {
	holder, ok, err := m.holder()
	if err == nil && !ok {
		err = fmt.Errorf("%s %w", m.name, errNotRunning)
	}
	return holder, err
}

// start starts the machine.
func (m machine) start(ctx context.Context, s spec.Machine) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of %s: %w", m.name, err)
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the specification of %s: %w", m.name, err)
	}
	if err := os.WriteFile(m.specFile(), data, 0o644); err != nil {
		return fmt.Errorf("writing the specification of %s: %w", m.name, err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("creating a pipe: %w", err)
	}
	defer func() { _ = reader.Close() }()
	cmd := exec.Command(m.init, m.specFile()) // does not end with a context
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: m.namespaces}
	if err := errors.Join(launch(cmd, m.logFile("init"), cmd.Start), writer.Close()); err != nil {
		return fmt.Errorf("starting %s: %w", m.name, err)
	}
	return m.awaitReady(ctx, reader)
}

// awaitReady waits until the machine's first process reports that the machine is set up.
func (m machine) awaitReady(ctx context.Context, reader *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = reader.SetReadDeadline(time.Now()) })
	defer stop()
	if err := reader.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	message, err := io.ReadAll(reader)
	if err == nil && string(message) == spec.Ready {
		return nil
	}
	return errors.Join(fmt.Errorf("%s did not start, see %s", m.name, m.logFile("init")), err, ctx.Err())
}

// ensure starts the machine by calling powerOn, unless it runs and its setup was completed. A machine whose setup was
// interrupted is restarted.
func (m machine) ensure(ctx context.Context, powerOn func() error) error {
	holder, ok, err := m.holder()
	if err != nil {
		return err
	}
	complete := filepath.Join(m.dir, "complete")
	if ok {
		if done, err := os.ReadFile(complete); err == nil && string(done) == holder.pidNamespace {
			return nil
		}
		if err := killHolder(ctx, holder); err != nil {
			return err
		}
	}
	if err := powerOn(); err != nil {
		return err
	}
	if holder, err = m.running(); err != nil {
		return err
	}
	if err := os.WriteFile(complete, []byte(holder.pidNamespace), 0o644); err != nil {
		return fmt.Errorf("recording that %s is set up: %w", m.name, err)
	}
	return nil
}

// kill stops the machine at once, with all its processes.
func (m machine) kill(ctx context.Context) error {
	holder, ok, err := m.holder()
	if err != nil || !ok {
		return err
	}
	return killHolder(ctx, holder)
}

// killHolder kills a machine's first process, and waits until the kernel has terminated all others of its namespace.
func killHolder(ctx context.Context, holder process) error {
	if err := holder.signal(unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	return holder.wait(ctx)
}

// find returns the daemon's process, or false if it does not run.
func (m machine) find(d daemon) (process, bool, error) {
	holder, ok, err := m.holder()
	if err != nil || !ok {
		return process{}, false, err
	}
	found, err := processes(func(p process) bool {
		return p.pidNamespace == holder.pidNamespace && p.argv[0] == d.argv[0]
	})
	if err != nil || len(found) == 0 {
		return process{}, false, err
	}
	return found[0], true, nil
}

// run starts daemons on the machine, one after the other, unless they are running.
func (m machine) run(daemons ...daemon) error {
	for _, d := range daemons {
		if err := m.runOne(d); err != nil {
			return err
		}
	}
	return nil
}

func (m machine) runOne(d daemon) error {
	if _, ok, err := m.find(d); err != nil || ok {
		return err
	}
	holder, err := m.running()
	if err != nil {
		return err
	}
	cmd := exec.Command(d.argv[0], d.argv[1:]...) // does not end with a context
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := launch(cmd, m.logFile(d.name), func() error { return startOn(holder, cmd) }); err != nil {
		return fmt.Errorf("starting %s on %s: %w", d.name, m.name, err)
	}
	return nil
}

// end sends a signal to a daemon, if it runs, and waits until it has exited.
func (m machine) end(ctx context.Context, d daemon, s unix.Signal) error {
	p, ok, err := m.find(d)
	if err != nil || !ok {
		return err
	}
	if err := p.signal(s); err != nil {
		return err
	}
	return p.wait(ctx)
}

// terminate sends SIGTERM to a daemon, and SIGKILL after a timeout.
func (m machine) terminate(ctx context.Context, d daemon) error {
	grace, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if m.end(grace, d, unix.SIGTERM) == nil {
		return nil
	}
	return m.end(ctx, d, unix.SIGKILL)
}

// exec runs a command on the machine and returns its output.
func (m machine) exec(ctx context.Context, stdin string, name string, args ...string) (string, error) {
	cmd, err := m.command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s on %s: %w: %s", filepath.Base(name), m.name, err, strings.TrimSpace(string(output)))
	}
	return string(output), nil
}

// command returns a command that will run on the machine. When ctx is done, it is killed with its children.
func (m machine) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	holder, err := m.running()
	if err != nil {
		return nil, err
	}
	flags := []string{"--target", strconv.Itoa(holder.pid), "--net", "--pid"}
	if m.namespaces&unix.CLONE_NEWNS != 0 {
		flags = append(flags, "--mount", "--uts")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(flags, "--", name), args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	return cmd, nil
}

// launch starts a command that outlives this process, with its output appended to a log file. When launch returns, the
// command can be found by its arguments, unless it has exited.
func launch(cmd *exec.Cmd, logFile string, start func() error) error {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening log file: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Setsid = true
	cmd.Dir = "/"
	// Not the caller's environment: proxy settings, for example, would redirect the cluster's own traffic.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	if err := start(); err != nil {
		return err
	}
	// While this process lives it is the parent and must reap it; afterwards the machine's first process does.
	go func() { _ = cmd.Wait() }()
	awaitExecuted(cmd.Process.Pid)
	return nil
}

// startOn starts a command in the namespaces of a machine's first process. The command is a child of this process, but
// is killed with the machine.
func startOn(holder process, cmd *exec.Cmd) error {
	return inNamespaces(holder, allNamespaces, cmd.Start)
}

// inNamespaces calls do on a thread that has entered the given namespaces of the holder. The thread ends afterwards.
func inNamespaces(holder process, namespaces int, do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without unlocking, so that the runtime ends the thread with this goroutine
		result <- func() error {
			fd, err := unix.PidfdOpen(holder.pid, 0)
			if err != nil {
				return fmt.Errorf("opening process %d: %w", holder.pid, err)
			}
			defer func() { _ = unix.Close(fd) }()
			// A thread that shares its working directory with others cannot enter a mount namespace.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("separating the thread: %w", err)
			}
			if err := unix.Setns(fd, namespaces); err != nil {
				return fmt.Errorf("entering the namespaces of process %d: %w", holder.pid, err)
			}
			return do()
		}()
	}()
	return <-result
}
