//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// A client outside the cluster, which knows the addresses of the shared Listener, learns from RabbitMQ which nodes have
// a stream, and writes to and reads from each, while nodes restart, are added and removed, and lose the node of the
// cluster that they run on.
func TestProductRabbitMQ(t *testing.T) {
	s := newRecipe(t, "rabbitmq:3", rabbitMQImage)
	s.provideDisks(recipeUser, claimsOf("data", "rabbitmq", 4)...)
	s.shell(`kubectl create secret generic rabbitmq --from-literal=password=e2e --from-literal=cookie="$(openssl rand -hex 16)"`)
	s.applyRecipe("rabbitmq")
	s.awaitReplicas("rabbitmq", 3)
	r := &rabbitMQ{
		scenario: s, user: "admin", password: "e2e", listener: "listener-rabbitmq-%d", bootstrap: "rabbitmq", written: map[string][]string{},
	}
	r.use("at first", 3)

	s.restart("rabbitmq-1")
	r.use("after a restart", 3)

	added, deleteNode := s.addReplicaOnNewNode("rabbitmq", 4)
	s.shell("kubectl exec rabbitmq-0 -- rabbitmq-streams add_replica replicated rabbit@rabbitmq-3.rabbitmq-peers")
	r.use("after scaling up", 4)

	// A node that loses its power within a second after it has joined forgets that it coordinates streams, and never
	// serves one again: RabbitMQ 3.10 writes that down half a second later.
	s.shell("kubectl exec rabbitmq-3 -- rabbitmqctl --quiet eval 'ok = dets:sync(ra_coordination_directory_reverse).'")
	s.loseNodeOf(added, func() error { return r.deleteNoticed(added, deleteNode) })
	r.use("after the loss of a node", 4)

	s.shell("kubectl exec rabbitmq-0 -- rabbitmq-streams delete_replica replicated rabbit@rabbitmq-3.rabbitmq-peers")
	s.scale("rabbitmq", 3)
	s.shell("kubectl exec rabbitmq-0 -- rabbitmqctl forget_cluster_node rabbit@rabbitmq-3.rabbitmq-peers")
	r.use("after scaling down", 3)
}

// rabbitMQImage has Debian's server, where its scripts find it, and what the published image of this name has besides.
func rabbitMQImage(ctx context.Context) (image.Spec, error) {
	spec, err := cluster.DebianImage(ctx, "rabbitmq-server", "bash", "dash", "coreutils", "sed", "grep")
	if err != nil {
		return image.Spec{}, err
	}
	spec.Dirs["/var/lib/rabbitmq"] = 0o777
	spec.Env = []string{
		// Before the scripts of Debian's package, which run as its own user only.
		"PATH=/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin:/usr/bin",
		"LANG=C.UTF-8",
		"HOME=/var/lib/rabbitmq",
		"RABBITMQ_LOGS=-", "RABBITMQ_LOG_BASE=/var/lib/rabbitmq",
		"RUNNING_UNDER_SYSTEMD=true",
	}
	spec.Cmd = []string{"rabbitmq-server"}
	return spec, nil
}

// rabbitMQ is the RabbitMQ of a scenario.
type rabbitMQ struct {
	*scenario
	user, password string
	// listener is the name of each node's own Listener, with %d for its number, and bootstrap of the one at which
	// clients begin.
	listener, bootstrap string
	// written has all messages by stream.
	written map[string][]string
}

// deleteNoticed deletes the node of the cluster that a replica runs on, and lets Pods start elsewhere as soon as the
// others have noticed. Kubernetes gives them five minutes by default, but this cluster less than they need, and a
// RabbitMQ node that is back before may wait for the others forever.
func (r *rabbitMQ) deleteNoticed(lost *corev1.Pod, deleteNode func() error) error {
	r.Helper()
	others := slices.DeleteFunc(testbed.Nodes(), func(node int) bool { return node == nodeOf(lost) })
	defer r.cordon(others...)()
	if err := deleteNode(); err != nil {
		return err
	}
	for i := range 3 {
		r.shell(fmt.Sprintf("while kubectl exec rabbitmq-%d -- rabbitmqctl --quiet eval 'nodes().' | grep %s; do :; done", i, lost.Name))
	}
	return nil
}

// use checks that each node advertises the address in its Listener, and that the client learns where a stream is,
// writes to it, and reads all that it has ever written: for a stream with replicas on all nodes, and for one on each of
// the first three nodes alone.
func (r *rabbitMQ) use(message string, nodes int) {
	r.Helper()
	var all []int
	for i := range nodes {
		all = append(all, i)
	}
	r.useStream("replicated", message, all)
	for _, i := range all[:3] {
		r.useStream(fmt.Sprintf("only-%d", i), message, []int{i})
	}
	r.Logf("%s: used %d nodes", message, nodes)
}

// useStream writes to a stream at its leader, and reads it at each of its nodes.
func (r *rabbitMQ) useStream(stream, message string, nodes []int) {
	r.Helper()
	r.written[stream] = append(r.written[stream], message)
	r.eventually(func(ctx context.Context) error {
		var want []string
		for _, i := range nodes {
			endpoint, err := r.endpoints(fmt.Sprintf(r.listener, i), "stream")
			if err != nil {
				return err
			}
			want = append(want, endpoint)
		}
		if err := r.at(ctx, want[0], func(c *streamClient) error { return c.create(stream, min(3, len(nodes))) }); err != nil {
			return fmt.Errorf("creating stream %s at %s: %w", stream, want[0], err)
		}
		leader, err := r.findLeader(ctx, stream, want)
		if err != nil {
			return err
		}
		written := r.written[stream]
		if err := r.at(ctx, leader, func(c *streamClient) error { return c.publish(stream, len(written), message) }); err != nil {
			return fmt.Errorf("writing to stream %s at %s: %w", stream, leader, err)
		}
		for _, endpoint := range want {
			if err := r.at(ctx, endpoint, func(c *streamClient) error { return c.checkMessages(stream, written) }); err != nil {
				return fmt.Errorf("reading stream %s at %s: %w", stream, endpoint, err)
			}
		}
		return nil
	})
}

// findLeader returns the address of the leader of a stream, which a client that begins at bootstrap learns.
// It returns an error unless the client learns exactly these addresses.
func (r *rabbitMQ) findLeader(ctx context.Context, stream string, want []string) (leader string, err error) {
	bootstrap, err := r.endpoints(r.bootstrap, "stream")
	if err != nil {
		return "", err
	}
	err = r.connect(ctx, strings.Split(bootstrap, ",")[0], func(c *streamClient) error {
		var others []string
		if leader, others, err = c.members(stream); err != nil {
			return err
		}
		want, got := slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(append(others, leader)))
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("nodes of stream %s (-Listeners +what they advertise):\n%s", stream, diff)
		}
		return nil
	})
	return leader, err
}

// checkMessages returns an error unless a stream begins with these messages.
func (c *streamClient) checkMessages(stream string, written []string) error {
	got, err := c.read(stream, len(written))
	if err != nil {
		return err
	}
	if diff := cmp.Diff(written, got); diff != "" {
		return fmt.Errorf("messages (-written +read):\n%s", diff)
	}
	return nil
}

// at calls do with a client that is connected to a node at its own address, which the node has to advertise.
func (r *rabbitMQ) at(ctx context.Context, endpoint string, do func(*streamClient) error) error {
	return r.connect(ctx, endpoint, func(c *streamClient) error {
		if c.advertised != endpoint {
			return fmt.Errorf("this is the node that advertises %s", c.advertised)
		}
		return do(c)
	})
}

func (r *rabbitMQ) connect(ctx context.Context, endpoint string, do func(*streamClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := dialStream(ctx, endpoint, r.user, r.password)
	if err != nil {
		return err
	}
	defer c.close()
	return do(c)
}
