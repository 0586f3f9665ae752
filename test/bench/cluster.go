package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// auditPolicy records the operator's requests.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    users: ["system:serviceaccount:` + names.Operator + ":" + names.Operator + `"]
  - level: None
`

// cluster is an API server, with what the operator needs to run against it.
type cluster struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	dir    string
	// token is a token of the operator's ServiceAccount.
	token string
	// nodes and listeners are the numbers of objects that exist.
	nodes, listeners int
}

// startCluster starts an API server with address ranges for many Services, and installs the operator's CRDs and
// permissions.
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
		return nil, fmt.Errorf("creating a directory: %w", err)
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
	c.env.ControlPlane.KubectlPath = filepath.Join(kubernetes, "kubectl")
	c.env.ControlPlane.APIServer.Configure().
		Set("service-cluster-ip-range", "10.0.0.0/14").
		Set("service-node-port-range", "20000-60000").
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.auditLog()).
		Set("audit-log-maxsize", "10000"). // in megabytes, because the log is read as one file
		Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if c.config, err = c.env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), c.stop())
	}
	c.config.QPS = -1
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(listenersv1alpha1.AddToScheme(scheme))
	if c.client, err = client.New(c.config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(fmt.Errorf("creating a client: %w", err), c.stop())
	}
	if err := c.install(root); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) auditLog() string { return filepath.Join(c.dir, "audit.jsonl") }

func (c *cluster) stop() error {
	return errors.Join(c.env.Stop(), os.RemoveAll(c.dir))
}

// install creates the operator's namespace, ServiceAccount and permissions, and a token.
func (c *cluster) install(root string) error {
	admin, err := c.env.AddUser(envtest.User{Name: "bench", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("creating a user: %w", err)
	}
	kubectl, err := admin.Kubectl()
	if err != nil {
		return fmt.Errorf("setting up kubectl: %w", err)
	}
	const account, metrics = "--serviceaccount=" + names.Operator + ":" + names.Operator, "bench-metrics"
	for _, args := range [][]string{
		{"create", "namespace", names.Operator},
		{"apply", "--namespace=" + names.Operator, "--filename=" + filepath.Join(root, "config", "rbac", "operator.yaml")},
		// The operator's own token is also used to read its metrics.
		{"create", "clusterrole", metrics, "--verb=get", "--non-resource-url=/metrics"},
		{"create", "clusterrolebinding", metrics, "--clusterrole=" + metrics, account},
		{"create", "token", names.Operator, "--namespace=" + names.Operator, "--duration=24h"},
	} {
		stdout, stderr, err := kubectl.Run(args...)
		if err == nil {
			var token []byte
			token, err = io.ReadAll(stdout)
			c.token = strings.TrimSpace(string(token)) // that of the last command
		}
		if err != nil {
			message, _ := io.ReadAll(stderr)
			return fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, message)
		}
	}
	return nil
}

// writers is the number of objects that are created concurrently.
const writers = 32

// each calls do concurrently for the numbers from first up to, but not including, last.
func each(ctx context.Context, first, last int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := first; i < last && ctx.Err() == nil; i++ {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// addNodes creates nodes up to the given number.
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

// perNamespace is the number of Listeners in each namespace.
const perNamespace = 100

// addListeners creates Listeners up to the given number, each with a claim, a volume that was mounted before, a Pod,
// and the Pod's PodListeners object as a node agent creates it.
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

// await retries until there is no error, or returns the last one after the timeout.
func await(ctx context.Context, timeout time.Duration, try func(context.Context) error) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("after %s: %w: %w", timeout, err, last)
	}
	return nil
}
