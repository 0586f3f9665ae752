package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
)

// ensureBridge creates the network that connects the host, the nodes and the client outside of the cluster.
func (c *Cluster) ensureBridge(ctx context.Context) error {
	s := c.subnets
	if _, err := net.InterfaceByName(s.bridge()); err != nil {
		// With a fixed hardware address: otherwise the bridge uses that of one of its ports, which changes when ports
		// are added and removed.
		if err := ip(ctx, fmt.Sprintf("link add %s address %s type bridge", s.bridge(), hardwareAddress(s.host()))); err != nil {
			return fmt.Errorf("creating the bridge: %w", err)
		}
	}
	commands := []string{
		fmt.Sprintf("addr replace %s/%d dev %s", s.host(), s.nodes().Bits(), s.bridge()),
		fmt.Sprintf("link set %s up", s.bridge()),
	}
	if err := ip(ctx, append(commands, c.podRoutes(0, s.bridge())...)...); err != nil {
		return fmt.Errorf("setting up the bridge: %w", err)
	}
	return nil
}

// removeNetwork removes the bridge, the host's routes through it, and its ports.
func (c *Cluster) removeNetwork(ctx context.Context) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range interfaces {
		// Slots have one digit, so that no other cluster's names have this prefix.
		if strings.HasPrefix(i.Name, c.subnets.bridge()) {
			if err := unplug(ctx, i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// podRoutes returns the routes to the Pods of all possible nodes except the given one, so that a node that joins later
// requires no change on the others.
func (c *Cluster) podRoutes(except int, device string) []string {
	var routes []string
	for node := 1; node <= MaxNodes; node++ {
		if node != except {
			routes = append(routes, fmt.Sprintf("route replace %s via %s dev %s", c.subnets.nodePods(node), c.subnets.node(node), device))
		}
	}
	return routes
}

// plug connects a started machine to the bridge, and runs the commands inside on the machine.
func (c *Cluster) plug(ctx context.Context, m machine, link string, address netip.Addr, inside ...string) error {
	holder, err := m.running()
	if err != nil {
		return err
	}
	if err := unplug(ctx, link); err != nil {
		return err
	}
	if err := ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", link, hardwareAddress(address), holder.pid),
		fmt.Sprintf("link set %s master %s up", link, c.subnets.bridge()),
	); err != nil {
		return fmt.Errorf("connecting %s: %w", m.name, err)
	}
	batch := append([]string{
		"link set lo up",
		fmt.Sprintf("addr add %s/%d dev eth0", address, c.subnets.nodes().Bits()),
		"link set eth0 up",
	}, inside...)
	if _, err := m.exec(ctx, strings.Join(batch, "\n"), "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("setting up the network: %w", err)
	}
	return nil
}

// hardwareAddress derives a hardware address from an IP address, so that a restarted machine has the one that its
// neighbours have cached.
func hardwareAddress(address netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x00}, address.AsSlice()...)
}

// unplug disconnects a machine, whether it runs or not.
func unplug(ctx context.Context, link string) error {
	if _, err := net.InterfaceByName(link); err != nil {
		return nil //nolint:nilerr // it does not exist
	}
	if err := ip(ctx, "link del "+link); err != nil && !isNotFound(err) {
		return fmt.Errorf("disconnecting %s: %w", link, err)
	}
	return nil
}

// ip runs commands of ip(8) on the host, up to the first that fails.
func ip(ctx context.Context, commands ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return &ipError{err: err, output: strings.TrimSpace(string(output))}
	}
	return nil
}

// ipError is a failure of ip(8), with its output.
type ipError struct {
	err    error
	output string
}

func (e *ipError) Error() string { return fmt.Sprintf("ip: %v: %s", e.err, e.output) }
func (e *ipError) Unwrap() error { return e.err }

// isNotFound reports whether ip(8) failed because the device does not exist.
func isNotFound(err error) bool {
	var failure *ipError
	return errors.As(err, &failure) && strings.Contains(failure.output, "Cannot find device")
}
