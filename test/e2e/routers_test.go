//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	platform "github.com/listener-operator/listener-operator/internal/testutil/openshift"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/pki"
	"github.com/listener-operator/listener-operator/test/router"
)

// The domains of the routers.
const (
	appsDomain     = cluster.OpenShiftDomain
	internalDomain = "internal.example.test"
	thirdDomain    = "third.example.test"
)

// openshift is what tests of Routes share besides the cluster. The first of them sets it.
var openshift struct {
	programs sync.Once
	platform sync.Once
	routers  sync.Mutex
	// authority is the CA of the certificates of routers and Pods. Clients trust it.
	authority *pki.Authority
	program   string
	dir       string
	// apps serves all Routes, and internal those with the labels of internalShard.
	apps, internal *testRouter
}

// internalShard has the labels of the Routes that the router "internal" serves in addition to the router "default".
var internalShard = map[string]string{"type": "internal"}

// ensureRouters makes the cluster serve Routes, and starts two routers, which the following tests share. They end with
// their nodes, which other tests stop.
func (s *scenario) ensureRouters() {
	s.Helper()
	prepareRouters(s.TB)
	openshift.platform.Do(func() { serveRoutes(s.TB) })
	openshift.routers.Lock()
	defer openshift.routers.Unlock()
	if !openshift.apps.runs() {
		openshift.apps = startRouter(s.TB, testRouter{name: "default", domain: appsDomain, node: 1})
	}
	if !openshift.internal.runs() {
		openshift.internal = startRouter(s.TB, testRouter{name: "internal", domain: internalDomain, node: 2, shard: internalShard})
	}
}

// serveRoutes makes the API server serve Routes as OpenShift's does.
func serveRoutes(t testing.TB) {
	t.Helper()
	if microShift != "" {
		return // it does, for the domain appsDomain
	}
	crds.Install(t, api, crds.Routes)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	check.Must(t, platform.Install(ctx, api, appsDomain))
}

// prepareRouters builds the router and creates the CA, once.
func prepareRouters(t testing.TB) {
	t.Helper()
	openshift.programs.Do(func() {
		check.Must(t, buildRouter(t.Context()))
	})
	if openshift.dir == "" {
		t.Fatal("another test has failed to build the router")
	}
}

func buildRouter(ctx context.Context) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	openshift.program = filepath.Join(root, programs(), "test-router")
	build := exec.CommandContext(ctx, "go", "-C", "test", "build", "-o", openshift.program, "./cmd/router")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the router: %w", err)
	}
	if openshift.authority, err = pki.NewAuthority("e2e"); err != nil {
		return err
	}
	// A test's temporary directory does not fit: its path is too long for sockets, and the routers outlive the test.
	openshift.dir, err = os.MkdirTemp("", "routers-")
	return err
}

// stopRouters stops the shared routers.
func stopRouters() error {
	var errs []error
	for _, r := range []*testRouter{openshift.apps, openshift.internal} {
		if r.runs() {
			errs = append(errs, r.stop())
		}
	}
	if openshift.dir != "" {
		errs = append(errs, os.RemoveAll(openshift.dir))
	}
	return errors.Join(errs...)
}

// testRouter is a router in the network namespace of a node.
type testRouter struct {
	name, domain string
	node         int
	shard        map[string]string

	cmd *exec.Cmd
	// ended is closed when the router has ended.
	ended chan struct{}
}

// startRouter starts a router and waits until it serves. Its log is in the cluster's log directory.
func startRouter(t testing.TB, r testRouter) *testRouter {
	t.Helper()
	dir := filepath.Join(openshift.dir, r.name)
	check.Must(t, os.MkdirAll(dir, 0o700))
	pair, err := openshift.authority.Issue(pki.Request{DNSNames: []string{"*." + r.domain}})
	check.Must(t, err)
	certificate, ca := filepath.Join(dir, "own.pem"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(
		os.WriteFile(certificate, append(pair.Cert, pair.Key...), 0o600), os.WriteFile(ca, openshift.authority.Cert, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	r.cmd = testbed.NodeCommand(context.Background(), r.node, openshift.program,
		"--kubeconfig", testbed.Kubeconfig(), "--name", r.name, "--domain", r.domain, "--canonical-hostname", "router-"+r.name+"."+r.domain,
		"--labels", labels.SelectorFromSet(r.shard).String(), "--address", testbed.NodeIP(r.node), "--dir", dir,
		"--default-certificate", certificate, "--service-ca", ca)
	log, err := os.OpenFile(filepath.Join(testbed.LogDir(), "router-"+r.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check.Must(t, err)
	defer func() { _ = log.Close() }()
	r.cmd.Stderr = log
	out, err := r.cmd.StdoutPipe()
	check.Must(t, err)
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("starting router %s: %v", r.name, err)
	}
	late := time.AfterFunc(timeout, func() { _ = r.signal(unix.SIGKILL) })
	defer late.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		t.Fatalf("router %s does not serve (%v), see %s", r.name, err, log.Name())
	}
	r.ended = make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, out) // until what it has started has ended, too
		_ = r.cmd.Wait()                // it is killed
		close(r.ended)
	}()
	return &r
}

// runs reports whether a router has been started and has not ended.
func (r *testRouter) runs() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

func (r *testRouter) signal(s unix.Signal) error { return unix.Kill(-r.cmd.Process.Pid, s) }

// stop stops the router. Its entries in the status of Routes remain.
func (r *testRouter) stop() error {
	if err := r.signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stopping router %s: %w", r.name, err)
	}
	<-r.ended
	return nil
}

// removeFromRoutes removes the router's entries from the status of all Routes, as OpenShift does for a deleted router.
func (r *testRouter) removeFromRoutes(s *scenario) {
	s.Helper()
	s.must(router.RemoveStatus(s.ctx, api, r.name))
}

// client returns an HTTP client outside the cluster that resolves every host to the router, and follows no
// redirects.
func (r *testRouter) client() *http.Client {
	c := clientOf(testbed.NodeIP(r.node), 5*time.Second, trustAuthority())
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// trustAuthority returns the configuration of clients that trust the CA of routers and Pods.
func trustAuthority() *tls.Config { return trusting(openshift.authority.Cert) }

// trusting returns the configuration of clients that trust an authority.
func trusting(certificate []byte) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return &tls.Config{RootCAs: roots}
}

// answer is the response to a request.
type answer struct {
	// Status is the status code, and Location the target of a redirect.
	Status   int
	Location string
	// Body is empty unless the status code is 200.
	Body string
	// Subject and Names are the common name and DNS names of the server's certificate.
	Subject string
	Names   []string
}

// request sends one request through the router.
func (r *testRouter) request(ctx context.Context, url string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	response, err := r.client().Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{Status: response.StatusCode, Location: response.Header.Get("Location")}
	if response.StatusCode == http.StatusOK {
		a.Body = string(body)
	}
	if response.TLS != nil {
		a.Subject, a.Names = response.TLS.PeerCertificates[0].Subject.CommonName, response.TLS.PeerCertificates[0].DNSNames
	}
	return a, nil
}

// urlOf returns the URL of an address and a port, by the port's name.
func urlOf(a listenersv1alpha1.IngressAddress, port, path string) string {
	scheme := map[int32]string{80: "http", 443: "https"}[a.Ports[port]]
	return scheme + "://" + a.Address + path
}

// routed returns the spec of a class whose Listeners are exposed through Routes.
func routed(route listenersv1alpha1.RouteExposure) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Route: &route}
}

// routedByPod returns the spec of a class whose Listeners have a host by the name of their Pod, in the domain of the
// router, for the port "http" without TLS.
func routedByPod() listenersv1alpha1.ListenerClassSpec {
	return routed(listenersv1alpha1.RouteExposure{
		Termination: listenersv1alpha1.RouteTerminationNone, SubdomainTemplate: "{podName}.{namespace}", Ports: []string{"http"},
	})
}

// routedAt returns the spec of a class with another template of hosts.
func routedAt(host listenersv1alpha1.HostTemplate) listenersv1alpha1.ListenerClassSpec {
	spec := routedByPod()
	spec.Route.SubdomainTemplate, spec.Route.HostTemplate = "", host
	return spec
}

// authoritySecret is the name of the Secret with the CA, with which Pods sign their own certificates.
const authoritySecret = "authority"

// createAuthoritySecret creates the Secret with the CA, for addTLS.
func (s *scenario) createAuthoritySecret() {
	s.Helper()
	s.create(tlsSecret(authoritySecret, openshift.authority.Cert, openshift.authority.Key))
}

func tlsSecret(name string, certificate, key []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
}

// addTLS makes the test server serve HTTPS on a port "https", with certificates for the addresses in its volumes.
func addTLS(spec *corev1.PodSpec) {
	server := &spec.Containers[0]
	server.Ports = append(server.Ports, corev1.ContainerPort{Name: "https", ContainerPort: 8443, Protocol: corev1.ProtocolTCP})
	server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: "authority", MountPath: "/authority"})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: "authority", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: authoritySecret}},
	})
}

// allowRouterToRead permits OpenShift's router to read a Secret, as its documentation instructs users to do.
func (s *scenario) allowRouterToRead(secret string) {
	s.Helper()
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: secret}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret}, Verbs: []string{"get", "list", "watch"},
	}}})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: secret},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: secret},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "openshift-ingress", Name: "router"}},
	})
}
