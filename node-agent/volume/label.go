package volume

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Labeller labels an open file or directory. Nil does nothing.
type Labeller func(*os.File) error

// The label lets the containers of all Pods read what has it, for it names no category. The label that the files would
// have from the kubelet's directory does not, on some platforms; and the container runtime relabels a volume only for a
// Pod that may write to it.
const (
	labelAttribute = "security.selinux"
	fileLabel      = "system_u:object_r:container_file_t:s0"
	// selinuxDir exists on nodes whose kernel uses SELinux, also in containers, where it is empty.
	selinuxDir = "/sys/fs/selinux"
)

// SELinux returns what labels files for the containers of Pods to read, or nil if the node has no SELinux. The node
// agent needs no capability for it, for it owns what it made, and SELinux lets spc_t relabel. Without SELinux the
// kernel would demand CAP_SYS_ADMIN.
func SELinux() Labeller { return selinux(selinuxDir) }

func selinux(dir string) Labeller {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return setLabel
}

// setLabel goes by the open file, not by a path that a Pod could change.
func setLabel(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Fsetxattr(int(fd), labelAttribute, []byte(fileLabel), 0) }); err != nil {
		return err
	}
	// A file system without labels, or with one for all of its files, and a policy that has no such label: what else it
	// may be, the file has it from its directory.
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
