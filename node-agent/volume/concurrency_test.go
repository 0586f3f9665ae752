package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// reader reads the default address over and over, as whole trees. It knows which port belongs to which address.
type reader struct {
	stop     func()
	rewrites *atomic.Int64 // counts beginnings and ends of rewrites, by the test
}

func startReading(t *testing.T, mount string, ports map[string]string) *reader {
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
			// The tree that a reader found is complete until another rewrite begins after the one that hid it.
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

// readTree opens the default address, and reads all of it.
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
	r := startReading(t, n.mount, ports)
	for i := range 300 {
		r.rewrites.Add(1)
		n.write(versions[i%len(versions)]...)
		r.rewrites.Add(1)
	}
	r.stop()
}

func TestVolumesDoNotWaitForEachOther(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	for i := range 20 {
		pod := fmt.Sprintf("pod-%d", i%5)
		target := volume.Target{PodUID: "pod", Name: pod}
		n.addVolume("pod", pod, "")
		wg.Go(func() {
			for j := range 20 {
				if _, err := n.host.Write(target, []listenersv1alpha1.IngressAddress{ip(fmt.Sprintf("192.0.2.%d", j), nil)}); err != nil {
					t.Error(err)
				}
				if j%7 == 6 {
					if err := n.host.Remove(target); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
