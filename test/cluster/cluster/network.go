package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
)

// ensureBridge makes the network that connects the host, the nodes and the outside client.
func (c *Cluster) ensureBridge(ctx context.Context) error {
	s := c.subnets
	if _, err := net.InterfaceByName(s.bridge()); err != nil {
		if err := ip(ctx, fmt.Sprintf("link add %s type bridge", s.bridge())); err != nil {
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

// removeBridge removes that network. The host's routes go with it.
func (c *Cluster) removeBridge(ctx context.Context) error {
	if _, err := net.InterfaceByName(c.subnets.bridge()); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	if err := ip(ctx, "link del "+c.subnets.bridge()); err != nil {
		return fmt.Errorf("removing the bridge: %w", err)
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
func (c *Cluster) plug(ctx context.Context, m machine, link, address string, inside ...string) error {
	holder, err := m.running()
	if err != nil {
		return err
	}
	// The cable of a machine that was killed goes with its namespace, but not at once.
	if _, err := net.InterfaceByName(link); err == nil {
		if err := ip(ctx, "link del "+link); err != nil && !isGone(err) {
			return fmt.Errorf("unplugging %s: %w", m.name, err)
		}
	}
	parsed := net.ParseIP(address).To4()
	// A machine that comes back has the same hardware address, so nobody's neighbour table is out of date.
	mac := net.HardwareAddr{0x02, 0, parsed[0], parsed[1], parsed[2], parsed[3]}
	if err := ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", link, mac, holder.pid),
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
