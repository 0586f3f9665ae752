package volume_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// Limits of a process that removes a volume. Go itself needs nine descriptors.
const (
	maxFiles = 24
	maxHeap  = 16 << 20
)

// entries is the number of entries of the largest volumes.
var entries = flag.Int("volume.entries", 10_000, "number of entries of the largest volumes that are removed")

// removeIn is an environment variable with the kubelet's directory for the process that removes a volume.
const removeIn = "TEST_REMOVE_IN"

func TestRemovalNeedsFewFilesAndLittleMemory(t *testing.T) {
	if dir := os.Getenv(removeIn); dir != "" {
		removeWithinLimits(t, dir)
		return
	}
	for name, fill := range map[string]func(mount string) error{
		// They need no more if there are more entries. -volume.entries 1000000 takes long: set -timeout, too.
		"levels":                         func(mount string) error { return nest(mount, *entries/2, nil) },
		"levels with files of all kinds": func(mount string) error { return nest(mount, *entries/50, manyKinds) },
		"a directory with files":         func(mount string) error { return files(mount, *entries) },
		"directories that have entries":  func(mount string) error { return directories(mount, *entries/5) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
			// The test's directory cannot be removed as long as it has a tree like that.
			t.Cleanup(func() { must(t, exec.Command("rm", "-rf", n.dir).Run()) }) //nolint:noctx // runs after the test's context is done
			must(t, fill(n.mount))
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRemovalNeedsFewFilesAndLittleMemory$")
			child.Env = append(os.Environ(), removeIn+"="+n.dir)
			output, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			t.Logf("%s", output)
			if got := namesIn(t, filepath.Dir(n.mount)); len(got) != 1 || got[0] != "vol_data.json" {
				t.Errorf("what is left beside the kubelet's record: %v", got)
			}
		})
	}
}

func removeWithinLimits(t *testing.T, dir string) {
	t.Helper()
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: maxFiles, Max: maxFiles}))
	began := time.Now()
	must(t, volume.NewHost(dir).Remove(t.Context(), volume.Target{PodUID: podUID, Name: pvName}))
	took := time.Since(began)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	fmt.Printf("removed in %s, with a heap of %d KiB\n", took.Round(time.Millisecond), memory.HeapSys>>10)
	if memory.HeapSys > maxHeap {
		t.Errorf("the heap has grown to %d MiB", memory.HeapSys>>20)
	}
}

// nest creates a chain of directories, and in each of them what fill creates.
func nest(dir string, levels int, fill func(dir string) error) error {
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	for range levels {
		if fill != nil {
			if err := fill(fmt.Sprintf("/proc/self/fd/%d", at)); err != nil {
				return err
			}
		}
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			return err
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(at)
		at = next
	}
	return nil
}

// manyKinds creates one file of each kind.
func manyKinds(dir string) error {
	file := filepath.Join(dir, "file")
	return errors.Join(os.WriteFile(file, []byte("x"), 0o400), os.Link(file, filepath.Join(dir, "hard link")), os.Symlink("..", filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0), syscall.Mknod(filepath.Join(dir, "socket"), syscall.S_IFSOCK, 0),
		os.MkdirAll(filepath.Join(dir, "a\nb", "c"), 0o700), os.Chmod(filepath.Join(dir, "a\nb"), 0))
}

func files(dir string, count int) error {
	for i := range count {
		if err := os.Symlink("x", filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

func directories(dir string, count int) error {
	for i := range count {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), "a"), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// observed is a context that calls a function before each step of a removal.
type observed struct {
	context.Context
	step func() error
}

func (o observed) Err() error { return o.step() }

// expiring is a context that expires after a number of steps.
func expiring(t *testing.T, steps int) context.Context {
	return observed{t.Context(), func() error {
		if steps--; steps < 0 {
			return context.DeadlineExceeded
		}
		return nil
	}}
}

func TestInterruptedRemovalIsContinued(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	must(t, errors.Join(nest(n.mount, 100, manyKinds), directories(n.mount, 100)))
	calls := 1
	for ; ; calls++ {
		err := n.host.Remove(expiring(t, 100), n.target)
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "entries removed") {
			t.Fatal(err)
		}
	}
	if calls < 5 || calls > 30 {
		t.Errorf("removing 1,000 entries in calls of 100 steps took %d calls", calls)
	}
	if got := namesIn(t, filepath.Dir(n.mount)); len(got) != 1 {
		t.Errorf("what is left beside the kubelet's record: %v", got)
	}
}

func TestVolumeIsPublishedAgainAfterAnInterruptedRemoval(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	must(t, directories(n.mount, 100))
	if err := n.host.Remove(expiring(t, 150), n.target); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	n.write(ip("192.0.2.2", map[string]int32{"http": 81}))
	if got := n.read("default-address/address"); got != "192.0.2.2" {
		t.Errorf("the Pod reads %q", got)
	}
	must(t, n.host.Remove(t.Context(), n.target))
	if got := namesIn(t, filepath.Dir(n.mount)); len(got) != 1 {
		t.Errorf("what is left beside the kubelet's record: %v", got)
	}
}

// another returns the target of another volume of the same Pod.
func (n *node) another(name string) volume.Target {
	n.addVolume(podUID, name, `{"driverName":"listeners.stackable.tech","volumeHandle":"`+name+`"}`)
	return volume.Target{PodUID: podUID, Name: name}
}

func TestOthersAreServedWhileLargeVolumesAreRemoved(t *testing.T) {
	n := newNode(t)
	addresses := []listenersv1alpha1.IngressAddress{ip("192.0.2.1", map[string]int32{"http": 80})}
	const large, entries = 5, 4000
	small := n.another("small")
	if _, err := n.host.Write(small, addresses); err != nil {
		t.Fatal(err)
	}
	var steps atomic.Int64
	started, proceed, done := make(chan struct{}, large), make(chan struct{}), make(chan error, large)
	for i := range large {
		target := n.another("large-" + strconv.Itoa(i))
		_, err := n.host.Write(target, addresses)
		must(t, errors.Join(err, files(filepath.Join(n.dir, "pods", podUID, "volumes", "kubernetes.io~csi", target.Name, "mount"), entries)))
		first := true
		ctx := observed{t.Context(), func() error {
			if first {
				first = false
				started <- struct{}{}
				<-proceed
			}
			steps.Add(1)
			return nil
		}}
		go func() { done <- n.host.Remove(ctx, target) }()
	}
	<-started
	<-started
	// All turns are taken now, and none of the removals goes on.
	mounted := n.another("mounted")
	if _, err := n.host.Write(mounted, addresses); err != nil {
		t.Errorf("mounting another volume: %v", err)
	}
	for i := range large {
		if written, err := n.host.Update(volume.Target{PodUID: podUID, Name: "large-" + strconv.Itoa(i)}, addresses); err != nil || written.Changed {
			t.Errorf("updating a volume that is being removed: changed %v, error %v", written.Changed, err)
		}
	}
	select {
	case <-started:
		t.Error("more than two volumes are removed at the same time")
	default:
	}
	go close(proceed)
	must(t, n.host.Remove(t.Context(), small))
	if got := steps.Load(); got > large*entries/2 {
		t.Errorf("removing a small volume waited for %d steps of the large ones, of %d", got, large*entries)
	}
	for range large {
		must(t, <-done)
	}
}

func TestRemovalEndsWhileItWaitsForItsTurn(t *testing.T) {
	n := newNode(t)
	blocked, release := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	for i := range 2 {
		target := n.another("large-" + strconv.Itoa(i))
		_, err := n.host.Write(target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)})
		must(t, err)
		first := true
		ctx := observed{t.Context(), func() error {
			if first {
				first = false
				blocked <- struct{}{}
				<-release
			}
			return nil
		}}
		go func() { done <- n.host.Remove(ctx, target) }()
		<-blocked
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.host.Remove(ctx, n.target); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	close(release)
	must(t, errors.Join(<-done, <-done))
}

func TestImmutableFilesAreReportedWithAdvice(t *testing.T) {
	for name, create := range map[string]func(mount string) (immutable string, err error){
		"file": func(mount string) (string, error) {
			path := filepath.Join(mount, "a", "fi\nle")
			return path, errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600))
		},
		"directory": func(mount string) (string, error) {
			path := filepath.Join(mount, "a", "b")
			return path, os.MkdirAll(filepath.Join(path, "c"), 0o700)
		},
		"volume": func(mount string) (string, error) { return mount, nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write(ip("192.0.2.1", nil))
			path, err := create(n.mount)
			must(t, err)
			f, err := os.Open(path)
			must(t, err)
			defer f.Close()
			if err := setImmutable(f, true); err != nil {
				t.Skipf("needs a file system with immutable files, and permission to use them: %v", err)
			}
			t.Cleanup(func() { _ = exec.Command("chattr", "-R", "-i", n.dir).Run() }) //nolint:noctx // runs after the test's context is done
			// After the first call, each retry ends at the same file.
			for _, most := range []int{100, 10, 10} {
				asAgent(t, func() {
					err = n.host.Remove(expiring(t, most), n.target)
				})
				dir := filepath.Dir(n.mount)
				if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "immutable") || !strings.HasSuffix(err.Error(), "chattr -R -f -i -a "+dir) {
					t.Fatalf("error is %v", err)
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("a name breaks the line: %v", err)
				}
			}
			must(t, setImmutable(f, false))
			asAgent(t, func() { err = n.host.Remove(t.Context(), n.target) })
			must(t, err)
		})
	}
}

func setImmutable(f *os.File, immutable bool) error {
	const flag = 0x10 // FS_IMMUTABLE_FL
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if flags &^= flag; immutable {
		flags |= flag
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

func TestMountPointInAVolumeIsReportedWithAdvice(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", nil))
	point := filepath.Join(n.mount, "mounted")
	must(t, os.Mkdir(point, 0o700))
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, ""); err != nil {
		t.Skipf("needs permission to mount: %v", err)
	}
	err := n.host.Remove(t.Context(), n.target)
	must(t, unix.Unmount(point, 0))
	if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "umount") {
		t.Errorf("error is %v", err)
	}
	must(t, n.host.Remove(t.Context(), n.target))
}

func TestPodThatStillWritesCannotLeadARemovalOutside(t *testing.T) {
	n := newNode(t)
	outside := canary(t, n.dir)
	must(t, os.Mkdir(filepath.Join(outside, "keep"), 0o700))
	n.write(ip("192.0.2.1", nil))
	must(t, directories(n.mount, 100))
	pod, err := os.OpenRoot(n.mount) // as a container's working directory
	must(t, err)
	defer pod.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := strconv.Itoa(i % 100)
			_ = pod.MkdirAll(name+"/a/b", 0o700)
			_ = pod.Rename(name+"/a", "swapped")
			_ = pod.Symlink(outside, name+"/a")
			_ = pod.Rename("swapped", name+"/b")
		}
	}()
	for range 10 {
		_ = n.host.Remove(expiring(t, 300), n.target)
	}
	close(stop)
	<-stopped
	must(t, n.host.Remove(t.Context(), n.target))
	if _, err := os.Stat(filepath.Join(outside, "keep")); err != nil {
		t.Errorf("a directory outside of the volume: %v", err)
	}
	if got := namesIn(t, filepath.Dir(n.mount)); len(got) != 1 {
		t.Errorf("what is left beside the kubelet's record: %v", got)
	}
}

func TestWriteRemovesALimitedNumberOfLeftovers(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", nil))
	evil := filepath.Join(n.mount, "..evil")
	must(t, errors.Join(os.Mkdir(evil, 0o700), files(evil, 6000)))
	for i, want := range []int{1900, 0} {
		n.write(ip("192.0.2."+strconv.Itoa(i+2), nil))
		entries, err := os.ReadDir(evil)
		if len(entries) < want || len(entries) > want+200 || (want == 0) != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after write %d, %d leftovers remain, error %v", i+1, len(entries), err)
		}
	}
}
