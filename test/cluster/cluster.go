// Package cluster runs a real Kubernetes of several nodes on one Linux machine, for tests and demonstrations.
//
// Each node is a set of namespaces with a containerd, a kubelet and a kube-proxy of its own, and enforces
// NetworkPolicies; the control plane runs on the host; one more network namespace on the same bridge is a client
// outside the cluster. It requires root, Go and some Debian packages, but no container engine and no image registry.
// What runs is always determined from the machine, so any process can use, complete and delete a cluster, also after a
// crash of the process that brought it up.
//
// Only tests and test tools may import it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// DefaultName is the name of a cluster if none is given.
const DefaultName = "listener"

// toolSets are the tool sets that a cluster runs.
var toolSets = []string{"kubernetes", "etcd", "containerd", "coredns", "network-policies"}

// defaultNodes is the number of nodes of a new cluster if none is given.
const defaultNodes = 3

// Options configure Up.
type Options struct {
	// Name distinguishes clusters on the same machine. Empty means DefaultName.
	Name string
	// Nodes is the number of nodes, at most MaxNodes. Zero means as many as the cluster has, and 3 for a new one. More
	// than the cluster has adds nodes; fewer removes none.
	Nodes int
	// Kubernetes is the minor version of Kubernetes, such as "1.33". Empty means the newest one. A cluster that runs
	// keeps its version.
	Kubernetes string
	// MicroShift is the directory of a checkout of github.com/openshift/microshift. A new cluster then runs OpenShift's
	// API server and policy controller from it, and everything else in the same version of Kubernetes. Empty means what
	// the cluster has, or Kubernetes.
	MicroShift string
	// Progress gets a line for each step. Nil discards them.
	Progress io.Writer
}

// Cluster is a cluster on this machine. Several processes may use it at the same time; changes are serialized.
type Cluster struct {
	name     string
	base     string
	dir      string
	state    state
	subnets  subnets
	progress *Progress
	// kubernetes is the minor version to start, or empty.
	kubernetes string
}

// Up creates a cluster, or completes an existing one: it starts whatever does not run, also stopped nodes, and returns
// when the API server, all nodes and DNS are ready.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	if options.Name == "" {
		options.Name = DefaultName
	}
	if options.Nodes < 0 || options.Nodes > MaxNodes {
		return nil, fmt.Errorf("a cluster has 1 to %d nodes, not %d", MaxNodes, options.Nodes)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w (it would also install, if missing: %s)", ErrNotRoot, strings.Join(packageNames(), " "))
	}
	c, err := locate(options.Name)
	if err != nil {
		return nil, err
	}
	c.progress, c.kubernetes = NewProgress(options.Progress), options.Kubernetes
	if err := ensurePackages(ctx, c.progress); err != nil {
		return nil, fmt.Errorf("installing packages: %w", err)
	}
	if err := ensureLimit(inotifyInstances, neededInstances, c.progress); err != nil {
		return nil, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("waiting for another change of the cluster: %w", err)
	}
	defer unlock()
	if err := c.ensureState(ctx, options); err != nil {
		return nil, err
	}
	if err := c.ensure(ctx); err != nil {
		return nil, fmt.Errorf("bringing up cluster %s: %w", c.name, err)
	}
	return c, nil
}

// Open returns a cluster that Up created, or ErrNotFound. It does not check what runs.
func Open(name string) (*Cluster, error) {
	c, err := locate(name)
	if err != nil {
		return nil, err
	}
	return c, c.load()
}

// ensureState loads or creates the cluster's state, and adds nodes up to the given number.
func (c *Cluster) ensureState(ctx context.Context, options Options) error {
	microShift := options.MicroShift
	if microShift != "" {
		var err error
		if microShift, err = filepath.Abs(microShift); err != nil {
			return fmt.Errorf("finding the checkout of MicroShift: %w", err)
		}
	}
	err := c.load()
	isNew := errors.Is(err, ErrNotFound)
	if isNew {
		err = c.claim(ctx, microShift)
	}
	if err != nil {
		return err
	}
	if microShift != "" && microShift != c.state.MicroShift {
		return fmt.Errorf("cluster %s exists, and does not run OpenShift's API server from %s", c.name, microShift)
	}
	nodes := options.Nodes
	if nodes == 0 && len(c.state.Nodes) == 0 {
		nodes = defaultNodes
	}
	for node := 1; node <= nodes; node++ {
		if err := c.addNode(node); err != nil {
			return err
		}
	}
	return nil
}

// ensure starts everything that is missing, in as few sequential steps as its dependencies allow.
func (c *Cluster) ensure(ctx context.Context) error {
	_, running, err := c.control().holder()
	if err != nil {
		return err
	}
	if !running {
		if err := c.prepare(ctx); err != nil {
			return err
		}
	}
	if err := c.ensureBridge(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(groupCtx) })
	group.Go(func() error { return c.startClient(groupCtx) })
	for _, node := range c.state.Nodes {
		group.Go(func() error { return c.boot(groupCtx, node) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	c.progress.Printf("the API server, and containerd on %d nodes, are up", len(c.state.Nodes))
	for _, node := range c.state.Nodes {
		if err := c.startKubelet(node); err != nil {
			return err
		}
	}
	if err := c.ensureDNS(ctx); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	c.progress.Printf("cluster %s is ready; kubeconfig: %s", c.name, c.Kubeconfig())
	return nil
}

// prepare creates all files that a cluster needs to start. It must not be called while the control plane runs.
func (c *Cluster) prepare(ctx context.Context) error {
	if err := c.buildPrograms(ctx); err != nil {
		return err
	}
	c.progress.Printf("programs are built")
	if err := c.ensurePKI(); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	if err := errors.Join(c.writeAuditPolicy(), c.writeOpenShiftConfig()); err != nil {
		return err
	}
	if err := c.writeSystemImages(ctx); err != nil {
		return err
	}
	return c.ensureMountPoints(ctx)
}

// buildPrograms builds all programs of the cluster, and creates its directories.
func (c *Cluster) buildPrograms(ctx context.Context) error {
	if err := c.ensureOpenShiftPrograms(ctx); err != nil {
		return err
	}
	for _, name := range toolSets {
		set := name
		if name == "kubernetes" {
			set = tools.Kubernetes(c.kubernetes)
		}
		dir, err := tools.Ensure(ctx, set)
		if err != nil {
			return err
		}
		c.state.Tools[name] = dir
	}
	if err := c.save(); err != nil {
		return err
	}
	for _, dir := range []string{c.binDir(), c.logDir(), c.imageDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("creating a directory: %w", err)
		}
	}
	if err := tools.BuildLocal(ctx, "test", c.binDir(), "./cluster/nodeinit", "./cluster/pause", "./cluster/registry", "./cluster/serviceca"); err != nil {
		return fmt.Errorf("building the cluster's own programs: %w", err)
	}
	return nil
}

// Down deletes the cluster and everything that belongs to it. It is no error if the cluster, or a part of it, does not
// exist. Progress may be nil.
func Down(ctx context.Context, name string, progress io.Writer) error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	c, err := locate(name)
	if err != nil {
		return err
	}
	c.progress = NewProgress(progress)
	unlock, err := c.lock(ctx)
	if err != nil {
		return fmt.Errorf("waiting for another change of the cluster: %w", err)
	}
	defer unlock()
	if err := c.down(ctx); err != nil {
		return fmt.Errorf("taking down cluster %s: %w", name, err)
	}
	c.progress.Printf("cluster %s is down", name)
	return nil
}

// down removes the state last, so that it can be repeated after a failure.
func (c *Cluster) down(ctx context.Context) error {
	err := c.load()
	known := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	holders, err := processes(func(p process) bool { return p.argv[0] == c.initProgram() })
	if err != nil {
		return err
	}
	for _, holder := range holders {
		if err := killHolder(ctx, holder); err != nil {
			return err
		}
	}
	c.progress.Printf("%d machines are off", len(holders))
	cleanCtx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := removeCgroup(cleanCtx, c.cgroup()); err != nil {
		return err
	}
	if known {
		if err := errors.Join(c.removeNetwork(ctx), c.unlimitDisks()); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("removing the cluster's directory: %w", err)
	}
	if err := c.removeMountPoints(ctx); err != nil {
		return err
	}
	if err := os.Remove(c.dir + ".lock"); err != nil {
		return fmt.Errorf("removing the cluster's lock: %w", err)
	}
	return nil
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.name }

// Nodes returns the numbers of the cluster's nodes, running or not, in ascending order.
func (c *Cluster) Nodes() []int { return slices.Clone(c.state.Nodes) }

// NodeName returns the name of a node's Node object.
func (c *Cluster) NodeName(node int) string { return fmt.Sprintf("node-%d", node) }

// NodeIP returns a node's first InternalIP, which is one of IPv4.
func (c *Cluster) NodeIP(node int) string { return c.subnets.node(node).V4.String() }

// NodeIPv6 returns a node's second InternalIP.
func (c *Cluster) NodeIPv6(node int) string { return c.subnets.node(node).V6.String() }

// HostIP returns the host's address on the node network. Everything can reach it: nodes, Pods and the client.
func (c *Cluster) HostIP() string { return c.subnets.host().V4.String() }

// ClientIP returns the address of the client outside the cluster.
func (c *Cluster) ClientIP() string { return c.subnets.client().V4.String() }

// ClientIPv6 returns the other address of the client outside the cluster.
func (c *Cluster) ClientIPv6() string { return c.subnets.client().V6.String() }

// ServiceSubnet returns the range of cluster IPs. The client outside has no route to it.
func (c *Cluster) ServiceSubnet() string { return c.subnets.services().V4.String() }

// ServiceSubnetIPv6 returns the range of cluster IPs of IPv6. The client outside has no route to it, either.
func (c *Cluster) ServiceSubnetIPv6() string { return c.subnets.services().V6.String() }

// PodSubnets returns the ranges of the addresses of the Pods on a node. The client outside has no route to them.
func (c *Cluster) PodSubnets(node int) (v4, v6 string) {
	pods := c.subnets.nodePods(node)
	return pods.V4.String(), pods.V6.String()
}

// FreeIP returns an address of the node network that no machine has, for a load balancer. They are numbered from 1 to
// MaxFree. All addresses from the first to the last are free.
func (c *Cluster) FreeIP(i int) string { return c.subnets.free(i).V4.String() }

// FreeIPv6 is like FreeIP, for an address of IPv6.
func (c *Cluster) FreeIPv6(i int) string { return c.subnets.free(i).V6.String() }

// MirroredRegistry is a registry that does not exist. Nodes pull its images from the cluster's own registry, as nodes
// of disconnected clusters do from a mirror. They have no password for it, so Pods need a pull secret.
const MirroredRegistry = "registry.example"

// Registry returns the address and port of the cluster's image registry, which is the first part of the names of the
// images in it. It uses TLS, and requires a password that nodes have.
func (c *Cluster) Registry() string { return c.HostIP() + ":5000" }

// Kubeconfig returns the path of a kubeconfig with all permissions.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Kubectl returns the path of the kubectl program of the cluster's version.
func (c *Cluster) Kubectl() string { return c.tool("kubernetes", "kubectl") }

// LogDir returns the directory with the logs of all components.
func (c *Cluster) LogDir() string { return c.logDir() }

// AuditLog returns the path of the API server's audit log since the cluster was created: a JSON audit.k8s.io/v1 Event
// on each line, of the requests of ServiceAccounts outside of kube-system, and of the writes of all users except for
// those of leases.
func (c *Cluster) AuditLog() string { return filepath.Join(c.logDir(), "audit.jsonl") }

// KubeletDir returns the host's path of a node's /var/lib/kubelet. Mounts that the kubelet makes below it are only
// visible on the node.
func (c *Cluster) KubeletDir(node int) string { return filepath.Join(c.nodeDir(node), "kubelet") }

// RESTConfig returns a client configuration with all permissions and without a rate limit.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// client returns a client with all permissions.
func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

// Paths in the cluster's directory.
func (c *Cluster) binDir() string      { return filepath.Join(c.dir, "bin") }
func (c *Cluster) initProgram() string { return filepath.Join(c.binDir(), "nodeinit") }
func (c *Cluster) logDir() string      { return filepath.Join(c.dir, "logs") }
func (c *Cluster) imageDir() string    { return filepath.Join(c.dir, "images") }
func (c *Cluster) pkiDir() string      { return filepath.Join(c.dir, "pki") }
func (c *Cluster) nodeDir(node int) string {
	return filepath.Join(c.dir, c.NodeName(node))
}

// cgroup is the control group of all Pods, relative to the root of each tree.
func (c *Cluster) cgroup() string { return "listener-operator-" + c.name }

// tool returns the path of a program of a tool set.
func (c *Cluster) tool(set, program string) string {
	return filepath.Join(c.state.Tools[set], program)
}

// machine returns one of the cluster's machines.
func (c *Cluster) machine(name string, namespaces uintptr) machine {
	return machine{
		name:       name,
		dir:        filepath.Join(c.dir, name),
		logs:       c.logDir(),
		init:       c.initProgram(),
		namespaces: namespaces,
	}
}

// control is the machine of the control plane: the host, but with a process namespace of its own.
func (c *Cluster) control() machine { return c.machine("control", unix.CLONE_NEWPID) }

// outside is the machine of the client outside the cluster.
func (c *Cluster) outside() machine {
	return c.machine("client", unix.CLONE_NEWPID|unix.CLONE_NEWNET)
}

// node is a node's machine.
func (c *Cluster) node(node int) machine {
	return c.machine(c.NodeName(node), unix.CLONE_NEWPID|unix.CLONE_NEWNET|unix.CLONE_NEWNS|unix.CLONE_NEWUTS)
}
