package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Crash kills a program, as if it had crashed: a program of the control plane ("etcd", "kube-apiserver" …) if node is
// 0, otherwise one of a node ("containerd", "kubelet", "kube-proxy"). Restart starts it again.
func (c *Cluster) Crash(ctx context.Context, node int, program string) error {
	m, d, err := c.program(node, program)
	if err != nil {
		return err
	}
	return m.end(ctx, d, unix.SIGKILL)
}

// Restart starts a program that Crash has killed. It does not wait until the program works.
func (c *Cluster) Restart(node int, program string) error {
	m, d, err := c.program(node, program)
	if err != nil {
		return err
	}
	return m.run(d)
}

// program returns a program and the machine that it runs on.
func (c *Cluster) program(node int, name string) (machine, daemon, error) {
	m, all := c.control(), c.controlPlane()
	if node > 0 {
		m, all = c.node(node), []daemon{c.containerd(node), c.kubelet(node), c.kubeProxy(node)}
	}
	i := slices.IndexFunc(all, func(d daemon) bool { return d.name == name })
	if i < 0 {
		return machine{}, daemon{}, fmt.Errorf("%s runs no %s", m.name, name)
	}
	return m, all[i], nil
}

// BackUp copies the data of etcd, as a snapshot of its disk does, and returns the directory of the copy.
func (c *Cluster) BackUp(ctx context.Context) (dir string, err error) {
	m, d, err := c.program(0, "etcd")
	if err != nil {
		return "", err
	}
	p, ok, err := m.find(d)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%s %w", d.name, errNotRunning)
	}
	if dir, err = os.MkdirTemp(m.dir, "backup-"); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	if err := p.signal(unix.SIGSTOP); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.signal(unix.SIGCONT)) }()
	return dir, copyDir(ctx, c.etcdDir(), dir)
}

// Restore replaces the data of etcd by those that BackUp has copied, as an administrator restores a backup. All
// programs of the control plane and of the nodes start again, but nothing that runs in Pods. Restore waits for the API
// server.
func (c *Cluster) Restore(ctx context.Context, backup string) error {
	for _, d := range slices.Backward(c.controlPlane()) { // so that the API server ends watches without an error
		if err := c.control().end(ctx, d, unix.SIGTERM); err != nil {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(c.etcdDir()), os.Mkdir(c.etcdDir(), 0o700)); err != nil {
		return fmt.Errorf("removing the data of etcd: %w", err)
	}
	if err := copyDir(ctx, backup, c.etcdDir()); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	for _, node := range c.state.Nodes {
		for _, program := range []string{"kubelet", "kube-proxy"} {
			if err := errors.Join(c.Crash(ctx, node, program), c.Restart(node, program)); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyDir copies what is in a directory.
func copyDir(ctx context.Context, from, to string) error {
	if output, err := exec.CommandContext(ctx, "cp", "-a", from+"/.", to).CombinedOutput(); err != nil { //nolint:gosec // own directories
		return fmt.Errorf("copying %s: %w: %s", from, err, output)
	}
	return nil
}

// CutOff drops all traffic from a node and its Pods to the API server, until the returned function is called.
func (c *Cluster) CutOff(ctx context.Context, node int) (restore func(context.Context) error, err error) {
	m := c.node(node)
	rule := fmt.Sprintf("ip daddr %s tcp dport 6443 drop", c.HostIP())
	rules := fmt.Sprintf(`table inet fault {
  chain output { type filter hook output priority 0; %[1]s; }
  chain forward { type filter hook forward priority 0; %[1]s; }
}
`, rule)
	if _, err := m.exec(ctx, rules, "nft", "-f", "-"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := m.exec(ctx, "", "nft", "delete", "table", "inet", "fault")
		return err
	}, nil
}

// LimitDisk gives the kubelet's directory of a node that has not joined yet a file system of its own of this size in
// bytes, in memory. It exists until the node is deleted.
func (c *Cluster) LimitDisk(ctx context.Context, node int, size int64) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if slices.Contains(c.state.Nodes, node) {
		return fmt.Errorf("%s exists", c.NodeName(node))
	}
	dir := c.KubeletDir(node)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the kubelet's directory: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("mounting a file system: %w", err)
	}
	return nil
}

// unlimitDisk unmounts what LimitDisk has mounted, from a node that does not run.
func (c *Cluster) unlimitDisk(node int) error {
	err := unix.Unmount(c.KubeletDir(node), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted, or never started
		return fmt.Errorf("unmounting the disk of %s: %w", c.NodeName(node), err)
	}
	return nil
}

// unlimitDisks does that for all nodes, even a node that has not joined.
func (c *Cluster) unlimitDisks() error {
	for node := 1; node <= MaxNodes; node++ {
		if err := c.unlimitDisk(node); err != nil {
			return err
		}
	}
	return nil
}

// FillDisk writes to the kubelet's directory of a node with a limited disk until no space is left, and returns a
// function that frees it.
func (c *Cluster) FillDisk(node int) (free func() error, err error) {
	path := filepath.Join(c.KubeletDir(node), "fill")
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("creating a file: %w", err)
	}
	_, err = io.Copy(file, zeros{})
	if err = errors.Join(err, file.Close()); !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("filling the disk of %s: %w", c.NodeName(node), err), os.Remove(path))
	}
	return func() error { return os.Remove(path) }, nil
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// slowPeriod is how often a slow program runs for a moment.
const slowPeriod = 500 * time.Millisecond

// Slow makes a program of the control plane slow, until the returned function is called: it runs for a tenth of the
// time only.
func (c *Cluster) Slow(program string) (restore func() error, err error) {
	m, d, err := c.program(0, program)
	if err != nil {
		return nil, err
	}
	p, ok, err := m.find(d)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s %w", program, errNotRunning)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- p.signal(unix.SIGCONT)
				return
			case <-time.After(slowPeriod / 10):
			}
			_ = p.signal(unix.SIGSTOP)
			time.Sleep(slowPeriod * 9 / 10)
			_ = p.signal(unix.SIGCONT)
		}
	}()
	return func() error { close(end); return <-ended }, nil
}
