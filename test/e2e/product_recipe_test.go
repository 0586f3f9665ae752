//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

var withProducts = flag.Bool("products", false, "run the scenarios of the recipes in docs/recipes, as make test-products does")

// productTimeout is how long a scenario waits for a product, which may start slowly on a machine with other work.
const productTimeout = 6 * time.Minute

// newRecipe creates the scenario of a recipe, and loads the image that the recipe uses onto all nodes.
func newRecipe(t *testing.T, ref string, build func(context.Context) (image.Spec, error)) *scenario {
	t.Helper()
	if !*withProducts {
		t.Skip("this scenario needs the flag -products; make test-products sets it")
	}
	return newProduct(t, ref, build)
}

// newProduct creates the scenario of a product, and loads its image onto all nodes.
func newProduct(t *testing.T, ref string, build func(context.Context) (image.Spec, error)) *scenario {
	t.Helper()
	spec, err := build(t.Context())
	check.Must(t, err)
	check.Must(t, testbed.LoadImage(t.Context(), ref, spec))
	s := newScenario(t)
	s.timeout = productTimeout
	t.Cleanup(func() {
		if t.Failed() {
			s.logProducts()
		}
	})
	return s
}

// logProducts logs what the containers of all Pods have printed last.
func (s *scenario) logProducts() {
	var pods corev1.PodList
	if err := api.List(context.Background(), &pods, client.InNamespace(s.namespace)); err != nil { // the test's context has ended
		s.Errorf("listing the Pods: %v", err)
	}
	for i := range pods.Items {
		s.logKubectl(context.Background(), "-n", s.namespace, "logs", pods.Items[i].Name, "--all-containers", "--tail=30")
	}
}

// recipeUser is the user of the recipes for NATS, RabbitMQ and ZooKeeper.
const recipeUser = 1000

// recipe returns a file of the recipes. replacements are pairs of texts. The file has to contain the first of each
// pair.
func (s *scenario) recipe(file string, replacements ...string) string {
	s.Helper()
	root, err := checkout.Root()
	s.must(err)
	content, err := os.ReadFile(filepath.Join(root, "config", "samples", "recipes", file))
	s.must(err)
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(content), replacements[i]) {
			s.Fatalf("%s does not contain %q", file, replacements[i])
		}
	}
	return strings.NewReplacer(replacements...).Replace(string(content))
}

// applyRecipe creates the objects of a recipe, as a user does. replacements are pairs of texts.
func (s *scenario) applyRecipe(name string, replacements ...string) {
	s.Helper()
	manifest := s.recipe(name+".yaml", replacements...)
	s.must(testbed.RunKubectl(s.ctx, []byte(manifest), "apply", "--server-side", "--namespace", s.namespace, "--filename", "-"))
}

// applyTLS makes the StatefulSet of a recipe serve TLS, as a user does, and waits until all replicas do. replacements
// are pairs of texts.
func (s *scenario) applyTLS(recipe string, replacements ...string) {
	s.Helper()
	patch := filepath.Join(s.TempDir(), "patch.yaml")
	s.must(os.WriteFile(patch, []byte(s.recipe(filepath.Join("tls", recipe+".yaml"), replacements...)), 0o600))
	s.shell("kubectl patch statefulset " + recipe + " --patch-file " + patch + "\nkubectl rollout status statefulset " + recipe)
}

// dialTLS connects from outside the cluster, and verifies that the server is one of the namespace, and for the
// address.
func (s *scenario) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	return dialTrusting(s.trust())(ctx, network, address)
}

// dialTrusting returns a function that connects from outside the cluster, and verifies that the server is one that
// clients trust, and for the address.
func dialTrusting(trust *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		trust := trust.Clone()
		trust.ServerName, _, _ = net.SplitHostPort(address)
		session, err := beginTLS(ctx, address, trust)
		if err != nil {
			return nil, err // an interface that is nil
		}
		return session, nil
	}
}

// awaitReload has the kubelets request new certificates, as they do when they start, and waits until each replica of a
// StatefulSet serves the next one. handshake verifies the certificate at an address. No handshake may fail meanwhile.
func (s *scenario) awaitReload(set, port string, handshake func(ctx context.Context, address string) (tls.ConnectionState, error)) {
	s.Helper()
	start, first := time.Now(), map[string]string{}
	serial := func(address string) string {
		state, err := handshake(s.ctx, address)
		if err != nil {
			s.Fatalf("verifying the certificate of %s, %s after the kubelets were restarted: %v", address, time.Since(start).Round(time.Second), err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	for _, address := range s.endpointsOf(set, port) {
		first[address] = serial(address)
	}
	for _, node := range testbed.Nodes() {
		s.must(errors.Join(testbed.StopKubelet(s.ctx, node), testbed.StartKubelet(s.ctx, node)))
	}
	s.eventually(func(context.Context) error {
		for address, before := range first {
			if serial(address) == before {
				return fmt.Errorf("%s serves the certificate from before the kubelets were restarted", address)
			}
		}
		return nil
	})
	s.Logf("all %d replicas serve their next certificates, within %s", len(first), time.Since(start).Round(time.Second))
}

// handshakeTLS verifies the certificate at an address.
func (s *scenario) handshakeTLS(ctx context.Context, address string) (tls.ConnectionState, error) {
	connection, err := s.dialTLS(ctx, "tcp", address)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState(), nil
}

// provideDisks creates a volume for each of these claims: a directory that all nodes have, owned by a user.
func (s *scenario) provideDisks(user int, claims ...string) {
	s.Helper()
	dir, err := os.MkdirTemp("", "disks-") // the directories of tests are closed to other users
	s.must(err)
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.must(os.Chmod(dir, 0o755)) //nolint:gosec // products run as other users
	for _, claim := range claims {
		disk := filepath.Join(dir, claim)
		s.must(os.Mkdir(disk, 0o700))
		s.must(os.Chown(disk, user, user))
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + claim},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				ClaimRef:               &corev1.ObjectReference{Namespace: s.namespace, Name: claim},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: disk}},
			},
		}
		s.createUntilEnd(pv)
	}
}

// claimsOf returns the names of the claims of a StatefulSet's replicas.
func claimsOf(template, set string, replicas int) []string {
	var claims []string
	for i := range replicas {
		claims = append(claims, fmt.Sprintf("%s-%s-%d", template, set, i))
	}
	return claims
}

// awaitReplicas waits until a StatefulSet has exactly this number of replicas, and all are ready.
func (s *scenario) awaitReplicas(name string, replicas int32) {
	s.Helper()
	mustAwait(s, &appsv1.StatefulSet{}, s.key(name), func(set *appsv1.StatefulSet) bool {
		return set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == replicas && set.Status.ReadyReplicas == replicas
	})
}

// restart deletes a Pod whose controller keeps its name, and waits until its successor is ready.
func (s *scenario) restart(name string) {
	s.Helper()
	p := mustGet(s, &corev1.Pod{}, s.key(name))
	s.remove(p)
	s.awaitReady(name, p)
}

// scale scales a StatefulSet, and waits until all its replicas are ready, and no others are left.
func (s *scenario) scale(name string, replicas int32) {
	s.Helper()
	set := mustGet(s, &appsv1.StatefulSet{}, s.key(name))
	s.patch(set, func() { set.Spec.Replicas = &replicas })
	s.awaitReplicas(name, replicas)
}

// addReplicaOnNewNode scales a StatefulSet up by one, with the new replica on a node that has just joined. It returns
// the Pod, and a function that deletes the node.
func (s *scenario) addReplicaOnNewNode(name string, replicas int32) (p *corev1.Pod, deleteNode func() error) {
	s.Helper()
	p = &corev1.Pod{}
	node, deleteNode := s.onNewNode(func() { s.scale(name, replicas) })
	s.get(p, s.key(fmt.Sprintf("%s-%d", name, replicas-1)))
	if nodeOf(p) != node {
		s.Fatalf("%s is on %s", p.Name, p.Spec.NodeName)
	}
	return p, deleteNode
}

// onNewNode calls a function while new Pods are scheduled to a node that has just joined only. It returns the node, and
// a function that deletes it.
func (s *scenario) onNewNode(do func()) (node int, deleteNode func() error) {
	s.Helper()
	others := testbed.Nodes()
	node, deleteNode = s.startNode()
	uncordon := s.cordon(others...)
	do()
	uncordon()
	return node, deleteNode
}

// loseNodeOf deletes the node of a replica for good, and waits until the replica is ready on another.
func (s *scenario) loseNodeOf(p *corev1.Pod, deleteNode func() error) {
	s.Helper()
	s.must(deleteNode())
	if moved := s.awaitReady(p.Name, p); moved.Spec.NodeName == p.Spec.NodeName {
		s.Errorf("%s is on %s again", moved.Name, moved.Spec.NodeName)
	}
}

// endpoints returns the addresses for clients that the status of a Listener has for a port, as one string.
func (s *scenario) endpoints(listener, port string) (string, error) {
	l := &listenersv1alpha1.Listener{}
	if err := api.Get(s.ctx, s.key(listener), l); err != nil {
		return "", err
	}
	if l.Status == nil || l.Status.Endpoints[port] == "" {
		return "", fmt.Errorf("Listener %s has no endpoints for port %s", listener, port)
	}
	return l.Status.Endpoints[port], nil
}
