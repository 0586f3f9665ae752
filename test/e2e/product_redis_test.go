//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
)

const (
	redisUser     = 999 // as in the recipe
	redisPassword = "e2e"
)

// keys is the number of keys that the client writes, which is enough for all masters to have some.
const keys = 64

// A cluster-aware client outside the cluster uses each member of a Redis Cluster at its own address, after restarts,
// scaling up and down, and the loss of a node.
func TestProductRedisCluster(t *testing.T) {
	s := newRecipe(t, "redis:7", func(ctx context.Context) (image.Spec, error) {
		return cluster.DebianImage(ctx, "redis-server", "dash", "coreutils")
	})
	s.provideDisks(redisUser, claimsOf("data", "redis", 7)...)
	node, deleteNode := s.startNode()
	s.shell("kubectl create secret generic redis --from-literal=password=" + redisPassword)
	class, pinned := s.pinnedUntilLost()
	s.applyRecipe("redis", class, pinned)
	s.awaitReplicas("redis", 6)
	s.shell(`kubectl exec redis-0 -- redis-cli --cluster create --cluster-replicas 1 --cluster-yes \
		$(kubectl get lsn -l app=redis -o jsonpath='{.items[*].status.endpoints.client}')`)
	c := s.newRedisClient(s.endpointsOf("redis", "client")["redis-0"], testbed.ClientDial)
	s.useRedis(c, "at first", 6)

	s.rollingRestart("redis", "client")
	s.useRedis(c, "after a rolling restart", 6)

	s.shell("kubectl scale statefulset/redis --replicas=7 && kubectl rollout status statefulset/redis")
	s.shell(`kubectl exec redis-0 -- redis-cli --cluster add-node --cluster-slave \
		$(kubectl get lsn listener-redis-6 listener-redis-0 -o jsonpath='{.items[*].status.endpoints.client}')`)
	s.useRedis(c, "after scaling up", 7)

	s.shell(`kubectl exec redis-0 -- redis-cli --cluster del-node \
		$(kubectl get lsn listener-redis-0 -o jsonpath='{.status.endpoints.client}') \
		$(kubectl exec redis-6 -- redis-cli cluster myid)`)
	s.shell("kubectl scale statefulset/redis --replicas=6")
	s.awaitRemoved("redis-6")
	s.useRedis(c, "after scaling down", 6)

	s.loseNode(node, deleteNode, "redis", "client")
	s.useRedis(c, "after the loss of a node", 6)

	s.applyTLS("redis")
	c = s.newRedisClient(s.endpointsOf("redis", "client")["redis-0"], s.dialTLS)
	s.useRedis(c, "with TLS", 6)
	s.awaitReload("redis", "client", s.handshakeTLS)
	s.useRedis(c, "with the next certificates", 6)
}

// newRedisClient returns a client outside the cluster that knows the address of one member.
func (s *scenario) newRedisClient(
	endpoint string, dial func(ctx context.Context, network, address string) (net.Conn, error),
) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{endpoint}, Password: redisPassword, Dialer: dial, ReadOnly: true,
	})
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// useRedis waits until the client writes and reads keys of all masters, and until it reaches exactly the members that
// the Listeners name, each of which has an identity of its own and is healthy.
func (s *scenario) useRedis(c *redis.ClusterClient, when string, members int) {
	s.Helper()
	start := time.Now()
	want := slices.Sorted(maps.Values(s.endpointsOf("redis", "client")))
	if len(want) != members {
		s.Fatalf("%s, the Listeners have the addresses %q, want %d", when, want, members)
	}
	value := start.Format(time.RFC3339Nano)
	if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		c.ReloadState(ctx)
		return checkRedis(ctx, c, want, value)
	}); err != nil {
		s.Fatalf("from outside, %s: %v", when, err)
	}
	s.Logf("%s, the client uses %d members, within %s", when, members, time.Since(start).Round(time.Millisecond))
}

func checkRedis(ctx context.Context, c *redis.ClusterClient, want []string, value string) error {
	for i := range keys {
		if err := c.Set(ctx, fmt.Sprintf("key-%d", i), value, 0).Err(); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	var lock sync.Mutex
	found := map[string]string{}
	err := c.ForEachShard(ctx, func(ctx context.Context, member *redis.Client) error {
		id, err := checkMember(ctx, member, len(want), value)
		lock.Lock()
		defer lock.Unlock()
		found[id] = member.Options().Addr
		return err
	})
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Values(found))); diff != "" {
		return fmt.Errorf("members (-Listeners +client):\n%s", diff)
	}
	return nil
}

// checkMember returns the identity of a member, and an error unless it knows all members, sees a complete cluster, and
// all its keys have the value.
func checkMember(ctx context.Context, member *redis.Client, members int, value string) (id string, err error) {
	if id, err = member.Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
		return "", fmt.Errorf("asking %s who it is: %w", member.Options().Addr, err)
	}
	info, err := member.ClusterInfo(ctx).Result()
	if err != nil {
		return id, err
	}
	for _, state := range []string{"cluster_state:ok\r\n", fmt.Sprintf("cluster_known_nodes:%d\r\n", members)} {
		if !strings.Contains(info, state) {
			return id, fmt.Errorf("%s has the state %q", member.Options().Addr, info)
		}
	}
	own, err := member.Keys(ctx, "key-*").Result()
	if err != nil {
		return id, err
	}
	if len(own) == 0 {
		return id, fmt.Errorf("%s has no keys", member.Options().Addr)
	}
	for _, key := range own {
		got, err := member.Get(ctx, key).Result()
		if err != nil {
			return id, err
		}
		if got != value {
			return id, fmt.Errorf("at %s, %s is %q, want %q", member.Options().Addr, key, got, value)
		}
	}
	return id, nil
}
