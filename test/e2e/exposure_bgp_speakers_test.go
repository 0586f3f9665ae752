//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/pages"
)

// outside is the number of the router among the machines that speak BGP. The others are nodes.
const outside = 0

// bgp is what speaks BGP on a router outside the cluster and on each node, and a client that is connected to nothing
// but the router.
type bgp struct {
	*scenario
	client customerNetwork
	// bfd is false if no machine uses BFD.
	bfd bool
	// byFRR are the machines that run FRR instead of BIRD.
	byFRR []int
	// dir has a directory for each machine.
	dir string
	// exited are the programs that were started on each machine.
	exited map[int][]<-chan struct{}
}

// connectRouter makes the machine outside the cluster a router, and returns a client behind it. The router selects
// the next hop of a connection by its ports, too, and finds out by BGP alone which nodes there are.
func (s *scenario) connectRouter() customerNetwork {
	s.Helper()
	c := s.connectCustomer()
	for setting, value := range map[string]int{"ip_forward": 1, "fib_multipath_hash_policy": 1, "fib_multipath_use_neigh": 0} {
		s.onClient("sh", "-c", fmt.Sprintf("echo %d > /proc/sys/net/ipv4/%s", value, setting))
	}
	if out, err := exec.CommandContext(s.ctx, "ip", "-n", c.namespace, "route", "add", "default", "via", proxyAddress).CombinedOutput(); err != nil {
		s.Fatalf("routing through the router: %v: %s", err, out)
	}
	return c
}

// startBGP starts what speaks BGP everywhere, until the end of the test, and waits until the router uses all nodes.
func (s *scenario) startBGP(c customerNetwork, bfd bool, byFRR ...int) *bgp {
	s.Helper()
	s.must(errors.Join(cluster.InstallPackage(s.ctx, "bird2", "bird"), cluster.InstallPackage(s.ctx, "frr", frrPrograms+"bgpd")))
	b := &bgp{scenario: s, client: c, bfd: bfd, byFRR: byFRR, exited: map[int][]<-chan struct{}{}}
	var err error
	b.dir, err = os.MkdirTemp("", "bgp-") // because a socket has a short path
	s.must(err)
	s.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	s.Cleanup(func() {
		for machine := range b.exited {
			b.stop(machine)
		}
	})
	b.start(outside)
	for _, node := range testbed.Nodes() {
		b.start(node)
		b.countConnections(node)
	}
	b.awaitNextHops(testbed.Nodes()...)
	if bfd {
		b.awaitBFD(testbed.Nodes()...)
	}
	out, err := testbed.ClientCommand(s.ctx, "ip", "route", "show", routedRange).Output()
	s.must(err)
	s.Logf("the route of the router:\n%s", out)
	return b
}

// frrPrograms is Debian's directory of the programs of FRR.
const frrPrograms = "/usr/lib/frr/"

// file returns the path of a file of a machine.
func (b *bgp) file(machine int, name string) string {
	return filepath.Join(b.dir, strconv.Itoa(machine), name)
}

// command returns a command that will run on a machine, until it exits or the machine is off.
func (b *bgp) command(machine int, name string, args ...string) *exec.Cmd {
	ctx := context.WithoutCancel(b.ctx)
	if machine == outside {
		return testbed.ClientCommand(ctx, name, args...)
	}
	return testbed.NodeCommand(ctx, machine, name, args...)
}

// start starts what speaks BGP on a machine. On a node it first waits until kube-proxy forwards.
func (b *bgp) start(machine int) {
	b.Helper()
	b.must(os.MkdirAll(b.file(machine, ""), 0o750))
	if machine != outside {
		b.awaitForwarding(machine)
		if out, err := b.command(machine, "ip", "route", "replace", customer, "via", testbed.ClientIP()).CombinedOutput(); err != nil {
			b.Fatalf("routing to the client: %v: %s", err, out)
		}
		b.dropUnused(machine)
	}
	b.exited[machine] = nil
	config := b.file(machine, "config")
	if slices.Contains(b.byFRR, machine) {
		b.must(os.WriteFile(config, []byte(b.config(machine, "frr")), 0o600))
		for _, program := range []string{"zebra", "bgpd", "bfdd"} {
			args := []string{"-u", "root", "-g", "frrvty", "-P", "0", "-f", config, "-i", b.pidFile(machine, program), "-z", b.file(machine, "zebra"), "--vty_socket", b.file(machine, "")}
			if program == "bfdd" {
				args = append(args, "--bfdctl", b.file(machine, "bfd"))
			}
			b.run(machine, program, frrPrograms+program, args...)
		}
		return
	}
	b.must(os.WriteFile(config, []byte(b.config(machine, "bird")), 0o600))
	bird, err := exec.LookPath("bird")
	b.must(err)
	b.run(machine, "bird", bird, "-d", "-c", config, "-s", b.file(machine, "control"), "-P", b.pidFile(machine, "bird"))
}

// config returns the configuration of a machine, as it is on docs/routed-cluster-ips.md.
func (b *bgp) config(machine int, language string) string {
	b.Helper()
	var configs []string // of the router and of a node
	for _, block := range pages.Blocks(b, language) {
		if block.Page == "docs/routed-cluster-ips.md" {
			configs = append(configs, block.Text)
		}
	}
	if len(configs) != 2 {
		b.Fatalf("docs/routed-cluster-ips.md has %d blocks of %s, want that of the router and that of a node", len(configs), language)
	}
	config, own := configs[0], testbed.ClientIP()
	if machine != outside {
		config, own = configs[1], testbed.NodeIP(machine)
	}
	nodes := own[:strings.LastIndex(own, ".")] + ".0/24"
	config = strings.NewReplacer("192.0.2.0/24", nodes, "192.0.2.11", own, "192.0.2.1", testbed.ClientIP()).Replace(config)
	if !b.bfd {
		config = strings.ReplaceAll(config, "bfd on;", "bfd off;")
	}
	return config
}

// run starts a program on a machine, and waits until stop can end it.
func (b *bgp) run(machine int, name, path string, args ...string) {
	b.Helper()
	if err := os.Remove(b.pidFile(machine, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // from before a power cut
		b.Fatal(err)
	}
	log, err := os.OpenFile(b.file(machine, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	b.must(err)
	cmd := b.command(machine, path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	b.must(cmd.Start())
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); _ = log.Close(); close(exited) }()
	b.exited[machine] = append(b.exited[machine], exited)
	b.eventually(func(context.Context) error {
		pid, err := os.ReadFile(b.pidFile(machine, name))
		if err == nil && len(pid) == 0 {
			err = errors.New("it has not written the number of its process")
		}
		return err
	})
}

// pidFile returns the path of the file in which a program writes the number of its process on the machine.
func (b *bgp) pidFile(machine int, program string) string { return b.file(machine, program+".pid") }

// stop ends what speaks BGP on a machine. It withdraws what it has announced, and removes the routes that it has
// learned.
func (b *bgp) stop(machine int) {
	b.Helper()
	files, err := filepath.Glob(b.pidFile(machine, "*"))
	b.must(err)
	for _, exited := range b.exited[machine] {
		select {
		case <-exited: // with its node
			continue
		default:
		}
		for _, file := range files {
			pid, err := os.ReadFile(file)
			b.must(err)
			_ = b.command(machine, "kill", strings.TrimSpace(string(pid))).Run() // or it exits already
		}
		<-exited
	}
	logs, err := filepath.Glob(b.file(machine, "*.log"))
	b.must(err)
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil && b.Failed() {
			b.Logf("%s: %s", log, text)
		}
	}
}

// awaitForwarding waits until kube-proxy has written the rules of a node.
func (b *bgp) awaitForwarding(node int) {
	b.Helper()
	b.eventually(func(ctx context.Context) error {
		out, err := testbed.NodeCommand(ctx, node, "nft", "list", "map", "ip", "kube-proxy", "service-ips").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "default/kubernetes") {
			err = errors.New("the Service of the API server is not there")
		}
		if err != nil {
			err = fmt.Errorf("rules of kube-proxy on %s: %w: %s", testbed.NodeName(node), err, out)
		}
		return err
	})
}

// dropUnused runs the command of docs/routed-cluster-ips.md that drops what no Service of a node has.
func (b *bgp) dropUnused(node int) {
	b.Helper()
	i := slices.IndexFunc(pages.Blocks(b, "sh"), func(block pages.Block) bool { return block.Page == "docs/routed-cluster-ips.md" })
	if i < 0 {
		b.Fatal("docs/routed-cluster-ips.md has no command")
	}
	if out, err := b.command(node, "sh", "-ec", pages.Blocks(b, "sh")[i].Text).CombinedOutput(); err != nil {
		b.Fatalf("dropping what is unused on %s: %v: %s", testbed.NodeName(node), err, out)
	}
}

// nextHops returns the next hops of the router to the routed range, in order.
func nextHops(ctx context.Context) ([]string, error) {
	out, err := testbed.ClientCommand(ctx, "ip", "-json", "route", "show", routedRange).Output()
	if err != nil {
		return nil, err
	}
	type hop struct{ Gateway string }
	var routes []struct {
		hop
		NextHops []hop
	}
	if err := json.Unmarshal(out, &routes); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var found []string
	for _, route := range routes {
		for _, h := range append(route.NextHops, route.hop) {
			if h.Gateway != "" {
				found = append(found, h.Gateway)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// awaitNextHops waits until the router has one route to the range, through exactly these nodes.
func (b *bgp) awaitNextHops(nodes ...int) {
	b.Helper()
	var want []string
	for _, node := range nodes {
		want = append(want, testbed.NodeIP(node))
	}
	slices.Sort(want)
	b.eventually(func(ctx context.Context) error {
		got, err := nextHops(ctx)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("next hops (-want +got):\n%s", diff)
		}
		return err
	})
}

// awaitBFD waits until the router has a BFD session with each of the nodes.
func (b *bgp) awaitBFD(nodes ...int) {
	b.Helper()
	list := []string{"birdc", "-s", b.file(outside, "control"), "show", "bfd", "sessions"}
	if slices.Contains(b.byFRR, outside) {
		list = []string{"vtysh", "--vty_socket", b.file(outside, ""), "-c", "show bfd peers brief"}
	}
	b.eventually(func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, list[0], list[1:]...).CombinedOutput()
		for _, node := range nodes {
			if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
				fields := strings.Fields(strings.ToLower(line))
				return slices.Contains(fields, testbed.NodeIP(node)) && slices.Contains(fields, "up")
			}) {
				err = errors.Join(err, fmt.Errorf("no BFD session with %s: %s", testbed.NodeName(node), out))
			}
		}
		return err
	})
}

// countConnections counts the connections to the routed range that a node receives from now on.
func (b *bgp) countConnections(node int) {
	b.Helper()
	cmd := b.command(node, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`table ip routed
delete table ip routed
table ip routed {
  chain prerouting {
    type filter hook prerouting priority raw;
    ip daddr %s tcp flags & (syn | ack) == syn counter
  }
}
`, routedRange))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("counting connections: %v: %s", err, out)
	}
}

// connections returns their number.
func (b *bgp) connections(node int) int {
	b.Helper()
	out, err := b.command(node, "nft", "list", "chain", "ip", "routed", "prerouting").Output()
	b.must(err)
	_, count, _ := strings.Cut(string(out), "counter packets ")
	count, _, _ = strings.Cut(count, " ")
	n, err := strconv.Atoi(count)
	b.must(err)
	return n
}
