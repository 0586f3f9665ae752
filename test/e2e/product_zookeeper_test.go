//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/test/maven"
)

// A client outside the cluster writes and reads through each server, at its own address, and through any of them by the
// list of all, after restarts, scaling up and down, and the loss of a node.
func TestProductZooKeeper(t *testing.T) {
	s := newRecipe(t, maven.ZooKeeperImage, maven.ZooKeeper)
	s.provideDisks(recipeUser, claimsOf("data", "zookeeper", 5)...)
	class, pinned := s.pinnedUntilLost()
	s.applyRecipe("zookeeper", class, pinned)
	s.awaitReplicas("zookeeper", 3)
	z := &zooKeeper{scenario: s}
	z.use("at-first", 3)

	s.rollingRestart("zookeeper", "client")
	z.use("after-a-rolling-restart", 3)

	const third, fourth = "server.3=zookeeper-3.zookeeper-peers:2888:3888\n", "    server.4=zookeeper-4.zookeeper-peers:2888:3888\n"
	node, deleteNode := s.onNewNode(func() {
		s.applyRecipe("zookeeper", class, pinned, "replicas: 3", "replicas: 4", third, third+fourth)
		s.awaitReplicas("zookeeper", 4)
	})
	const restartAll = "kubectl delete pods -l app=zookeeper && kubectl rollout status statefulset/zookeeper"
	s.shell(restartAll)
	z.use("after-scaling-up", 4)

	s.loseNode(node, deleteNode, "zookeeper", "client")
	z.use("after-the-loss-of-a-node", 4)

	s.applyRecipe("zookeeper", class, pinned)
	s.awaitRemoved("zookeeper-4")
	s.shell(restartAll)
	z.use("after-scaling-down", 3)
}

// zooKeeper is the ZooKeeper of a scenario.
type zooKeeper struct {
	*scenario
	// written are the names of all nodes of the tree that the client has created.
	written []string
}

// use waits until the client writes through each server, and reads what it has ever written through each.
func (z *zooKeeper) use(when string, servers int) {
	z.Helper()
	endpoints := z.endpointsOf("zookeeper", "client")
	if len(endpoints) != servers {
		z.Fatalf("%s, the Listeners have the addresses %v, want %d", when, endpoints, servers)
	}
	names := slices.Sorted(maps.Keys(endpoints))
	for _, name := range names {
		created := when + "-by-" + name
		z.at(when, name, endpoints[name], func(c *zk.Conn) error { return create(c, "/"+created) })
		z.written = append(z.written, created)
	}
	slices.Sort(z.written)
	for _, name := range names {
		z.at(when, name, endpoints[name], z.read)
	}
	z.at(when, "", strings.Join(slices.Collect(maps.Values(endpoints)), ","), z.read)
	z.Logf("%s: used %d servers, which have %d nodes", when, servers, len(z.written))
}

// at calls do, until it succeeds, with a client outside the cluster that is connected to one of these addresses. If
// a server is given, that must be the one.
func (z *zooKeeper) at(when, server, endpoints string, do func(*zk.Conn) error) {
	z.Helper()
	if err := eventually(z.timeoutContext(), func(ctx context.Context) error {
		conn, _, err := zk.Connect(strings.Split(endpoints, ","), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(z),
			zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, timeout)
				defer cancel()
				return testbed.ClientDial(ctx, network, address)
			}))
		if err != nil {
			return err
		}
		defer conn.Close()
		timer := time.AfterFunc(15*time.Second, conn.Close) // the client would wait for a server forever
		defer timer.Stop()
		if err := do(conn); err != nil {
			return err
		}
		// Identities of sessions begin with the number of the server.
		if got := fmt.Sprintf("zookeeper-%d", conn.SessionID()>>56); server != "" && got != server {
			return fmt.Errorf("this is %s", got)
		}
		return nil
	}); err != nil {
		z.Fatalf("from outside, %s, at %s: %v", when, endpoints, err)
	}
}

// create creates a node of the tree, unless an earlier try has done so.
func create(c *zk.Conn, path string) error {
	_, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	if err == zk.ErrNodeExists { //nolint:errorlint // the client returns it as it is
		return nil
	}
	return err
}

// read returns an error unless the server has what was written, and tells clients no addresses to use instead of those
// that they have.
func (z *zooKeeper) read(c *zk.Conn) error {
	if _, err := c.Sync("/"); err != nil {
		return err
	}
	got, _, err := c.Children("/")
	if err != nil {
		return err
	}
	got = slices.DeleteFunc(got, func(name string) bool { return name == "zookeeper" })
	slices.Sort(got)
	if diff := cmp.Diff(z.written, got); diff != "" {
		return fmt.Errorf("nodes (-written +read):\n%s", diff)
	}
	config, _, err := c.Get("/zookeeper/config") // it may have an earlier list of servers, from a snapshot
	if err != nil {
		return err
	}
	if !strings.Contains(string(config), "server.1=") || strings.Contains(string(config), ";") {
		return fmt.Errorf("the configuration for clients is %q, want servers without addresses for clients", config)
	}
	return nil
}

// Printf lets the client log to the test.
func (z *zooKeeper) Printf(format string, args ...any) { z.Logf(format, args...) }
