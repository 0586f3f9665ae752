package cluster

import (
	"context"
	"fmt"
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
	p, ok, err := m.find(d)
	if err != nil || !ok {
		return err
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	return p.wait(ctx)
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
