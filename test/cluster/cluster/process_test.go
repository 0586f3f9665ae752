package cluster

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcessIsFoundByItsCommandLineUntilItEnds(t *testing.T) {
	// A program has no command line until the kernel has finished its exec(2), which Start does not wait for; that this
	// one answers shows that it has.
	cmd := exec.CommandContext(t.Context(), "cat", "-u")
	input, output := startedPipes(t, cmd)
	if _, err := input.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(output, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
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
	<-ended
	if err := p.signal(unix.SIGKILL); err != nil {
		t.Errorf("signalling a process that has ended: %v", err)
	}
}

// startedPipes starts the program and returns its standard input and output.
func startedPipes(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, io.ReadCloser) {
	t.Helper()
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return input, output
}

func TestAnotherProcessOfTheSameNumberIsLeftAlone(t *testing.T) {
	own, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own.argv = []string{"something", "else"}
	if err := own.signal(unix.SIGKILL); err != nil { // would end this test
		t.Fatal(err)
	}
}

func TestMachineThatWasNeverStartedIsOff(t *testing.T) {
	m := newTestCluster(t).node(1)
	if _, ok, err := m.holder(); ok || err != nil {
		t.Errorf("the machine runs: %t, %v", ok, err)
	}
	if err := m.kill(t.Context()); err != nil {
		t.Errorf("stopping it: %v", err)
	}
	cmd := newTestCluster(t).ClientCommand(t.Context(), "true")
	if err := cmd.Run(); err == nil {
		t.Error("a command ran on a machine that is off")
	}
}
