package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"

	"golang.org/x/sys/unix"
)

// ClientCommand returns a command that will run on the client outside the cluster: it reaches nodes and the API
// server, but neither Pods nor Services by their own addresses. The command sees the host's files. When ctx ends, it
// and its children are killed. If the client does not run, the command's Err is set, and starting it returns that
// error.
func (c *Cluster) ClientCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	return commandOn(ctx, c.outside(), name, args)
}

// NodeCommand returns a command that will run on a node: with its network, its mounts and its processes. Otherwise it
// is like ClientCommand.
func (c *Cluster) NodeCommand(ctx context.Context, node int, name string, args ...string) *exec.Cmd {
	return commandOn(ctx, c.node(node), name, args)
}

// commandOn returns a command on a machine, or a command that cannot start.
func commandOn(ctx context.Context, m machine, name string, args []string) *exec.Cmd {
	cmd, err := m.command(ctx, name, args...)
	if err != nil {
		cmd = exec.CommandContext(ctx, name, args...) // never started
		cmd.Err = err
	}
	return cmd
}

// ClientDial connects from the client outside the cluster. The address is an IP address and a port, as the client
// has no name server.
func (c *Cluster) ClientDial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("parsing the address to dial: %w", err)
	}
	holder, err := c.outside().running()
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	err = inNamespaces(holder, unix.CLONE_NEWNET, func() error {
		// A socket stays in the network namespace that it was created in.
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// RunKubectl runs kubectl on the cluster with input, which may be nil. An error contains its output.
func (c *Cluster) RunKubectl(ctx context.Context, input []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(output))
	}
	return nil
}
