// Package growth finds work that grows faster than its input. It counts executed statements, and measures no time.
package growth

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// maxGrowth is how much the work may grow in proportion to the input: a sort of n entries takes n*log(n) comparisons.
const maxGrowth = 1.25

// Work is what is done with an input of a size n. Its name begins with the kind of the objects that are the input, as
// in "Pod: volumes and ports". If there are n of two things, such as Pods and policies, the input is the sum: what one
// tenant writes must not be compared with all that another one writes, each with each.
type Work struct {
	// Size is the smaller n that is tried. The other one is twice as large.
	Size int
	// Product states that the input has n things with n entries each, and so is four times as large with a double n.
	Product bool
	Do      func(n int)
}

// variable is the environment variable by which the test tells its processes which work to do: its name, and the size.
const variable = "GROWTH"

// CheckLinear fails the test if any work executes more statements of the covered packages, which are patterns of go
// test's -coverpkg, than in proportion to its input. It runs the calling test in other processes, which are built to
// count statements. The inputs should be made in files of tests, whose statements are not counted.
func CheckLinear(t *testing.T, works map[string]Work, covered ...string) {
	if name, size, ok := strings.Cut(os.Getenv(variable), "="); ok {
		if n, err := strconv.Atoi(size); err == nil && n > 0 {
			works[name].Do(n)
		}
		return
	}
	program := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count", "-coverpkg="+strings.Join(covered, ","), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the test to count statements: %v\n%s", err, out)
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			count := func(n int) uint64 {
				return statements(t.Context(), t, program, strings.SplitN(t.Name(), "/", 2)[0], fmt.Sprint(name, "=", n))
			}
			start := count(0)
			once, twice := count(work.Size)-start, count(2*work.Size)-start
			t.Logf("%s: %d statements for %d, %d for %d", name, once, work.Size, twice, 2*work.Size)
			if once == 0 {
				t.Error("no statement was executed")
			}
			larger := 2.0
			if work.Product {
				larger = 4
			}
			if float64(twice) > maxGrowth*larger*float64(once) {
				t.Errorf("%d statements for an input of size %d, and %d for one %v times as large", once, work.Size, twice, larger)
			}
		})
	}
}

// statements runs a program and returns how many statements it executed.
func statements(ctx context.Context, t *testing.T, program, test, work string) (total uint64) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.CommandContext(ctx, program, "-test.run", "^"+test+"$", "-test.coverprofile", profile)
	run.Env = append(os.Environ(), variable+"="+work)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("running %s: %v\n%s", work, err, out)
	}
	file, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var number, executed uint64
		// file.go:1.2,3.4 number executed
		if _, counts, ok := strings.Cut(lines.Text(), " "); ok {
			if _, err := fmt.Sscan(counts, &number, &executed); err == nil {
				total += number * executed
			}
		}
	}
	return total
}
