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
)

func TestProcessIsFoundByCommandLineUntilItExits(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000.25")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := launch(cmd, filepath.Join(t.TempDir(), "log"), cmd.Start); err != nil {
		t.Fatal(err)
	}
	found, err := processes(func(p process) bool { return p.pid == cmd.Process.Pid })
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	p := found[0]
	own, err := readProcess(os.Getpid())
	if err != nil || !slices.Equal(p.argv, cmd.Args) || p.pidNamespace != own.pidNamespace {
		t.Errorf("found %+v beside %+v, %v", p, own, err)
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Errorf("signalling a process that has exited: %v", err)
	}
}

func TestSignalIgnoresOtherProcessWithSameID(t *testing.T) {
	own, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own.argv = []string{"something", "else"}
	if err := own.signal(unix.SIGKILL); err != nil { // would end this test
		t.Fatal(err)
	}
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
