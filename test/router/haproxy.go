package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// reloadTimeout is how long HAProxy may take until only its new configuration counts.
const reloadTimeout = 20 * time.Second

// errHAProxyEnded means that HAProxy is gone without being asked to.
var errHAProxyEnded = errors.New("HAProxy has ended")

// haproxy is a HAProxy process and its directory.
type haproxy struct {
	dir    string
	output io.Writer
	// ended is closed when the process has ended, which err then explains.
	ended chan struct{}
	err   error
	cmd   *exec.Cmd
	files map[string]string
}

// apply makes HAProxy work as the files say, and returns when no connection will be served by the former ones any more.
// It starts HAProxy if need be. Connections that exist are kept.
func (h *haproxy) apply(ctx context.Context, files map[string]string) error {
	if mapsEqual(h.files, files) {
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

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}

// write writes the files into the directory, each at once.
func (h *haproxy) write(files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
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

// tidy removes certificates that nothing refers to any more.
func (h *haproxy) tidy() {
	for _, dir := range []string{"certificates", "destinations"} {
		_ = filepath.WalkDir(filepath.Join(h.dir, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil //nolint:nilerr // there may be none
			}
			name, err := filepath.Rel(h.dir, file)
			if _, used := h.files[name]; err == nil && !used {
				err = os.Remove(file)
			}
			return err
		})
	}
}

// check lets HAProxy find out whether it understands the files.
func (h *haproxy) check(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "haproxy", "-c", "-f", configFile)
	cmd.Dir = h.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("checking the configuration: %w\n%s", err, output)
	}
	return nil
}

// start starts HAProxy: a master, which never ends, with one worker for each configuration. It belongs to this
// process's group, so that who kills the group kills both.
func (h *haproxy) start(ctx context.Context) error {
	cmd := exec.Command("haproxy", "-W", "-S", "unix@"+masterSocket, "-f", configFile) //nolint:noctx // it is stopped by stop
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.dir, h.output, h.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting HAProxy: %w", err)
	}
	h.cmd, h.ended = cmd, make(chan struct{})
	go func() {
		h.err = errors.Join(errHAProxyEnded, cmd.Wait())
		close(h.ended)
	}()
	return h.await(ctx, nil)
}

// reload starts a worker with the files as they are now and ends the present one as soon as its connections have ended.
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

// stop ends HAProxy with all its connections.
func (h *haproxy) stop() {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Signal(unix.SIGTERM)
	<-h.ended
}

// alive returns an error if HAProxy has ended.
func (h *haproxy) alive() error {
	select {
	case <-h.ended:
		return h.err
	default:
		return nil
	}
}

// await waits until there is a worker that was not there before, and all that were have stopped to accept connections.
func (h *haproxy) await(ctx context.Context, before []string) error {
	last := errors.New("no answer")
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
		return fmt.Errorf("waiting for HAProxy's new configuration to count: %w", err)
	}
	return nil
}

// settled returns an error as long as there is no new worker, or an old one still accepts connections.
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
		info, err := h.ask("@!" + pid + " show info")
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
	answer, err := h.ask("show proc")
	if err != nil {
		return nil, err
	}
	var pids []string
	for line := range strings.Lines(answer) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "worker" {
			pids = append(pids, fields[0])
		}
	}
	return pids, nil
}

// ask sends a command to the master.
func (h *haproxy) ask(command string) (string, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(h.dir, masterSocket), Net: "unix"})
	if err != nil {
		return "", fmt.Errorf("connecting to HAProxy: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(reloadTimeout)); err != nil {
		return "", fmt.Errorf("setting a deadline: %w", err)
	}
	// HAProxy ends the connection only when nothing more can come.
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", fmt.Errorf("asking HAProxy: %w", err)
	}
	if err := conn.CloseWrite(); err != nil {
		return "", fmt.Errorf("asking HAProxy: %w", err)
	}
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(conn); err != nil {
		return "", fmt.Errorf("reading HAProxy's answer: %w", err)
	}
	return answer.String(), nil
}
