//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/operators"
)

// Spotahome's operator runs servers with an inline volume. A client outside the cluster, which knows the addresses of
// all, writes to the master and reads from each, at addresses that stay when the operator replaces the Pods, and are
// gone with the RedisFailover.
func TestOperatorOfRedis(t *testing.T) {
	s := newOperatorScenario(t, operators.Redis, "redis:6.2.6-alpine", func(ctx context.Context) (image.Spec, error) {
		spec, err := cluster.DebianImage(ctx, "redis-server", "dash", "coreutils", "grep", "findutils", "hostname")
		spec.WorkingDir = "/data"
		return spec, err
	})
	s.shell("kubectl create secret generic redis --from-literal=password=" + redisPassword)
	s.applyOperatorRecipe("redis")
	s.awaitReplicas("rfr-redis", 3)
	master := s.useServers("at first")

	listeners := ownListeners("rfr-redis-", 3)
	before := s.nodePorts("redis", listeners...)
	s.restart(strings.TrimSuffix(master, "-listener"))
	s.useServers("after the master was deleted")

	var pods []*corev1.Pod
	for _, listener := range listeners {
		pods = append(pods, s.awaitReady(strings.TrimSuffix(listener, "-listener")))
	}
	s.shell(`kubectl patch redisfailover redis --type merge --patch '{"spec": {"redis": {"podAnnotations": {"changed": "true"}}}}'`)
	for _, pod := range pods {
		s.awaitReady(pod.Name, pod)
	}
	if diff := cmp.Diff(before, s.nodePorts("redis", listeners...)); diff != "" {
		t.Errorf("node ports (-before +after the operator replaced the Pods):\n%s", diff)
	}
	s.useServers("after the operator replaced the Pods")

	s.shell("kubectl delete redisfailover redis")
	for _, listener := range listeners {
		mustAwaitDeleted(s, &listenersv1alpha1.Listener{}, s.key(listener))
	}
}

// useServers waits until a client outside the cluster finds the master, writes there, and reads what it has written
// from each server at its own address. It returns the Listener of the master.
func (s *scenario) useServers(value string) (master string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		servers := map[string]*redis.Client{}
		for _, listener := range ownListeners("rfr-redis-", 3) {
			address, err := s.endpoints(listener, "redis")
			if err != nil {
				return err
			}
			servers[listener] = redis.NewClient(&redis.Options{Addr: address, Password: redisPassword, Dialer: testbed.ClientDial})
			defer func() { _ = servers[listener].Close() }()
		}
		var err error
		if master, err = findMaster(ctx, servers); err != nil {
			return err
		}
		return writeAndRead(ctx, servers, master, value)
	})
	s.Logf("%s, the client used 3 servers, and %s is the master's", value, master)
	return master
}

// findMaster asks all servers for their roles, and returns the name of the only master.
func findMaster(ctx context.Context, servers map[string]*redis.Client) (master string, err error) {
	for name, server := range servers {
		info, err := server.Info(ctx, "replication").Result()
		if err != nil {
			return "", fmt.Errorf("asking %s for its role: %w", name, err)
		}
		if !strings.Contains(info, "role:master") {
			continue
		}
		if master != "" {
			return "", fmt.Errorf("%s and %s are masters", master, name)
		}
		master = name
	}
	if master == "" {
		return "", errors.New("no server is the master")
	}
	return master, nil
}

// writeAndRead writes a value to the master, and reads it from all servers.
func writeAndRead(ctx context.Context, servers map[string]*redis.Client, master, value string) error {
	if err := servers[master].Set(ctx, "key", value, 0).Err(); err != nil {
		return fmt.Errorf("writing to %s: %w", master, err)
	}
	for name, server := range servers {
		got, err := server.Get(ctx, "key").Result()
		if err != nil {
			return fmt.Errorf("reading from %s: %w", name, err)
		}
		if got != value {
			return fmt.Errorf("%s has %q, want %q", name, got, value)
		}
	}
	return nil
}
