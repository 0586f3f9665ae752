//go:build e2e

package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/test/cluster/operators"
)

// RabbitMQ's cluster operator runs nodes with an inline volume. A client outside the cluster learns from any of them
// which nodes have a stream, and uses each at its own address, which stays when the operator replaces the Pods.
func TestOperatorOfRabbitMQ(t *testing.T) {
	const set = "rabbit-server"
	s := newOperatorScenario(t, operators.RabbitMQ, "rabbitmq:4.1.3-management", rabbitMQImage)
	s.provideDisks(999, claimsOf("persistence", set, 3)...)
	s.applyOperatorRecipe("rabbitmq")
	s.awaitReplicas(set, 3)
	login := s.secretOf("rabbit-default-user")
	r := &rabbitMQ{
		scenario: s, user: string(login["username"]), password: string(login["password"]),
		listener: set + "-%d-listener", bootstrap: set + "-0-listener", written: map[string][]string{},
	}
	r.use("at first", 3)

	listeners := ownListeners(set+"-", 3)
	before := r.nodePorts("stream", listeners...)
	s.restart(set + "-1")
	r.use("after a restart", 3)

	s.shell(`kubectl patch rabbitmqcluster rabbit --type merge --patch '{"spec": {"rabbitmq": {"additionalConfig": "heartbeat = 30\n"}}}'
		while [ -z "$(kubectl get statefulset ` + set + ` -o jsonpath='{.spec.template.metadata.annotations}' | grep RestartAt)" ]; do :; done
		kubectl rollout status statefulset/` + set)
	if diff := cmp.Diff(before, r.nodePorts("stream", listeners...)); diff != "" {
		t.Errorf("node ports (-before +after the operator replaced the Pods):\n%s", diff)
	}
	r.use("after the operator replaced the Pods", 3)
}
