package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often something is checked that neither the kernel nor the API server reports.
const pollInterval = 50 * time.Millisecond

// hierarchy is a mounted tree of control groups.
type hierarchy struct {
	mount string
	v2    bool
}

// hierarchies returns all trees of control groups on this machine, and those that a container runtime uses: all of
// version 1 if there are any (a hybrid machine has an additional, empty tree of version 2), otherwise that of version
// 2.
func hierarchies() (used, all []hierarchy, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, nil, fmt.Errorf("listing mounts: %w", err)
	}
	all = parseHierarchies(string(mounts))
	used = slices.DeleteFunc(slices.Clone(all), func(h hierarchy) bool { return h.v2 })
	if len(used) == 0 {
		used = all
	}
	return used, all, nil
}

// parseHierarchies finds control groups in the format of /proc/self/mounts.
func parseHierarchies(mounts string) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			all = append(all, hierarchy{mount: fields[1], v2: fields[2] == "cgroup2"})
		}
	}
	return all
}

// createCgroup creates the group at path, relative to the root of every tree, for a kubelet.
func createCgroup(path string) error {
	used, _, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range used {
		dir := h.mount
		for name := range strings.SplitSeq(path, "/") {
			parent := dir
			dir = filepath.Join(dir, name)
			if err := h.createLevel(parent, dir); err != nil {
				return fmt.Errorf("creating control group %s: %w", dir, err)
			}
		}
	}
	return nil
}

// createLevel creates one group, and enables the controllers, or copies the processors, of its parent.
func (h hierarchy) createLevel(parent, dir string) error {
	if h.v2 {
		controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(string(controllers)) {
			// Depending on the machine, some cannot be delegated. The kubelet reports those that it needs and lacks.
			_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+name), 0)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if h.v2 {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another controller's tree
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes the group at path, and all groups below it, from every tree. Their processes must have been
// killed; the kernel may take a moment to remove them.
func removeCgroup(ctx context.Context, path string) error {
	_, all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := removeTree(ctx, filepath.Join(h.mount, path)); err != nil {
			return fmt.Errorf("removing control group: %w", err)
		}
	}
	return nil
}

// removeTree removes nested groups. os.RemoveAll cannot, because the files in a group cannot be removed.
func removeTree(ctx context.Context, root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if err := until(ctx, func() (bool, error) {
			err := unix.Rmdir(dir)
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			if errors.Is(err, unix.ENOENT) {
				return true, nil
			}
			return true, err
		}); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// until calls done at short intervals until it returns true or an error, or ctx is done.
func until(ctx context.Context, done func() (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) { return done() })
}
