package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// inotifyInstances is the kernel's limit to how many instances of inotify a user may have. All clusters share it, and a
// kubelet or containerd that gets none more ends, or misses changes of its files, without naming the limit.
const inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"

// neededInstances is enough for several clusters. Kernels allow 128 unless told otherwise.
const neededInstances = 512

// ensureLimit raises a limit of the kernel to the least that is needed. It stays raised when the cluster is gone:
// others may have come to need it.
func ensureLimit(path string, least int, p *Progress) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a limit of the kernel: %w", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("parsing %s: %w", path, err)
	}
	if limit >= least {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(least)), 0); err != nil {
		return fmt.Errorf("raising a limit of the kernel from %d to %d (do it on the machine if this is a container on it): %w", limit, least, err)
	}
	p.Printf("raised %s from %d to %d", path, limit, least)
	return nil
}
