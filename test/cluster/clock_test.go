package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// clockVariable makes this test binary print its clock each time that it reads a line.
const clockVariable = "PRINT_CLOCK"

// TestAReplacedClockJumps lets the clock of another process jump an hour ahead, and back.
func TestAReplacedClockJumps(t *testing.T) {
	if os.Getenv(clockVariable) != "" {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println("clock", time.Now().Unix())
		}
		return
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("needs an amd64 processor")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), clockVariable+"=yes")
	input, err := cmd.StdinPipe()
	check.Must(t, err)
	output, err := cmd.StdoutPipe()
	check.Must(t, err)
	check.Must(t, cmd.Start())
	defer func() { _ = errors.Join(input.Close(), cmd.Wait()) }()
	lines := bufio.NewScanner(output)
	expect := func(want time.Duration) {
		t.Helper()
		if _, err := fmt.Fprintln(input); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if now, ok := strings.CutPrefix(lines.Text(), "clock "); ok {
				seconds, err := strconv.ParseInt(now, 10, 64)
				check.Must(t, err)
				if got := time.Until(time.Unix(seconds, 0)); (got - want).Abs() > 15*time.Minute {
					t.Errorf("the clock is %s ahead, want %s", got, want)
				}
				return
			}
		}
		t.Fatalf("the process has exited: %v", lines.Err())
	}
	start, original, err := clockFunction()
	check.Must(t, err)
	jumped := jumpedClock(time.Hour)
	replace := func(code []byte) {
		t.Helper()
		if err := until(t.Context(), func() (bool, error) {
			if err := unix.Kill(cmd.Process.Pid, unix.SIGSTOP); err != nil {
				return false, err
			}
			defer func() { _ = unix.Kill(cmd.Process.Pid, unix.SIGCONT) }()
			r := replacement{process: filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid))}
			if ok, err := r.find(t.Context()); err != nil || !ok {
				return false, err
			}
			return true, r.write(start, code)
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect(0)
	replace(jumped)
	expect(time.Hour)
	replace(original[:len(jumped)])
	expect(0)
}
