package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/semaphore"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// ErrNoAddress means that none of the addresses of a volume can be written.
var ErrNoAddress = errors.New("no usable address")

// Host is the kubelet's directory of Pods. Its methods are safe for concurrent use. Writes and removals of the same
// volume wait for each other, those of different volumes do not, except that few volumes are removed at the same time.
type Host struct {
	// Label labels files and directories when they are created. Nil means that the platform has no labels; see SELinux.
	Label Labeller

	pods string
	// visible has the name of the tree that each volume has shown at its last write, by its Target without a namespace.
	visible sync.Map
	locks   locks
	turns   turns
}

// NewHost returns the Host of a kubelet with this root directory, in the kubelet's own spelling. It opens nothing.
func NewHost(kubeletDir string) *Host {
	return &Host{pods: filepath.Join(kubeletDir, "pods"), turns: turns{semaphore.NewWeighted(removals)}}
}

// Written is the result of a write.
type Written struct {
	// Changed is false if nothing was written because the volume already had this content.
	Changed bool
	// Skipped describes the addresses and ports that were left out, and why. Nil if there are none.
	Skipped []string
}

// Write publishes a volume with these addresses, the default one first. Addresses and port names that are not valid
// file names are left out. It returns ErrNoAddress if no address remains. After an error the volume is unchanged, and
// does not exist if it did not exist before. The volume's parent directory, which the kubelet creates, must exist.
func (h *Host) Write(target Target, addresses []listenersv1alpha1.IngressAddress) (Written, error) {
	defer h.locks.lock(target)()
	return h.write(target, addresses, true)
}

// Update is Write for a volume that exists, and does nothing for one that does not, or that is being written or
// removed. It never waits for a removal, which may take minutes.
func (h *Host) Update(target Target, addresses []listenersv1alpha1.IngressAddress) (Written, error) {
	unlock, ok := h.locks.tryLock(target)
	if !ok {
		return Written{}, nil
	}
	defer unlock()
	return h.write(target, addresses, false)
}

func (h *Host) write(target Target, addresses []listenersv1alpha1.IngressAddress, create bool) (Written, error) {
	want, skipped := newTree(addresses)
	written := Written{Skipped: skipped}
	if len(want) == 0 {
		return written, fmt.Errorf("writing volume %s: %w among %d", target, ErrNoAddress, len(addresses))
	}
	mount, err := h.open(target, create)
	if !create && errors.Is(err, fs.ErrNotExist) {
		return written, nil
	}
	if err != nil {
		return written, fmt.Errorf("opening volume %s: %w", target, err)
	}
	defer mount.Close()
	first := create && !populated(mount)
	if want.visible(mount) {
		h.visible.Store(target.key(), currentGeneration(mount))
		return written, nil
	}
	if err := replace(mount, want, target.Namespace, h.Label); err != nil {
		if first {
			// The kubelet may not retry, and then does not unpublish the volume either.
			err = errors.Join(err, h.remove(target, atMost(cleanings)))
		}
		return written, fmt.Errorf("writing volume %s: %w", target, err)
	}
	h.visible.Store(target.key(), currentGeneration(mount))
	written.Changed = true
	return written, nil
}

// Remove unpublishes a volume: it removes all but what the kubelet created. It is not an error if the volume does not
// exist. If ctx is done before, a part of the volume remains, and the next call continues. Memory and descriptors are
// bounded, whatever a Pod has left in the volume.
func (h *Host) Remove(ctx context.Context, target Target) error {
	defer h.locks.lock(target)()
	h.visible.Delete(target.key())
	step, end, err := h.turns.take(ctx)
	if err == nil {
		defer end()
		err = h.remove(target, step)
	}
	if err != nil {
		return fmt.Errorf("removing volume %s: %w", target, err)
	}
	return nil
}

func (h *Host) remove(target Target, step func() error) error {
	parent, err := h.openParent(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	r := removal{root: parent, step: step}
	if err := r.run(func(name string) bool { return name == mountDir }); err != nil {
		return fmt.Errorf("%d entries removed: %w", r.changes, advice(err, filepath.Join(h.pods, target.parent())))
	}
	return nil
}

// Relink makes the trees visible again that this process has written, where something else has changed the links, such
// as a restore of files that were backed up from the node. It reads a few links of each volume, and no files.
func (h *Host) Relink() {
	h.visible.Range(func(key, generation any) bool {
		target := key.(Target)
		unlock, ok := h.locks.tryLock(target)
		if !ok {
			return true
		}
		defer unlock()
		mount, err := h.open(target, false)
		if err != nil {
			h.visible.Delete(key)
			return true
		}
		defer mount.Close()
		if info, err := mount.Lstat(generation.(string)); err == nil && info.IsDir() {
			_ = relink(mount, generation.(string)) // Update reports what lasts.
		}
		return true
	})
}

// Usable reports whether a volume has a default address that its Pod can read.
func (h *Host) Usable(target Target) bool {
	mount, err := h.open(target, false)
	if err != nil {
		return false
	}
	defer mount.Close()
	info, err := mount.Stat(filepath.Join(defaultLink, addressFile))
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// open opens the directory that the Pod sees, and creates it before if create is set.
func (h *Host) open(target Target, create bool) (*os.Root, error) {
	parent, err := h.openParent(target)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if create {
		if err := mkdir(parent, mountDir, h.Label); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	// os.Root would follow a link that stays below the parent.
	info, err := parent.Lstat(mountDir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w: not a directory", mountDir, ErrInvalidTarget)
	}
	return parent.OpenRoot(mountDir)
}

func (h *Host) openParent(target Target) (*os.Root, error) {
	pods, err := os.OpenRoot(h.pods)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	return pods.OpenRoot(target.parent())
}
