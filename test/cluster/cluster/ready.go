package cluster

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// readyTimeout is how long a node, or the cluster's DNS, may take to become ready.
const readyTimeout = 2 * time.Minute

// applyDNS installs the cluster's DNS.
func (c *Cluster) applyDNS(ctx context.Context) error {
	manifest, err := render("coredns.yaml", map[string]string{"CoreDNSImage": corednsImage, "DNS": c.subnets.dns().String()})
	if err != nil {
		return err
	}
	_, err = c.control().exec(ctx, manifest, c.Kubectl(), "--kubeconfig="+c.Kubeconfig(), "apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-")
	if err != nil {
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
	c.progress.say("%d nodes are ready", len(c.state.Nodes))
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

// dnsReady tells whether the cluster's DNS is available.
func dnsReady(ctx context.Context, client kubernetes.Interface) (bool, error) {
	deployment, err := client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
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

// awaitNode waits until a node's kubelet has reported, at the given time or later, that the node is Ready.
func (c *Cluster) awaitNode(ctx context.Context, node int, since time.Time) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	m, kubelet := c.node(node), c.kubelet(node)
	err = until(ctx, func() (bool, error) {
		object, err := client.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err == nil && nodeReady(object, since) {
			return true, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		_, ok, err := m.find(kubelet)
		if err == nil && !ok {
			err = fmt.Errorf("its kubelet has ended, see %s", m.logFile(kubelet.name))
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", m.name, err)
	}
	return nil
}

// nodeReady tells whether a node is Ready and said so at the given time or later. The API has whole seconds only.
func nodeReady(node *corev1.Node, since time.Time) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
		}
	}
	return false
}

// Component is one part of a cluster, as Status reports it.
type Component struct {
	// Machine is "control", "client" or a node's name.
	Machine string
	// Name is the program's name; "machine" is the machine itself.
	Name string
	// PID is the process on the host, or zero if it does not run.
	PID int
	// Log is the file that its output goes to.
	Log string
}

// Status lists everything that should run, and whether it does.
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
		if err := add(c.node(node), c.containerd(node), c.kubelet(node), c.kubeProxy(node)); err != nil {
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
		object, err := client.CoreV1().Nodes().Get(ctx, c.NodeName(node), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading %s: %w", c.NodeName(node), err)
		}
		if !nodeReady(object, time.Time{}) {
			return fmt.Errorf("%s: %w", c.NodeName(node), errNotReady)
		}
	}
	ok, err := dnsReady(ctx, client)
	if err == nil && !ok {
		err = fmt.Errorf("DNS: %w", errNotReady)
	}
	return err
}
