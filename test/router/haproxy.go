package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// reloadTimeout is how long HAProxy may take to use only its new configuration.
const reloadTimeout = 20 * time.Second

// errHAProxyExited is returned when HAProxy exits unexpectedly.
var errHAProxyExited = errors.New("HAProxy has exited")

// haproxy is a HAProxy process and its directory.
type haproxy struct {
	dir    string
	output io.Writer
	// exited is closed when the process has exited; err is the reason.
	exited chan struct{}
	err    error
	cmd    *exec.Cmd
	files  map[string]string
}

// apply configures HAProxy with the files, and returns when no new connection is served with the previous ones. It
// starts HAProxy if necessary. Existing connections are kept.
func (h *haproxy) apply(ctx context.Context, files map[string]string) error {
	if maps.Equal(h.files, files) {
		return h.alive()
	}
	if err := h.write(files); err != nil {
		return err
	}
	if err := h.check(ctx); err != nil {
		return err
	}
	var err error
	if h.cmd == nil {
		err = h.start(ctx)
	} else {
		err = h.reload(ctx)
	}
	if err == nil {
		h.files = files
		h.tidy()
	}
	return err
}

// write writes the files to the directory, each atomically.
func (h *haproxy) write(files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return fmt.Errorf("replacing %s: %w", name, err)
		}
	}
	return nil
}

// tidy removes certificates that are no longer used.
func (h *haproxy) tidy() {
	for _, dir := range []string{"certificates", "destinations"} {
		entries, _ := os.ReadDir(filepath.Join(h.dir, dir)) // which may not exist
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			if _, used := h.files[name]; !used {
				_ = os.Remove(filepath.Join(h.dir, name))
			}
		}
	}
}

// check validates the files with HAProxy.
func (h *haproxy) check(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "haproxy", "-c", "-f", configFile)
	cmd.Dir = h.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("checking the configuration: %w\n%s", err, output)
	}
	return nil
}

// start starts HAProxy: a master process, with one worker for each configuration. It belongs to the process group of
// this process, so that killing the group kills both.
func (h *haproxy) start(ctx context.Context) error {
	cmd := exec.Command("haproxy", "-W", "-S", "unix@"+masterSocket, "-f", configFile) //nolint:noctx // stop stops it
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.dir, h.output, h.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting HAProxy: %w", err)
	}
	h.cmd, h.exited = cmd, make(chan struct{})
	go func() {
		h.err = errors.Join(errHAProxyExited, cmd.Wait())
		close(h.exited)
	}()
	return h.await(ctx, nil)
}

// reload starts a worker with the current files. The previous worker exits when its connections are closed.
func (h *haproxy) reload(ctx context.Context) error {
	before, err := h.workers()
	if err != nil {
		return err
	}
	if err := h.cmd.Process.Signal(unix.SIGUSR2); err != nil {
		return fmt.Errorf("reloading HAProxy: %w", errors.Join(err, h.alive()))
	}
	return h.await(ctx, before)
}

// stop stops HAProxy and closes its connections. Its master executes itself again for a reload, and loses a signal that
// arrives meanwhile.
func (h *haproxy) stop() {
	if h.cmd == nil {
		return
	}
	for {
		_ = h.cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-h.exited:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// alive returns an error if HAProxy has exited.
func (h *haproxy) alive() error {
	select {
	case <-h.exited:
		return h.err
	default:
		return nil
	}
}

// await waits until a new worker exists, and all previous ones have stopped accepting connections.
func (h *haproxy) await(ctx context.Context, before []string) error {
	last := errors.New("no response")
	err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, reloadTimeout, true, func(context.Context) (bool, error) {
		if err := h.alive(); err != nil {
			return false, err
		}
		last = h.settled(before)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		err = errors.Join(err, last)
	}
	if err != nil {
		return fmt.Errorf("waiting for HAProxy to use its new configuration: %w", err)
	}
	return nil
}

// settled returns an error while there is no new worker, or an old one still accepts connections.
func (h *haproxy) settled(before []string) error {
	now, err := h.workers()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(now, func(pid string) bool { return !slices.Contains(before, pid) }) {
		return errors.New("no new worker")
	}
	for _, pid := range now {
		if !slices.Contains(before, pid) {
			continue
		}
		info, err := h.query("@!" + pid + " show info")
		if err != nil {
			return err
		}
		if !strings.Contains(info, "\nStopping: 1\n") && strings.Contains(info, "\nPid: ") {
			return fmt.Errorf("worker %s still accepts connections", pid)
		}
	}
	return nil
}

// workers returns the process ids of all workers.
func (h *haproxy) workers() ([]string, error) {
	response, err := h.query("show proc")
	if err != nil {
		return nil, err
	}
	var pids []string
	for line := range strings.Lines(response) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "worker" {
			pids = append(pids, fields[0])
		}
	}
	return pids, nil
}

// query sends a command to the master process and returns the response.
func (h *haproxy) query(command string) (string, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(h.dir, masterSocket), Net: "unix"})
	if err != nil {
		return "", fmt.Errorf("connecting to HAProxy: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(reloadTimeout)); err != nil {
		return "", fmt.Errorf("setting a deadline: %w", err)
	}
	// HAProxy closes the connection only after the client has closed its side.
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", fmt.Errorf("querying HAProxy: %w", err)
	}
	if err := conn.CloseWrite(); err != nil {
		return "", fmt.Errorf("querying HAProxy: %w", err)
	}
	var response bytes.Buffer
	if _, err := response.ReadFrom(conn); err != nil {
		return "", fmt.Errorf("reading HAProxy's response: %w", err)
	}
	return response.String(), nil
}
