package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestProcessIsFoundByCommandLineUntilItExits(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000.25")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	check.Must(t, launch(cmd, filepath.Join(t.TempDir(), "log"), cmd.Start))
	found, err := processes(func(p process) bool { return p.pid == cmd.Process.Pid })
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	p := found[0]
	own, err := readProcess(os.Getpid())
	if err != nil || !slices.Equal(p.argv, cmd.Args) || p.pidNamespace != own.pidNamespace {
		t.Errorf("found %+v beside %+v, %v", p, own, err)
	}
	check.Must(t, p.signal(unix.SIGKILL))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	check.Must(t, p.wait(ctx))
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Errorf("signalling a process that has exited: %v", err)
	}
}

func TestSignalIgnoresOtherProcessWithSameID(t *testing.T) {
	own, err := readProcess(os.Getpid())
	check.Must(t, err)
	own.argv = []string{"something", "else"}
	check.Must(t, own.signal(unix.SIGKILL)) // would end this test
}

func TestMachineThatWasNeverStartedIsNotRunning(t *testing.T) {
	m := newTestCluster(t).node(1)
	if _, ok, err := m.holder(); ok || err != nil {
		t.Errorf("the machine runs: %t, %v", ok, err)
	}
	if err := m.kill(t.Context()); err != nil {
		t.Errorf("stopping it: %v", err)
	}
	cmd := newTestCluster(t).ClientCommand(t.Context(), "true")
	if err := cmd.Run(); err == nil {
		t.Error("a command ran on a machine that is not running")
	}
}
