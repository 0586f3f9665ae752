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

// ensureBridge makes the network that connects the host, the nodes and the outside client.
func (c *Cluster) ensureBridge(ctx context.Context) error {
	s := c.subnets
	if _, err := net.InterfaceByName(s.bridge()); err != nil {
		// With an address of its own: otherwise it would take that of one of its ports, and change it as they come and
		// go.
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

// removeNetwork removes the bridge, the host's routes with it, and everything that is plugged in.
func (c *Cluster) removeNetwork(ctx context.Context) error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range interfaces {
		// Slots have one digit, so no other cluster's names start the same way.
		if strings.HasPrefix(i.Name, c.subnets.bridge()) {
			if err := unplug(ctx, i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// podRoutes returns the routes to the Pods of every node that there may be, except those of the given one: a node that
// joins later then needs no change elsewhere.
func (c *Cluster) podRoutes(except int, device string) []string {
	var routes []string
	for node := 1; node <= MaxNodes; node++ {
		if node != except {
			routes = append(routes, fmt.Sprintf("route replace %s via %s dev %s", c.subnets.nodePods(node), c.subnets.node(node), device))
		}
	}
	return routes
}

// plug connects a machine that was just started to the bridge and gives its end the commands inside.
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
		return fmt.Errorf("plugging in %s: %w", m.name, err)
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

// hardwareAddress derives a hardware address from an IP address, so that a machine that comes back has the one that its
// neighbours remember.
func hardwareAddress(address netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x00}, address.AsSlice()...)
}

// unplug disconnects a machine, running or not, at once.
func unplug(ctx context.Context, link string) error {
	if _, err := net.InterfaceByName(link); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	if err := ip(ctx, "link del "+link); err != nil && !isGone(err) {
		return fmt.Errorf("unplugging %s: %w", link, err)
	}
	return nil
}

// ip runs commands of ip(8) on the host, and stops at the first that fails.
func ip(ctx context.Context, commands ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return &ipError{err: err, output: strings.TrimSpace(string(output))}
	}
	return nil
}

// ipError is a failure of ip(8) with what it printed.
type ipError struct {
	err    error
	output string
}

func (e *ipError) Error() string { return fmt.Sprintf("ip: %v: %s", e.err, e.output) }
func (e *ipError) Unwrap() error { return e.err }

// isGone tells whether ip(8) failed because the device is not there any more.
func isGone(err error) bool {
	var failure *ipError
	return errors.As(err, &failure) && strings.Contains(failure.output, "Cannot find device")
}
