package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// auditPolicy records what the operator asks for.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["system:serviceaccount:` + names.Operator + ":" + names.Operator + `"]
  - level: None
`

// cluster is an API server and what it takes to run the operator against it.
type cluster struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	dir    string
	// token is one of the operator's ServiceAccount.
	token string
	// nodes and listeners are how many there are.
	nodes, listeners int
}

// startCluster starts an API server with room for many Services, and installs the operator's kinds and rights.
func startCluster(ctx context.Context) (*cluster, error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	etcd, err := tools.Ensure(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	kubernetes, err := tools.Ensure(ctx, "kubernetes")
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	if c.dir, err = os.MkdirTemp("", "listener-operator-bench-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	policy := filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	c.env = &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "config", "crd", "bases")}, ErrorIfPathMissing: true,
	}}
	c.env.ControlPlane.Etcd = &envtest.Etcd{Path: filepath.Join(etcd, "etcd")}
	c.env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync").Append("quota-backend-bytes", "8589934592")
	c.env.ControlPlane.APIServer = &envtest.APIServer{Path: filepath.Join(kubernetes, "kube-apiserver")}
	c.env.ControlPlane.APIServer.Configure().
		Set("service-cluster-ip-range", "10.0.0.0/14").
		Set("service-node-port-range", "20000-60000").
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.auditLog()).
		Set("audit-log-maxsize", "10000"). // in megabytes; it is read as one file
		Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if c.config, err = c.env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), c.stop())
	}
	c.config.QPS = -1
	if err := c.install(ctx, root); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) auditLog() string { return filepath.Join(c.dir, "audit.jsonl") }

func (c *cluster) stop() error {
	return errors.Join(c.env.Stop(), os.RemoveAll(c.dir))
}

// install gives the operator a namespace, its rights and a token.
func (c *cluster) install(ctx context.Context, root string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, listenersv1alpha1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering kinds: %w", err)
		}
	}
	var err error
	if c.client, err = client.New(c.config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.Operator}}
	if err := c.client.Create(ctx, space); err != nil {
		return fmt.Errorf("creating the operator's namespace: %w", err)
	}
	if err := c.grant(ctx, filepath.Join(root, "config", "rbac", "operator.yaml")); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: names.Operator, Name: names.Operator}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("asking for the operator's token: %w", err)
	}
	c.token = request.Status.Token
	return nil
}

// grant creates the operator's ServiceAccount and rights, and lets it read its own metrics.
func (c *cluster) grant(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the operator's rights: %w", err)
	}
	defer func() { _ = file.Close() }()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(file))
	for {
		document, err := documents.Read()
		if err != nil {
			break // the end
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, object); err != nil {
			return fmt.Errorf("parsing %s: %w", path, err)
		}
		switch object.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding":
			object.SetNamespace(names.Operator)
		}
		if err := c.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	const metrics = "bench-metrics"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: metrics}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: metrics},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metrics},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: names.Operator, Name: names.Operator}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating the right to read metrics: %w", err)
		}
	}
	return nil
}

// writers is how many objects are created at once.
const writers = 32

// each calls do for the numbers from first to last, the latter not included, several at once.
func each(ctx context.Context, first, last int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := first; i < last && ctx.Err() == nil; i++ {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// addNodes adds nodes until there are so many.
func (c *cluster) addNodes(ctx context.Context, nodes int) error {
	first := c.nodes
	c.nodes = nodes
	return each(ctx, first, nodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i/250, i%250+1)}, {Type: corev1.NodeHostName, Address: nodeName(i)},
			}},
		}
		if err := c.client.Create(ctx, node); err != nil {
			return fmt.Errorf("creating node %d: %w", i, err)
		}
		return nil
	})
}

// perNamespace is how many Listeners share a namespace.
const perNamespace = 100

// addListeners adds Listeners until there are so many, each with a claim, a volume that was mounted before, and a Pod
// that a node agent has announced.
func (c *cluster) addListeners(ctx context.Context, listeners, nodes int) error {
	first := c.listeners
	c.listeners = listeners
	if first == 0 {
		class := &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: className}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
		}
		if err := c.client.Create(ctx, class); err != nil {
			return fmt.Errorf("creating the class: %w", err)
		}
	}
	for i := (first + perNamespace - 1) / perNamespace; i*perNamespace < listeners; i++ {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i * perNamespace)}}); err != nil {
			return fmt.Errorf("creating a namespace: %w", err)
		}
	}
	return each(ctx, first, listeners, func(ctx context.Context, i int) error {
		if err := c.addListener(ctx, i, nodeName(i%nodes)); err != nil {
			return fmt.Errorf("adding Listener %d: %w", i, err)
		}
		return nil
	})
}

// await tries until there is no error, for a while.
func await(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", timeout, err)
		case <-ticks.C:
		}
	}
}
