package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/semaphore"
)

const (
	// removals is the number of volumes that are removed at the same time, and turn the number of changes after which a
	// removal lets another one go on. So a Pod with millions of files delays the removal of other volumes by
	// milliseconds, and mounts not at all.
	removals = 2
	turn     = 1024
	// cleanings is the number of changes of a removal that is part of a write.
	cleanings = 4096
)

// errPaused means that a removal has made as many changes as it was permitted. What remains is removed later.
var errPaused = errors.New("more than may be removed at once")

var errUnreadable = errors.New("the directory cannot be read")

// removal removes directory trees of any depth and size, with six open files at most and with constant memory. For
// that, it moves each subdirectory that is not empty to the root, and so never descends. It may be interrupted at any
// time; the next one continues.
//
// Other processes may write to the trees meanwhile. Names are only used in directories that an os.Root has opened, so
// nothing outside of the root is ever changed.
type removal struct {
	// root contains the trees. A Pod must not be able to change its attributes, because a file system refuses to move
	// directories between some of its projects.
	root *os.Root
	// step is called before each change, and for each entry of the root that is not removed. Its error ends the
	// removal.
	step func() error
	// changes is the number of entries that were removed or moved.
	changes int
}

// run removes all entries of the root that match, and those that an interrupted removal has left.
func (r *removal) run(match func(name string) bool) error {
	for {
		var found bool
		var failed, full error
		before := r.changes
		complete := eachName(r.root, ".", func(name string) bool {
			if !strings.HasPrefix(name, removingPrefix) && !match(name) {
				failed = r.step()
				return failed == nil
			}
			found = true
			failed = r.dismantle(name)
			if isFull(failed) {
				full, failed = failed, nil
			}
			return failed == nil
		})
		switch {
		case failed != nil:
			return failed
		case !complete:
			return errUnreadable
		case !found:
			return nil
		case full != nil && r.changes == before: // Nothing is left but directories that have to be moved.
			return full
		}
	}
}

// dismantle removes an entry of the root. If it is a directory, its subdirectories that are not empty are moved to the
// root instead, to be removed later.
func (r *removal) dismantle(name string) error {
	err := r.delete(r.root, name, name)
	if !isNotEmpty(err) {
		return err
	}
	dir, err := r.root.OpenRoot(name)
	if err != nil {
		return failure(name, err)
	}
	defer dir.Close()
	var failed, full error
	complete := eachName(dir, ".", func(child string) bool {
		path := path.Join(name, child)
		failed = r.delete(dir, child, path)
		if isNotEmpty(failed) {
			failed = r.move(path)
		}
		if isFull(failed) {
			full, failed = failed, nil
		}
		return failed == nil
	})
	switch {
	case failed != nil:
		return failed
	case full != nil:
		return full
	case !complete:
		return failure(name, errUnreadable)
	}
	if err := r.delete(r.root, name, name); !isNotEmpty(err) {
		return err
	}
	return nil // The Pod has created something meanwhile.
}

// delete removes a file or an empty directory. path describes it in errors.
func (r *removal) delete(dir *os.Root, name, path string) error {
	if err := r.step(); err != nil {
		return err
	}
	switch err := dir.Remove(name); {
	case err == nil:
		r.changes++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return failure(path, err)
	}
}

// move moves a directory to the root.
func (r *removal) move(path string) error {
	err := r.root.Rename(path, removingPrefix+rand.Text())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failure(path, err)
	}
	r.changes++
	return nil
}

// failure describes an error without the control characters that a Pod may have used in a name.
func failure(path string, err error) error {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		err = pathError.Err
	}
	if linkError := (*os.LinkError)(nil); errors.As(err, &linkError) {
		err = linkError.Err
	}
	return fmt.Errorf("%q: %w", path, err)
}

func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// isFull reports whether there is no space for another entry in the root. It suffices to remove others first.
func isFull(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMLINK},
		func(full error) bool { return errors.Is(err, full) })
}

// advice returns an error that says what to do about one for which a removal can never succeed.
func advice(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: the file or its directory is immutable or append-only, which a privileged container "+
			"can make it, and which the node agent may not change; run on the node: chattr -R -f -i -a %s", err, dir)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: something is mounted there, which a privileged container can do; run on the node: "+
			"umount --recursive %s/…", err, dir)
	default:
		return err
	}
}

// atMost returns a step that permits a number of changes.
func atMost(changes int) func() error {
	return func() error {
		if changes--; changes < 0 {
			return errPaused
		}
		return nil
	}
}

// turns lets removals take turns. The zero value is not valid.
type turns struct{ queue *semaphore.Weighted }

// take waits for a turn, and returns the step of a removal, and a function to call at its end.
func (t turns) take(ctx context.Context) (step func() error, end func(), err error) {
	if err := t.queue.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	changes, held := 0, true
	step = func() error {
		if changes++; changes%turn == 0 {
			t.queue.Release(1)
			held = t.queue.Acquire(ctx, 1) == nil
		}
		return ctx.Err()
	}
	end = func() {
		if held {
			t.queue.Release(1)
		}
	}
	return step, end, nil
}
