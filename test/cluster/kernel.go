package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// inotifyInstances is the kernel's limit of inotify instances per user. All clusters share it. A kubelet or containerd
// that exceeds it exits, or misses changes of its files, without reporting the limit.
const inotifyInstances = "/proc/sys/fs/inotify/max_user_instances"

// neededInstances is enough for several clusters. The default is 128.
const neededInstances = 512

// ensureLimit raises a limit of the kernel to the given minimum. The limit is not lowered when the cluster is deleted,
// because others may need it.
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
		return fmt.Errorf("raising a limit of the kernel from %d to %d (in a container, raise it on the host): %w", limit, least, err)
	}
	p.Printf("raised %s from %d to %d", path, limit, least)
	return nil
}
