package size

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
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

// server is an API server, with what the operator needs to run against it.
type server struct {
	env    *envtest.Environment
	config *rest.Config
	client client.Client
	// dir is removed at the end.
	dir string
	// token is a token of the operator's ServiceAccount.
	token string
	// listeners is the number of Listeners that exist.
	listeners int
}

// start starts an API server with address ranges for many Services, and installs the operator's CRDs and
// permissions. Its objects are in the directory data, and stay there.
func start(ctx context.Context, data string) (*server, error) {
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
	s := &server{}
	if s.dir, err = os.MkdirTemp("", "listener-operator-bench-"); err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	policy := filepath.Join(s.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	s.env = &envtest.Environment{ControlPlaneStartTimeout: startTimeout, CRDInstallOptions: envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "config", "crd", "bases")}, ErrorIfPathMissing: true,
	}}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of etcd: %w", err)
	}
	s.env.ControlPlane.Etcd = &envtest.Etcd{Path: filepath.Join(etcd, "etcd"), DataDir: data}
	s.env.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync").Append("quota-backend-bytes", "8589934592")
	s.env.ControlPlane.APIServer = &envtest.APIServer{Path: filepath.Join(kubernetes, "kube-apiserver")}
	s.env.ControlPlane.KubectlPath = filepath.Join(kubernetes, "kubectl")
	s.env.ControlPlane.APIServer.Configure().
		Set("service-cluster-ip-range", "10.0.0.0/14").
		Set("service-node-port-range", "20000-60000").
		Set("audit-policy-file", policy).
		Set("audit-log-path", s.auditLog()).
		Set("audit-log-maxsize", "10000"). // in megabytes, because the log is read as one file
		Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if s.config, err = s.env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the API server: %w", err), s.stop())
	}
	s.config.QPS = -1
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(listenersv1alpha1.AddToScheme(scheme))
	if s.client, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(fmt.Errorf("creating a client: %w", err), s.stop())
	}
	if err := s.install(ctx, root); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) auditLog() string { return filepath.Join(s.dir, "audit.jsonl") }

func (s *server) stop() error {
	return errors.Join(s.env.Stop(), os.RemoveAll(s.dir))
}

// install creates the operator's namespace, ServiceAccount and permissions, and a token.
func (s *server) install(ctx context.Context, root string) error {
	admin, err := s.env.AddUser(envtest.User{Name: "bench", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("creating a user: %w", err)
	}
	kubectl, err := admin.Kubectl()
	if err != nil {
		return fmt.Errorf("setting up kubectl: %w", err)
	}
	const metrics = "bench-metrics" // the operator's own token is also used to read its metrics
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: names.Operator, Name: names.Operator}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.Operator}},
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: metrics}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: metrics}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metrics},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		},
	} {
		if err := s.ensure(ctx, o); err != nil {
			return err
		}
	}
	rules := filepath.Join(root, "config", "rbac", "operator.yaml")
	if _, stderr, err := kubectl.Run("apply", "--namespace="+names.Operator, "--filename="+rules); err != nil {
		message, _ := io.ReadAll(stderr)
		return fmt.Errorf("applying %s: %w: %s", rules, err, message)
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)}}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("creating a token for the operator: %w", err)
	}
	s.token = token.Status.Token
	return nil
}

// ensure creates an object, or reads it if it exists.
func (s *server) ensure(ctx context.Context, o client.Object) error {
	err := s.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		err = s.client.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
	if err != nil {
		return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// existing returns the names of all objects of a kind of the core group or of the operator's API.
func (s *server) existing(ctx context.Context, kind schema.GroupVersionKind) (sets.Set[string], error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	// An API server that has just started may still read its storage.
	if err := await(ctx, startTimeout, func(ctx context.Context) error { return s.client.List(ctx, list) }); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	found := sets.New[string]()
	for i := range list.Items {
		found.Insert(list.Items[i].Name)
	}
	return found, nil
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

// addNodes creates the nodes that are missing.
func (s *server) addNodes(ctx context.Context, nodes int) error {
	existing, err := s.existing(ctx, corev1.SchemeGroupVersion.WithKind("Node"))
	if err != nil {
		return err
	}
	return each(ctx, 0, nodes, func(ctx context.Context, i int) error {
		if existing.Has(nodeName(i)) {
			return nil
		}
		return s.ensure(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i)}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i/250, i%250+1)}, {Type: corev1.NodeHostName, Address: nodeName(i)},
			}},
		})
	})
}

// perNamespace is the number of Listeners in each namespace.
const perNamespace = 100

// addListeners creates the Listeners that are missing, each with a claim, a volume and a Pod that is bound to one of
// the nodes.
func (s *server) addListeners(ctx context.Context, listeners, nodes int) error {
	s.listeners = listeners
	if err := s.ensure(ctx, &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
	}); err != nil {
		return err
	}
	existing, err := s.existing(ctx, listenersv1alpha1.GroupVersion.WithKind("Listener"))
	if err != nil {
		return err
	}
	for i := 0; i < listeners; i += perNamespace {
		if err := s.ensure(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}); err != nil {
			return err
		}
	}
	return each(ctx, 0, listeners, func(ctx context.Context, i int) error {
		if existing.Has(claimName(i)) {
			return nil
		}
		if err := s.addListener(ctx, i, nodeName(i%nodes)); err != nil {
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
