package volume_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// reader reads the default address over and over, as whole trees.
type reader struct {
	stop     func()
	rewrites *atomic.Int64 // incremented by the test at the beginning and at the end of each rewrite
}

// startReading starts a reader that knows which port belongs to which address. If migrating, the volume has the layout
// of Stackable's listener operator, and is rewritten once.
func startReading(t *testing.T, mount string, ports map[string]string, migrating bool) *reader {
	t.Helper()
	var (
		r       = &reader{rewrites: &atomic.Int64{}}
		done    atomic.Bool
		started = make(chan struct{})
		stopped = make(chan struct{})
	)
	go func() {
		defer close(stopped)
		for i := 0; !done.Load(); i++ {
			before := r.rewrites.Load()
			err := readTree(mount, ports)
			if migrating && errors.Is(err, fs.ErrNotExist) {
				// A reader that has followed the old link, and is suspended until the volume is rewritten, finds
				// nothing where that link led to. TestRootOfAVolumeIsReplacedAtomically shows that no other does.
				err = readTree(mount, ports)
			}
			// A tree that was replaced stays complete until the next rewrite begins.
			if err != nil && (r.rewrites.Load()-before < 2 || !errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("pass %d: %v", i, err)
				done.Store(true)
			}
			if i == 0 {
				close(started)
			}
		}
	}()
	<-started
	r.stop = func() { done.Store(true); <-stopped }
	t.Cleanup(r.stop)
	return r
}

// readTree opens the directory of the default address, and reads the files in it.
func readTree(mount string, ports map[string]string) error {
	d, err := os.OpenRoot(filepath.Join(mount, "default-address"))
	if err != nil {
		return err
	}
	defer d.Close()
	address, err := d.ReadFile("address")
	if err != nil {
		return err
	}
	port, err := d.ReadFile("ports/http")
	if err != nil {
		return err
	}
	if want, ok := ports[string(address)]; !ok || want != string(port) {
		return fmt.Errorf("address %q has port %q, want %q", address, port, want)
	}
	return nil
}

func TestReadersSeeOnlyWholeTreesWhileTheVolumeIsRewritten(t *testing.T) {
	n := newNode(t)
	ports := map[string]string{}
	var versions [][]listenersv1alpha1.IngressAddress
	for i := range 4 {
		address := fmt.Sprintf("192.0.2.%d", i)
		ports[address] = strconv.Itoa(30000 + i)
		versions = append(versions, []listenersv1alpha1.IngressAddress{
			ip(address, map[string]int32{"http": int32(30000 + i)}), ip("203.0.113.1", map[string]int32{"http": 1}),
		})
	}
	n.write(versions[0]...)
	r := startReading(t, n.mount, ports, false)
	for i := range 300 {
		r.rewrites.Add(1)
		n.write(versions[i%len(versions)]...)
		r.rewrites.Add(1)
	}
	r.stop()
}

func TestRootOfAVolumeIsReplacedAtomically(t *testing.T) {
	for name, publish := range map[string]func(n *node){
		"volume of this operator":                 func(n *node) { n.write(ip("192.0.2.1", map[string]int32{"http": 80})) },
		"volume of Stackable's listener operator": func(n *node) { writeLikeStackable(t, n.mount, "192.0.2.1", "80") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			publish(n)
			renames := watchRenames(t, n.mount)
			n.write(ip("192.0.2.2", map[string]int32{"http": 81}))
			for _, r := range renames() {
				if r == "from ..data" || r == "from default-address" || strings.HasPrefix(r, "to ..aside-") {
					t.Errorf("for a moment a name is missing: %q", r)
				}
			}
		})
	}
}

// watchRenames returns a function that returns which names were removed from a directory ("from x"), and to which files
// were renamed ("to x"), since watchRenames was called.
func watchRenames(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_MOVED_FROM|unix.IN_MOVED_TO)
	must(t, err)
	return func() []string {
		t.Helper()
		buffer := make([]byte, 64<<10)
		n, err := unix.Read(fd, buffer)
		must(t, err)
		var renames []string
		for events := buffer[:n]; len(events) > 0; {
			mask, size := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
			name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:][:size]), "\x00")
			if mask&unix.IN_MOVED_TO != 0 {
				renames = append(renames, "to "+name)
			} else {
				renames = append(renames, "from "+name)
			}
			events = events[unix.SizeofInotifyEvent+size:]
		}
		return renames
	}
}

func TestVolumesDoNotWaitForEachOther(t *testing.T) {
	n := newNode(t)
	other := volume.Target{PodUID: "other-pod", Name: pvName}
	n.addVolume("other-pod", pvName, "")
	addresses := []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)}
	var writing atomic.Bool
	n.host.Label = func(*os.File) error {
		if writing.CompareAndSwap(false, true) { // in the middle of the write below
			done := make(chan error, 1)
			go func() {
				_, err := n.host.Write(other, addresses)
				done <- errors.Join(err, n.host.Remove(t.Context(), other))
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("writing and removing another volume: %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("another volume waits until this one is written")
			}
		}
		return nil
	}
	n.write(addresses...)
}

func TestConcurrentWritesAndRemovalsOfAVolumeSucceed(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	for i := range 20 {
		pod := fmt.Sprintf("pod-%d", i%5)
		target := volume.Target{PodUID: "pod", Name: pod} // as of the kubelet's request to unpublish
		published := target
		published.Namespace = "shop"
		n.addVolume("pod", pod, "")
		wg.Go(func() {
			for j := range 20 {
				if _, err := n.host.Write(published, []listenersv1alpha1.IngressAddress{ip(fmt.Sprintf("192.0.2.%d", j), nil)}); err != nil {
					t.Error(err)
				}
				if j%7 == 6 {
					if err := n.host.Remove(t.Context(), target); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
