// Package growth finds work that grows faster than its input. It counts executed statements, and measures no time.
package growth

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count",
		"-coverpkg="+strings.Join(covered, ","), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the test to count statements: %v\n%s", err, out)
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			count := func(n int) uint64 {
				return statements(t.Context(), t, program, strings.SplitN(t.Name(), "/", 2)[0],
					fmt.Sprint(name, "=", n))
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
				t.Errorf("%d statements for an input of size %d, and %d for one %v times as large", once, work.Size,
					twice, larger)
			}
		})
	}
}

func statements(ctx context.Context, t *testing.T, program, test, work string) (total uint64) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	run := exec.CommandContext(ctx, program, "-test.run", "^"+test+"$", "-test.coverprofile", profile)
	run.Env = append(os.Environ(), variable+"="+work)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("running %s: %v\n%s", work, err, out)
	}
	file, err := os.Open(profile)
	check.Must(t, err)
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

// large is what the API server accepts of an object: 1.5 MB, or a list with entries of 75 bytes.
const large = 3 << 19

var text, entries = strings.Repeat("x", large), func() (names []string) {
	for i := range large / 75 {
		names = append(names, fmt.Sprintf("listeners.stackable.tech/%050d", i))
	}
	return names
}()

// CheckMemory fails the test if what keep returns of an object costs more than limit bytes, whichever of its fields is
// as large as the API server accepts. bases return objects of one type of which much is kept. Only their status may be
// large, which controllers alone write.
func CheckMemory(t *testing.T, limit int, keep func(client.Object) any, bases ...func() client.Object) {
	t.Helper()
	for i, base := range bases {
		all := fieldsOf(reflect.TypeOf(base()).Elem(), 0)
		if len(all) < 20 {
			t.Errorf("found %d fields", len(all))
		}
		for path, enlarge := range all {
			o := base()
			enlarge(reflect.ValueOf(o).Elem())
			if size := SizeOf(keep(o)); size > limit && !strings.HasPrefix(path, ".Status") {
				t.Errorf("object %d with a large %s costs %d bytes", i, path, size)
			}
		}
	}
}

func SizeOf(pointer any) int { return sizeOf(reflect.ValueOf(pointer)) }

func Heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc) //nolint:gosec // far below the maximum
}

// enlargements make a part of a value large, by the path of the part.
type enlargements map[string]func(reflect.Value)

// add adds the fields of a type. reach returns the value.
func (e enlargements) add(part string, t reflect.Type, depth int, reach func(reflect.Value) reflect.Value) {
	for path, enlarge := range fieldsOf(t, depth+1) {
		e[part+path] = func(v reflect.Value) { enlarge(reach(v)) }
	}
}

// fieldsOf returns functions that make each field of a type large.
func fieldsOf(t reflect.Type, depth int) enlargements {
	found := enlargements{}
	if depth > 12 { // of JSONSchemaProps and the like
		return found
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				found.add("."+f.Name, f.Type, depth, func(v reflect.Value) reflect.Value { return v.Field(i) })
			}
		}
	case reflect.Pointer:
		found.add("", t.Elem(), depth, func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				v.Set(reflect.New(t.Elem()))
			}
			return v.Elem()
		})
	case reflect.String:
		found[""] = func(v reflect.Value) { v.SetString(text) }
	case reflect.Map:
		found.ofMap(t, depth)
	case reflect.Slice:
		found.ofList(t, depth)
	}
	return found
}

// ofMap adds a map with many entries, and one in which a value is large.
func (e enlargements) ofMap(t reflect.Type, depth int) {
	fill := func(v reflect.Value, n int, value reflect.Value) {
		if v.IsNil() {
			v.Set(reflect.MakeMap(t))
		}
		for _, key := range entries[:n] {
			v.SetMapIndex(reflect.ValueOf(key).Convert(t.Key()), value)
		}
	}
	e["[]"] = func(v reflect.Value) { fill(v, len(entries), reflect.Zero(t.Elem())) }
	for path, enlarge := range fieldsOf(t.Elem(), depth+1) {
		e["[*]"+path] = func(v reflect.Value) {
			value := reflect.New(t.Elem()).Elem()
			enlarge(value)
			fill(v, 1, value)
			for _, key := range v.MapKeys() { // those that are read, too
				v.SetMapIndex(key, value)
			}
		}
	}
}

// ofList adds a list with many entries like its first one, and one in which a field of that is large.
func (e enlargements) ofList(t reflect.Type, depth int) {
	if t.Elem().Kind() == reflect.Uint8 {
		e["[]"] = func(v reflect.Value) { v.SetBytes([]byte(`{"f:` + text + `":{}}`)) }
		return
	}
	first := func(v reflect.Value) reflect.Value {
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(t, 1, 1))
		}
		return v.Index(0)
	}
	e["[]"] = func(v reflect.Value) {
		example, many := first(v), reflect.MakeSlice(t, len(entries), len(entries))
		for i, entry := range entries {
			many.Index(i).Set(example)
			if many.Index(i).Kind() != reflect.Struct {
				continue
			}
			if name := many.Index(i).FieldByName("Name"); name.Kind() == reflect.String {
				name.SetString(entry)
			}
		}
		v.Set(many)
	}
	e.add("[*]", t.Elem(), depth, first)
}

func sizeOf(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			size = int(v.Type().Elem().Size()) + sizeOf(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			size += sizeOf(field)
		}
	case reflect.String:
		size = v.Len()
	case reflect.Slice:
		size = v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += sizeOf(v.Index(i))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			size += int(v.Type().Key().Size() + v.Type().Elem().Size())
			size += sizeOf(entries.Key()) + sizeOf(entries.Value())
		}
	}
	return size
}
