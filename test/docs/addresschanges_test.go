package docs

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// TestExamplesNoticeThatAVolumeIsRewritten runs each example of address-changes.md while a volume is rewritten, with
// the path of the volume instead of /listener.
func TestExamplesNoticeThatAVolumeIsRewritten(t *testing.T) {
	page := read(t, "address-changes.md")
	for language, run := range map[string]struct {
		file    string
		command []string // the file is appended
		more    []string // arguments
	}{
		"shell": {"run.sh", []string{"sh"}, []string{"sh", "-c", "echo advertising $LISTENER_ADDRESS; exec sleep 60"}},
		"go":    {"main.go", []string{"go", "run"}, nil},
		"java":  {"Advertise.java", []string{"java"}, nil},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(run.command[0]); err != nil {
				t.Skipf("it needs %s", run.command[0])
			}
			_, after, found := strings.Cut(page, "```"+language+"\n")
			example, _, _ := strings.Cut(after, "\n```")
			if !found || !strings.Contains(example, "/listener/") {
				t.Fatalf("address-changes.md has no example in %s that reads below /listener", language)
			}
			v := newVolume(t)
			file := filepath.Join(t.TempDir(), run.file)
			check.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(example, "/listener/", v.path+"/")), 0o600))
			v.write("192.0.2.1")
			arguments := append(append(run.command[1:], file), run.more...)
			lines := start(t, exec.CommandContext(t.Context(), run.command[0], arguments...)) //nolint:gosec // as listed above
			for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
				v.write(address)
				awaitLine(t, lines, address)
			}
		})
	}
}

// It ends with its status, so that the kubelet restarts the container; and when the Pod is deleted.
func TestTheShellExampleEndsWithItsProgram(t *testing.T) {
	page := read(t, "address-changes.md")
	_, after, _ := strings.Cut(page, "```shell\n")
	example, _, _ := strings.Cut(after, "\n```")
	v := newVolume(t)
	v.write("192.0.2.1")
	file := filepath.Join(t.TempDir(), "run.sh")
	check.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(example, "/listener/", v.path+"/")), 0o600))
	command := exec.CommandContext(t.Context(), "sh", file, "sh", "-c", "exit 3")
	if err := command.Run(); command.ProcessState.ExitCode() != 3 {
		t.Errorf("the program ends with 3, and the script with %v", err)
	}
	command = exec.CommandContext(t.Context(), "sh", file, "sh", "-c", "trap 'echo ended; exit 4' TERM; echo started; sleep 60 & wait")
	lines := start(t, command)
	awaitLine(t, lines, "started")
	check.Must(t, command.Process.Signal(syscall.SIGTERM))
	awaitLine(t, lines, "ended")
}

// nodeVolume is a volume as the node agent publishes it.
type nodeVolume struct {
	*testing.T
	host   *volume.Host
	target volume.Target
	path   string
}

func newVolume(t *testing.T) *nodeVolume {
	t.Helper()
	kubelet := t.TempDir()
	path := filepath.Join(kubelet, "pods", "0b0b0b0b", "volumes", "kubernetes.io~csi", "pvc-1", "mount")
	check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	host := volume.NewHost(kubelet)
	target, err := host.Parse(path)
	check.Must(t, err)
	target.Namespace = "shop"
	return &nodeVolume{t, host, target, path}
}

func (v *nodeVolume) write(address string) {
	v.Helper()
	if _, err := v.host.Write(v.target, []listenersv1alpha1.IngressAddress{
		{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 31080}},
	}); err != nil {
		v.Fatal(err)
	}
}

// start starts a command, and returns the lines that it prints. The command is killed when the test ends.
func start(t *testing.T, command *exec.Cmd) <-chan string {
	t.Helper()
	out, in := io.Pipe()
	command.Stdout, command.Stderr = in, in
	command.WaitDelay = time.Second // its children have the pipe, too
	check.Must(t, command.Start())
	t.Cleanup(func() { _ = out.Close() })
	go func() { _ = in.CloseWithError(command.Wait()) }()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// awaitLine waits until a line contains the words.
func awaitLine(t *testing.T, lines <-chan string, words string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatalf("the example has ended before it printed %s", words)
			}
			if strings.Contains(line, words) {
				return
			}
			t.Log(line)
		case <-deadline:
			t.Fatalf("the example does not print %s", words)
		}
	}
}
