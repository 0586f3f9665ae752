package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// dnsName is the name of the DNS Deployment.
const dnsName = "coredns"

// readyTimeout is how long a node, or the cluster's DNS, may take to become ready.
const readyTimeout = 2 * time.Minute

// ensureDNS installs the cluster's DNS unless it exists.
func (c *Cluster) ensureDNS(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	_, err = client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, dnsName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	return c.installDNS(ctx)
}

// installDNS installs the cluster's DNS.
func (c *Cluster) installDNS(ctx context.Context) error {
	manifest, err := render("coredns.yaml", map[string]string{"CoreDNSImage": corednsImage, "DNS": c.subnets.dns().String()})
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + filepath.Join(c.control().dir, "kubectl"),
		"apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-",
	}
	if _, err := c.control().exec(ctx, manifest, c.Kubectl(), args...); err != nil {
		return fmt.Errorf("installing DNS: %w", err)
	}
	return nil
}

// awaitReady waits until all nodes and the cluster's DNS are ready.
func (c *Cluster) awaitReady(ctx context.Context) error {
	for _, node := range c.state.Nodes {
		if err := c.awaitNode(ctx, node, time.Time{}); err != nil {
			return err
		}
	}
	c.progress.Printf("%d nodes are ready", len(c.state.Nodes))
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := until(ctx, func() (bool, error) { return dnsReady(ctx, client) }); err != nil {
		return fmt.Errorf("waiting for the cluster's DNS: %w", err)
	}
	return nil
}

// dnsReady reports whether the cluster's DNS is available.
func dnsReady(ctx context.Context, client kubernetes.Interface) (bool, error) {
	deployment, err := client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, dnsName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading the DNS deployment: %w", err)
	}
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status == corev1.ConditionTrue {
			return deployment.Status.ObservedGeneration == deployment.Generation, nil
		}
	}
	return false, nil
}

// awaitNode waits until a node's kubelet has reported, at the given time or later, that the node is Ready, and the node
// enforces NetworkPolicies.
func (c *Cluster) awaitNode(ctx context.Context, node int, since time.Time) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	m := c.node(node)
	err = until(ctx, func() (bool, error) {
		ok, err := c.nodeReady(ctx, client, node, since)
		if ok || err != nil {
			return ok, err
		}
		for _, d := range []daemon{c.kubelet(node), c.networkPolicies(node)} {
			if _, ok, err = m.find(d); err != nil {
				return false, err
			} else if !ok {
				return false, fmt.Errorf("its %s has exited, see %s", d.name, m.logFile(d.name))
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", m.name, err)
	}
	return nil
}

// nodeReady reports whether a node enforces NetworkPolicies and is Ready, and its kubelet has reported the latter at
// the given time or later.
func (c *Cluster) nodeReady(ctx context.Context, client kubernetes.Interface, node int, since time.Time) (bool, error) {
	if ok, err := c.policiesEnforced(node); !ok || err != nil {
		return false, err
	}
	return kubeletReady(ctx, client, c.NodeName(node), since)
}

// kubeletReady reports whether a node is Ready, and its kubelet has reported so at the given time or later.
func kubeletReady(ctx context.Context, client kubernetes.Interface, name string, since time.Time) (bool, error) {
	// The heartbeat in the condition is in whole seconds, the lease's time is precise.
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the lease of %s: %w", name, err)
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
		return false, nil
	}
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			fresh := !condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
			return condition.Status == corev1.ConditionTrue && fresh, nil
		}
	}
	return false, nil
}

// Component is a component of a cluster, as Status reports it.
type Component struct {
	// Machine is "control", "client" or a node's name.
	Machine string
	// Name is the program's name; "machine" is the machine itself.
	Name string
	// PID is the process on the host, or zero if it does not run.
	PID int
	// Log is the path of its log file.
	Log string
}

// Status returns all components that should run.
func (c *Cluster) Status() ([]Component, error) {
	var all []Component
	add := func(m machine, daemons ...daemon) error {
		holder, _, err := m.holder()
		if err != nil {
			return err
		}
		all = append(all, Component{Machine: m.name, Name: "machine", PID: holder.pid, Log: m.logFile("init")})
		for _, d := range daemons {
			p, _, err := m.find(d)
			if err != nil {
				return err
			}
			all = append(all, Component{Machine: m.name, Name: d.name, PID: p.pid, Log: m.logFile(d.name)})
		}
		return nil
	}
	if err := add(c.control(), c.controlPlane()...); err != nil {
		return nil, err
	}
	if err := add(c.outside()); err != nil {
		return nil, err
	}
	for _, node := range c.state.Nodes {
		if err := add(c.node(node), c.containerd(node), c.kubelet(node), c.kubeProxy(node), c.networkPolicies(node)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Ready returns nil if the API server, every node and the cluster's DNS are ready at this moment.
func (c *Cluster) Ready(ctx context.Context) error {
	if err := c.apiReady(ctx); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	for _, node := range c.state.Nodes {
		ok, err := c.nodeReady(ctx, client, node, time.Time{})
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s: %w", c.NodeName(node), errNotReady)
		}
	}
	ok, err := dnsReady(ctx, client)
	if err == nil && !ok {
		err = fmt.Errorf("DNS: %w", errNotReady)
	}
	return err
}
