package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/test/cluster/nodeinit/spec"
)

// containerdTimeout is how long containerd may take to accept connections.
const containerdTimeout = 30 * time.Second

// mountPoints maps the directories that a node does not share with the host to directories below the node's directory.
// A reboot clears those in volatile.
var mountPoints = map[string]string{
	"/var/lib/kubelet":    "kubelet",
	"/var/lib/containerd": "containerd",
	"/run/containerd":     "run-containerd",
	"/run/netns":          "run-netns",
	"/etc/cni/net.d":      "cni-config",
	"/var/lib/cni":        "cni",
	"/var/log/pods":       "log-pods",
	"/var/log/containers": "log-containers",
	"/run/mount":          "run-mount",
}

// volatile are the directories that a real machine keeps in memory.
var volatile = []string{"run-containerd", "run-netns", "run-mount"}

// The daemons of a node.
func (c *Cluster) containerd(node int) daemon {
	return daemon{"containerd", []string{
		c.tool("containerd", "containerd"),
		"--config=" + filepath.Join(c.nodeDir(node), "containerd.toml"),
	}}
}

func (c *Cluster) kubelet(node int) daemon {
	return daemon{"kubelet", []string{
		c.tool("kubernetes", "kubelet"),
		"--config=" + filepath.Join(c.nodeDir(node), "kubelet.yaml"),
		"--kubeconfig=" + c.kubeconfigOf(c.NodeName(node)),
		"--hostname-override=" + c.NodeName(node),
		"--node-ip=" + c.subnets.node(node).String(),
		"--v=2",
	}}
}

func (c *Cluster) kubeProxy(node int) daemon {
	return daemon{"kube-proxy", []string{
		c.tool("kubernetes", "kube-proxy"),
		"--config=" + filepath.Join(c.nodeDir(node), "kube-proxy.yaml"),
	}}
}

// networkPolicies enforces NetworkPolicies on the Pods of a node.
func (c *Cluster) networkPolicies(node int) daemon {
	return daemon{"network-policies", []string{
		c.tool("network-policies", "network-policies"),
		"--kubeconfig=" + c.kubeconfigOf("network-policies"),
		"--queue=" + strconv.Itoa(policyQueue),
	}}
}

// boot starts a node, unless it is running, and its containerd. It does not start the kubelet.
func (c *Cluster) boot(ctx context.Context, node int) error {
	m := c.node(node)
	if err := m.ensure(ctx, func() error { return c.powerOn(ctx, node) }); err != nil {
		return fmt.Errorf("booting %s: %w", m.name, err)
	}
	if err := m.run(c.containerd(node)); err != nil {
		return err
	}
	if err := c.awaitContainerd(ctx, node); err != nil {
		return fmt.Errorf("waiting for containerd on %s: %w", m.name, err)
	}
	return c.importImages(ctx, node)
}

// powerOn starts a node's machine and connects it to the network.
func (c *Cluster) powerOn(ctx context.Context, node int) error {
	if err := removeCgroup(ctx, c.nodeCgroup(node)); err != nil {
		return err
	}
	if err := createCgroup(c.nodeCgroup(node)); err != nil {
		return err
	}
	for _, name := range volatile {
		if err := os.RemoveAll(filepath.Join(c.nodeDir(node), name)); err != nil {
			return fmt.Errorf("clearing %s: %w", name, err)
		}
	}
	var mounts []spec.Mount
	for target, name := range mountPoints {
		source := filepath.Join(c.nodeDir(node), name)
		if err := os.MkdirAll(source, 0o755); err != nil {
			return fmt.Errorf("creating %s: %w", name, err)
		}
		mounts = append(mounts, spec.Mount{Source: source, Target: target})
	}
	if err := c.writeNodeConfig(node); err != nil {
		return err
	}
	m := c.node(node)
	if err := m.start(ctx, spec.Machine{
		Hostname: m.name,
		Mounts:   mounts,
		Sysctls: []spec.Sysctl{
			{Path: "/proc/sys/net/ipv4/ip_forward", Value: "1"},
			{Path: "/proc/sys/net/ipv6/conf/all/forwarding", Value: "1"},
			// Otherwise the node would not answer a new Pod for a second or two, during the detection of duplicates.
			{Path: "/proc/sys/net/ipv6/conf/default/accept_dad", Value: "0"},
		},
	}); err != nil {
		return err
	}
	host := c.subnets.host()
	routes := append(c.podRoutes(node, "eth0"), fmt.Sprintf("route add default via %s", host.V4), fmt.Sprintf("route add default via %s", host.V6))
	if err := c.plug(ctx, m, c.subnets.nodeLink(node), c.subnets.node(node), routes...); err != nil {
		return err
	}
	rules, err := render("masquerade.nft", c.nodeConfig(node))
	if err != nil {
		return err
	}
	if _, err := m.exec(ctx, rules, "nft", "-f", "-"); err != nil {
		return err
	}
	return c.queueConnections(ctx, node)
}

// awaitContainerd waits until containerd accepts connections.
func (c *Cluster) awaitContainerd(ctx context.Context, node int) error {
	ctx, cancel := context.WithTimeout(ctx, containerdTimeout)
	defer cancel()
	m := c.node(node)
	holder, err := m.running()
	if err != nil {
		return err
	}
	// Through the node's root directory, because the path on the host may be too long for a socket.
	socket := filepath.Join("/proc", strconv.Itoa(holder.pid), "root/run/containerd/containerd.sock")
	return until(ctx, func() (bool, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return true, conn.Close()
		}
		_, ok, err := m.find(c.containerd(node))
		if err == nil && !ok {
			err = fmt.Errorf("it has exited, see %s", m.logFile("containerd"))
		}
		return false, err
	})
}

// startKubelet starts a node's kubelet, kube-proxy and what enforces NetworkPolicies.
func (c *Cluster) startKubelet(node int) error {
	if err := c.ensureNodeCredentials(node); err != nil {
		return err
	}
	return c.node(node).run(c.kubelet(node), c.kubeProxy(node), c.networkPolicies(node))
}

// StopNode stops a node as a power cut would: all its processes are killed at once, its disks are kept. The Node object
// is kept too.
func (c *Cluster) StopNode(ctx context.Context, node int) error {
	return c.change(ctx, node, func() error { return c.powerOff(ctx, node) })
}

// StartNode boots a node and waits until it is Ready. A stopped node keeps what its kubelet and containerd have on
// disk, as after a reboot. Any other number, even a deleted node's, joins as a new node.
func (c *Cluster) StartNode(ctx context.Context, node int) error {
	if node < 1 || node > MaxNodes {
		return fmt.Errorf("nodes are numbered from 1 to %d", MaxNodes)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return err
	}
	if err := c.addNode(node); err != nil {
		return err
	}
	start := time.Now()
	if err := c.boot(ctx, node); err != nil {
		return err
	}
	if err := c.startKubelet(node); err != nil {
		return err
	}
	return c.awaitNode(ctx, node, start)
}

// DeleteNode stops a node, and deletes its disks and its Node object.
func (c *Cluster) DeleteNode(ctx context.Context, node int) error {
	return c.change(ctx, node, func() error {
		if err := c.powerOff(ctx, node); err != nil {
			return err
		}
		client, err := c.client()
		if err != nil {
			return err
		}
		err = client.CoreV1().Nodes().Delete(ctx, c.NodeName(node), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the Node: %w", err)
		}
		if err := c.unlimitDisk(node); err != nil {
			return err
		}
		if err := os.RemoveAll(c.nodeDir(node)); err != nil {
			return fmt.Errorf("removing the node's disks: %w", err)
		}
		return c.removeNode(node)
	})
}

// StopKubelet stops only a node's kubelet: its Pods keep running.
func (c *Cluster) StopKubelet(ctx context.Context, node int) error {
	return c.change(ctx, node, func() error { return c.node(node).terminate(ctx, c.kubelet(node)) })
}

// StartKubelet starts a node's kubelet and waits until it has reported that the node is Ready.
func (c *Cluster) StartKubelet(ctx context.Context, node int) error {
	return c.change(ctx, node, func() error {
		start := time.Now()
		if err := c.startKubelet(node); err != nil {
			return err
		}
		return c.awaitNode(ctx, node, start)
	})
}

// errNoNode is returned for a number that no node of the cluster has.
var errNoNode = errors.New("no such node")

// change calls do for an existing node while no other process changes the cluster.
func (c *Cluster) change(ctx context.Context, node int, do func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return err
	}
	if !slices.Contains(c.state.Nodes, node) {
		return fmt.Errorf("%s: %w", c.NodeName(node), errNoNode)
	}
	return do()
}

// powerOff kills a node's machine and removes its control group. It disconnects the network first, because a node
// without power does not close its connections. The kernel may even keep the network namespace, which still forwards
// and responds, for minutes.
func (c *Cluster) powerOff(ctx context.Context, node int) error {
	if err := unplug(ctx, c.subnets.nodeLink(node)); err != nil {
		return err
	}
	if err := c.node(node).kill(ctx); err != nil {
		return fmt.Errorf("stopping %s: %w", c.NodeName(node), err)
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return removeCgroup(ctx, c.nodeCgroup(node))
}

// startClient starts the client outside the cluster. It has no route to Pods and Services.
func (c *Cluster) startClient(ctx context.Context) error {
	m := c.outside()
	return m.ensure(ctx, func() error {
		if err := m.start(ctx, spec.Machine{}); err != nil {
			return err
		}
		return c.plug(ctx, m, c.subnets.clientLink(), c.subnets.client())
	})
}

// createdDirs is the file with the mount points that clusters created on the host.
func (c *Cluster) createdDirs() string { return filepath.Join(c.base, ".mount-points") }

// ensureMountPoints creates the host's directories that nodes use as mount points, and records those that it created.
// The last cluster removes them.
func (c *Cluster) ensureMountPoints(ctx context.Context) error {
	unlock, err := lockAll(ctx, c.base)
	if err != nil {
		return err
	}
	defer unlock()
	for target := range mountPoints {
		var missing []string
		for dir := target; ; dir = filepath.Dir(dir) {
			if ok, err := exists(dir); err != nil {
				return err
			} else if ok {
				break
			}
			missing = append(missing, dir)
		}
		if len(missing) == 0 {
			continue
		}
		if err := appendLines(c.createdDirs(), missing); err != nil {
			return err
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("creating a mount point: %w", err)
		}
	}
	return nil
}

// removeMountPoints removes what ensureMountPoints created if no other cluster exists: removing a mount point on the
// host unmounts it on the nodes.
func (c *Cluster) removeMountPoints(ctx context.Context) error {
	unlock, err := lockAll(ctx, c.base)
	if err != nil {
		return err
	}
	defer unlock()
	others, err := names(c.base)
	if err != nil || len(others) > 0 {
		return err
	}
	data, err := os.ReadFile(c.createdDirs())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("reading the list of mount points: %w", err)
	}
	for dir := range strings.FieldsSeq(string(data)) {
		err := unix.Rmdir(dir)
		// Something else may use it now.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing mount point %s: %w", dir, err)
		}
	}
	return errors.Join(os.RemoveAll(c.createdDirs()), os.Remove(filepath.Join(c.base, lockAllFile)))
}

// appendLines appends lines to a file.
func appendLines(path string, lines []string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, file.Close())
}
