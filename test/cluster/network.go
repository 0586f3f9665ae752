package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// ensureBridge creates the network that connects the host, the nodes and the client outside the cluster.
func (c *Cluster) ensureBridge(ctx context.Context) error {
	s := c.subnets
	if _, err := net.InterfaceByName(s.bridge()); err != nil {
		// With a fixed hardware address: otherwise the bridge uses the address of one of its ports, which changes when
		// ports are added and removed.
		if err := ip(ctx, fmt.Sprintf("link add %s address %s type bridge", s.bridge(), hardwareAddress(s.host().V4))); err != nil {
			return fmt.Errorf("creating the bridge: %w", err)
		}
	}
	if err := enableIPv6(s.bridge()); err != nil {
		return err
	}
	commands := append(c.setAddresses(s.host(), s.bridge()), fmt.Sprintf("link set %s up", s.bridge()))
	if err := ip(ctx, append(commands, c.podRoutes(0, s.bridge())...)...); err != nil {
		return fmt.Errorf("setting up the bridge: %w", err)
	}
	return nil
}

// enableIPv6 lets a network device of the host have IPv6 addresses, also if the host's other devices have none.
func enableIPv6(device string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("0"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the kernel has no IPv6, which the cluster uses beside IPv4: boot it without ipv6.disable=1")
	}
	if err != nil {
		return fmt.Errorf("enabling IPv6 on %s: %w", device, err)
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
			pods, via := c.subnets.nodePods(node), c.subnets.node(node)
			routes = append(routes,
				fmt.Sprintf("route replace %s via %s dev %s", pods.V4, via.V4, device),
				fmt.Sprintf("route replace %s via %s dev %s", pods.V6, via.V6, device))
		}
	}
	return routes
}

// setAddresses returns the commands that give a device of the node network its addresses. They are used at once: no
// other machine has them, so there is no detection of duplicates.
func (c *Cluster) setAddresses(a ips, device string) []string {
	nodes := c.subnets.nodes()
	return []string{
		fmt.Sprintf("addr replace %s/%d dev %s", a.V4, nodes.V4.Bits(), device),
		fmt.Sprintf("addr replace %s/%d dev %s nodad", a.V6, nodes.V6.Bits(), device),
	}
}

// plug connects a started machine to the bridge, and runs the commands inside on the machine.
func (c *Cluster) plug(ctx context.Context, m machine, link string, at ips, inside ...string) error {
	holder, err := m.running()
	if err != nil {
		return err
	}
	if err := unplug(ctx, link); err != nil {
		return err
	}
	if err := ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", link, hardwareAddress(at.V4), holder.pid),
		fmt.Sprintf("link set %s master %s up", link, c.subnets.bridge()),
	); err != nil {
		return fmt.Errorf("connecting %s: %w", m.name, err)
	}
	batch := slices.Concat([]string{"link set lo up"}, c.setAddresses(at, "eth0"), []string{"link set eth0 up"}, inside)
	if _, err := m.exec(ctx, strings.Join(batch, "\n"), "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("setting up the network: %w", err)
	}
	return nil
}

// hardwareAddress derives a hardware address from an IPv4 address, so that a restarted machine has the one that its
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
