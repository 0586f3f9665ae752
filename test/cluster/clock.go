package cluster

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JumpClock changes the wall clock of a node by an offset in whole seconds, until the returned function is called. All
// processes that run on the node, also those in containers, see the jump; those that start later do not. It is
// implemented for amd64 only, and for programs that read the clock as Go programs do.
//
// The kernel has one wall clock for all namespaces. But Go programs read it by a function that the kernel maps into
// each process, and that can be replaced there.
func (c *Cluster) JumpClock(ctx context.Context, node int, offset time.Duration) (restore func(context.Context) error, err error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("changing the clock of a node on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	start, original, err := clockFunction()
	if err != nil {
		return nil, fmt.Errorf("finding the function that reads the clock: %w", err)
	}
	replacement := jumpedClock(offset)
	restore = func(ctx context.Context) error {
		return c.replaceOnNode(ctx, node, start, original[:len(replacement)])
	}
	if err := c.replaceOnNode(ctx, node, start, replacement); err != nil {
		return nil, errors.Join(err, restore(ctx))
	}
	return restore, nil
}

// jumpedClock returns the machine code of a clock_gettime(2) that adds an offset to the wall clock:
//
//	  mov  eax, 228      ; the number of the system call
//	  syscall
//	  test edi, edi      ; the wall clock has number 0
//	  jne  end
//	  mov  rdx, OFFSET
//	  add  [rsi], rdx    ; the seconds
//	end:
//	  ret
func jumpedClock(offset time.Duration) []byte {
	code := []byte{0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0d, 0x48, 0xba}
	code = binary.LittleEndian.AppendUint64(code, uint64(offset/time.Second)) //nolint:gosec // two's complement
	return append(code, 0x48, 0x01, 0x16, 0xc3)
}

// clockFunction returns where in the vDSO, the library that the kernel maps into each process, the function starts that
// reads the clocks, and its code. The library is the same in all processes.
func clockFunction() (start uint64, code []byte, err error) {
	mapped, err := vdso("/proc/self")
	if err != nil {
		return 0, nil, err
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = memory.Close() }()
	image := make([]byte, mapped.end-mapped.start)
	if _, err := memory.ReadAt(image, int64(mapped.start)); err != nil { //nolint:gosec // an address in user space
		return 0, nil, err
	}
	library, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, nil, err
	}
	symbols, err := library.DynamicSymbols()
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		return 0, nil, errors.New("the vDSO has no __vdso_clock_gettime")
	}
	return symbols[i].Value, image[symbols[i].Value : symbols[i].Value+symbols[i].Size], nil
}

// addresses is a range of addresses of a process.
type addresses struct{ start, end uint64 }

// vdso returns where the vDSO is in a process, by its directory in /proc. The error is fs.ErrNotExist if it has exited,
// also if its parent, which may be stopped, has not waited for it yet.
func vdso(process string) (addresses, error) {
	maps, err := os.ReadFile(filepath.Join(process, "maps"))
	if err != nil {
		return addresses{}, err
	}
	if len(maps) == 0 {
		return addresses{}, fmt.Errorf("%s has exited: %w", process, fs.ErrNotExist)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			var found addresses
			_, err := fmt.Sscanf(line, "%x-%x", &found.start, &found.end)
			return found, err
		}
	}
	return addresses{}, fmt.Errorf("%s has no vDSO", process)
}

// replaceOnNode replaces code in the vDSO of all processes of a node. Meanwhile they are stopped.
func (c *Cluster) replaceOnNode(ctx context.Context, node int, start uint64, code []byte) error {
	m := c.node(node)
	holder, err := m.running()
	if err != nil {
		return err
	}
	proc := filepath.Join("/proc", strconv.Itoa(holder.pid), "root/proc")
	return until(ctx, func() (bool, error) {
		pids, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
		if err != nil {
			return false, err
		}
		all := []string{}
		for _, p := range pids {
			if pid := filepath.Base(p); pid != "1" { // nodeinit, which cannot be stopped, has no use for the time
				all = append(all, pid)
			}
		}
		// Some may have exited, which kill reports, after it has signalled the others.
		signal := func(name string) { _, _ = m.exec(ctx, "", "kill", append([]string{"-" + name}, all...)...) }
		signal("STOP")
		defer signal("CONT")
		var ready []replacement
		for _, pid := range all {
			r := replacement{process: filepath.Join(proc, pid)}
			if ok, err := r.find(ctx); errors.Is(err, fs.ErrNotExist) {
				continue // it has exited
			} else if err != nil || !ok {
				return false, err
			}
			ready = append(ready, r)
		}
		var errs []error
		for _, r := range ready {
			errs = append(errs, r.write(start, code))
		}
		return true, errors.Join(errs...)
	})
}

// replacement replaces code in the vDSO of a stopped process.
type replacement struct {
	// process is its directory in /proc.
	process string
	vdso    addresses
}

// find finds the vDSO of the process, and reports whether the process has stopped elsewhere.
func (r *replacement) find(ctx context.Context) (bool, error) {
	var err error
	if r.vdso, err = vdso(r.process); err != nil {
		return false, err
	}
	threads, err := filepath.Glob(filepath.Join(r.process, "task", "[0-9]*"))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		var at uint64
		if err := until(ctx, func() (bool, error) { // the signal takes effect when the thread runs next
			state, err := os.ReadFile(filepath.Join(thread, "syscall"))
			fields := strings.Fields(string(state))
			if err != nil || len(fields) < 2 {
				return false, err // "running"
			}
			at, err = strconv.ParseUint(fields[len(fields)-1], 0, 64) // the address of the next instruction
			return true, err
		}); err != nil {
			return false, err
		}
		if r.vdso.start <= at && at < r.vdso.end {
			return false, nil
		}
	}
	return true, nil
}

// write writes the code.
func (r *replacement) write(start uint64, code []byte) error {
	memory, err := os.OpenFile(filepath.Join(r.process, "mem"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(code, int64(r.vdso.start+start)) //nolint:gosec // an address in user space
	return errors.Join(err, memory.Close())
}
