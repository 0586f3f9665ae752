package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Labeller sets the label of an open file or directory. Nil does nothing.
type Labeller func(*os.File) error

// The label permits the containers of all Pods to read, because it has no category. The label that files inherit from
// the kubelet's directory does not, on some platforms, and the container runtime relabels a volume only for Pods that
// mount it writable.
const (
	labelAttribute = "security.selinux"
	fileLabel      = "system_u:object_r:container_file_t:s0"
	// selinuxDir exists if the kernel uses SELinux, also in containers, where it is empty.
	selinuxDir = "/sys/fs/selinux"
)

// SELinux returns the Labeller that permits the containers of Pods to read, or nil if the node does not use SELinux.
// The node agent needs no capability to label its own files, because SELinux permits spc_t to relabel. Without SELinux
// the kernel would require CAP_SYS_ADMIN.
func SELinux() Labeller { return selinux(selinuxDir) }

func selinux(dir string) Labeller {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return setLabel
}

// setLabel labels the open file, not a path that a Pod could change.
func setLabel(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.Fsetxattr(int(fd), labelAttribute, []byte(fileLabel), 0)
	}); err != nil {
		return err
	}
	// The file system has no labels, or one for all files, or the policy does not know this label. The file then keeps
	// the label of its directory, if any.
	if errors.Is(failed, unix.ENOTSUP) || errors.Is(failed, unix.EINVAL) {
		return nil
	}
	if failed != nil {
		return fmt.Errorf("labelling %s as %s: %w", f.Name(), fileLabel, failed)
	}
	return nil
}

func (l Labeller) apply(f *os.File) error {
	if l == nil {
		return nil
	}
	return l(f)
}
