//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// A client outside the cluster, which knows the address of the shared Listener, learns the addresses of all servers,
// and writes to and reads from a stream through each, while servers restart, are added and removed, and lose their
// node.
func TestProductNATS(t *testing.T) {
	s := newRecipe(t, "nats:2", natsImage)
	s.provideDisks(recipeUser, claimsOf("data", "nats", 4)...)
	s.applyRecipe("nats")
	s.awaitReplicas("nats", 3)
	n := &natsOf{scenario: s}
	n.use("at first", 3)

	s.restart("nats-1")
	n.use("after a restart", 3)

	added, deleteNode := s.addReplicaOnNewNode("nats", 4)
	n.use("after scaling up", 4)

	s.loseNodeOf(added, deleteNode)
	n.use("after the loss of a node", 4)

	s.scale("nats", 3)
	n.use("after scaling down", 3)
}

// natsImage has the server where the published image of this name has it, and nothing else.
func natsImage(ctx context.Context) (image.Spec, error) {
	dir, err := tools.Ensure(ctx, "nats")
	if err != nil {
		return image.Spec{}, err
	}
	return cluster.ProgramImage(filepath.Join(dir, "nats-server"), "/nats-server", ""), nil
}

// natsOf is the NATS of a scenario.
type natsOf struct {
	*scenario
	// written are all messages of the stream, each of which has its content as its identity, too.
	written []string
}

// use checks that the client learns exactly the addresses in the Listeners, writes a message to the stream at each, and
// reads all that it has ever written at each.
func (n *natsOf) use(when string, servers int) {
	n.Helper()
	before := len(n.written)
	n.eventually(func(ctx context.Context) error {
		endpoints := n.endpointsOf("nats", "client")
		if len(endpoints) < servers {
			return fmt.Errorf("the Listeners have the addresses %v, want %d", endpoints, servers)
		}
		names := slices.Sorted(maps.Keys(endpoints))[:servers] // claims, and so Listeners, outlive scaling down
		var want []string
		for _, name := range names {
			want = append(want, endpoints[name])
		}
		if err := n.checkLearned(want); err != nil {
			return err
		}
		n.written = n.written[:before]
		for _, name := range names {
			if err := n.at(ctx, name, endpoints[name], func(ctx context.Context, stream jetstream.JetStream) error {
				return n.write(ctx, stream, when+", by "+name)
			}); err != nil {
				return fmt.Errorf("writing by %s at %s: %w", name, endpoints[name], err)
			}
		}
		for _, name := range names {
			if err := n.at(ctx, name, endpoints[name], n.read); err != nil {
				return fmt.Errorf("reading by %s at %s: %w", name, endpoints[name], err)
			}
		}
		return nil
	})
	n.Logf("%s: used %d servers, which have %d messages", when, servers, len(n.written))
}

// checkLearned returns an error unless a client that begins at the shared Listener learns exactly these addresses.
func (n *natsOf) checkLearned(want []string) error {
	bootstrap, err := n.endpoints("nats", "client")
	if err != nil {
		return err
	}
	conn, err := connectNATS(bootstrap)
	if err != nil {
		return err
	}
	defer conn.Close()
	var learned []string
	for _, url := range conn.DiscoveredServers() {
		learned = append(learned, strings.TrimPrefix(url, "nats://"))
	}
	slices.Sort(want)
	slices.Sort(learned)
	if diff := cmp.Diff(want, learned); diff != "" {
		return fmt.Errorf("servers (-Listeners +what they advertise):\n%s", diff)
	}
	return nil
}

// at calls do with a client that is connected to a server at its own address. JetStream drops requests that it gets
// before it has a leader, so the next attempt begins before all time is up.
func (n *natsOf) at(ctx context.Context, server, endpoint string, do func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := connectNATS(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	if got := conn.ConnectedServerName(); got != server {
		return fmt.Errorf("this is the server %s", got)
	}
	stream, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return do(ctx, stream)
}

// orders is the stream, and the subject of its messages.
const orders = "orders"

// write writes a message, once, to the stream, which it creates on three servers if it is the first one.
func (n *natsOf) write(ctx context.Context, client jetstream.JetStream, message string) error {
	if _, err := client.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: orders, Subjects: []string{orders}, Replicas: 3}); err != nil {
		return err
	}
	_, err := client.Publish(ctx, orders, []byte(message), jetstream.WithMsgID(message))
	n.written = append(n.written, message)
	return err
}

// read reads the stream from the start, and compares the messages with those written.
func (n *natsOf) read(ctx context.Context, client jetstream.JetStream) error {
	stream, err := client.Stream(ctx, orders)
	if err != nil {
		return err
	}
	var got []string
	for i := range n.written {
		message, err := stream.GetMsg(ctx, uint64(i)+1)
		if err != nil {
			return err
		}
		got = append(got, string(message.Data))
	}
	if diff := cmp.Diff(n.written, got); diff != "" {
		return fmt.Errorf("messages (-written +read):\n%s", diff)
	}
	return nil
}

// connectNATS connects from outside the cluster to one of these addresses, which are separated by commas.
func connectNATS(endpoints string) (*nats.Conn, error) {
	return nats.Connect(endpoints, nats.NoReconnect(), nats.SetCustomDialer(natsDialer{}))
}

// natsDialer connects as the client outside the cluster.
type natsDialer struct{}

func (natsDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), nats.DefaultTimeout)
	defer cancel()
	return testbed.ClientDial(ctx, network, address)
}
