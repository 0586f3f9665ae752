//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster/operators"
)

var withOperators = flag.Bool("operators", false, "run the scenarios with operators of others, as make test-operators does")

// newOperatorScenario installs an operator. ref is the name of the product's image that it will use.
func newOperatorScenario(t *testing.T, operator operators.Operator, ref string, build func(context.Context) (image.Spec, error)) *scenario {
	t.Helper()
	if !*withOperators {
		t.Skip("this scenario needs the flag -operators; make test-operators sets it")
	}
	t.Parallel()
	s := newProduct(t, ref, build)
	s.must(operators.Install(t.Context(), testbed, operator))
	return s
}

// applyOperatorRecipe creates what config/samples/recipes/operators has for an operator.
func (s *scenario) applyOperatorRecipe(name string) {
	s.Helper()
	manifest := s.recipe(filepath.Join("operators", name+".yaml"))
	s.eventually(func(ctx context.Context) error { // API servers serve new kinds with a delay that no object shows
		return testbed.RunKubectl(ctx, []byte(manifest), "apply", "--server-side", "--namespace", s.namespace, "--filename", "-")
	})
}

// secretOf returns the data of a Secret, when it exists.
func (s *scenario) secretOf(name string) map[string][]byte {
	s.Helper()
	return mustAwait(s, &corev1.Secret{}, s.key(name), func(secret *corev1.Secret) bool { return len(secret.Data) > 0 }).Data
}

// nodePorts returns the node ports of Listeners for a port. Their Pods may move to other nodes, but the node ports
// stay.
func (s *scenario) nodePorts(port string, listeners ...string) (nodePorts []string) {
	s.Helper()
	for _, listener := range listeners {
		endpoint, err := s.endpoints(listener, port)
		s.must(err)
		_, nodePort, err := net.SplitHostPort(endpoint)
		s.must(err)
		nodePorts = append(nodePorts, nodePort)
	}
	return nodePorts
}

// ownListeners returns the names of the Listeners of Pods that are numbered from 0 on.
func ownListeners(prefix string, count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf("%s%d-listener", prefix, i))
	}
	return names
}
