package router

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// fixture is a HAProxy with a server behind it, on the loopback interface.
type fixture struct {
	*testing.T
	haproxy   *haproxy
	listen    Listen
	authority *pki.Authority
	// plain and secure are a server's ports. Each responds with its name.
	plain, secure *httptest.Server
}

// newFixture returns a fixture with a HAProxy that serves no Route.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs the Debian package haproxy, which the test cluster installs: run `make test-e2e`")
	}
	f := &fixture{T: t, listen: Listen{Address: "127.0.0.1", HTTP: reservePort(t), HTTPS: reservePort(t)}}
	f.haproxy = &haproxy{dir: t.TempDir(), output: &testWriter{t: t}}
	authority, err := pki.NewAuthority("authority")
	check.Must(t, err)
	f.authority = authority
	f.plain = httptest.NewServer(respondWith("plain"))
	f.secure = httptest.NewUnstartedServer(respondWith("secure"))
	f.secure.TLS = &tls.Config{Certificates: []tls.Certificate{f.certificate("web.test", "web.a.svc")}}
	f.secure.StartTLS()
	t.Cleanup(f.plain.Close)
	t.Cleanup(f.secure.Close)
	pair, err := authority.Issue(pki.Request{DNSNames: []string{"*.test"}})
	check.Must(t, err)
	if err := f.haproxy.write(map[string]string{
		defaultPair: string(pair.Cert) + string(pair.Key), serviceCA: string(authority.Cert),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.haproxy.stop)
	f.serve()
	return f
}

func respondWith(with string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, with) })
}

// certificate returns a certificate for the names.
func (f *fixture) certificate(names ...string) tls.Certificate {
	f.Helper()
	pair, err := f.authority.Issue(pki.Request{DNSNames: names})
	check.Must(f, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	check.Must(f, err)
	return certificate
}

// reservePort returns a port that the kernel gives to no other process until the test ends, but that HAProxy can listen
// on: a socket is bound to it, and does not listen. Both set SO_REUSEADDR.
func reservePort(t *testing.T) int {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(socket) })
	check.Must(t, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	check.Must(t, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := unix.Getsockname(socket)
	check.Must(t, err)
	return address.(*unix.SockaddrInet4).Port
}

// testWriter writes HAProxy's output to the test's log.
type testWriter struct {
	mu sync.Mutex
	t  *testing.T
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Logf("haproxy: %s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// serve configures HAProxy with the Routes, for the Service "web" of the namespace "a".
func (f *fixture) serve(routes ...routev1.Route) {
	f.Helper()
	var decisions []decision
	for i := range routes {
		routes[i].Spec.To.Name = "web"
		decisions = append(decisions, decision{route: &routes[i]})
	}
	files, err := render(f.listen, decisions, []discoveryv1.EndpointSlice{f.endpoints()})
	check.Must(f, err)
	check.Must(f, f.haproxy.apply(f.Context(), files))
}

// endpoints returns the servers as the ports "plain" and "secure" of a Service.
func (f *fixture) endpoints() discoveryv1.EndpointSlice {
	port := func(name string, s *httptest.Server) discoveryv1.EndpointPort {
		number := s.Listener.Addr().(*net.TCPAddr).Port
		return discoveryv1.EndpointPort{Name: &name, Port: ptr.To(int32(number)), Protocol: ptr.To(corev1.ProtocolTCP)} //nolint:gosec // a port
	}
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{port("plain", f.plain), port("secure", f.secure)},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}},
	}
}

// client returns an HTTP client that sends requests for all hosts to HAProxy, trusts the fixture's authority, and
// follows no redirects.
func (f *fixture) client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(f.authority.Cert)
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				port := f.listen.HTTP
				if strings.HasSuffix(address, ":443") {
					port = f.listen.HTTPS
				}
				return (&net.Dialer{}).DialContext(ctx, "tcp", bind(f.listen.Address, port))
			},
		},
	}
}

// get returns "status body [certificate's names] location". It omits missing parts.
func (f *fixture) get(c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	parts := []string{fmt.Sprint(response.StatusCode)}
	if response.StatusCode == http.StatusOK {
		parts = append(parts, string(body))
	}
	if response.TLS != nil {
		parts = append(parts, fmt.Sprint(response.TLS.PeerCertificates[0].DNSNames))
	}
	if location := response.Header.Get("Location"); location != "" {
		parts = append(parts, location)
	}
	return strings.Join(parts, " "), nil
}

func to(port string) func(*routev1.Route) { return toPort(intstr.FromString(port)) }

func insecure(termination routev1.TLSTerminationType, policy routev1.InsecureEdgeTerminationPolicyType) func(*routev1.Route) {
	return withTLS(routev1.TLSConfig{Termination: termination, InsecureEdgeTerminationPolicy: policy})
}

func TestEveryTerminationIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	own, err := f.authority.Issue(pki.Request{DNSNames: []string{"own.test"}})
	check.Must(t, err)
	f.serve(
		newRoute(1, "a", "none", "none.test", to("plain")),
		newRoute(2, "a", "web", "web.test", to("secure"), insecure(routev1.TLSTerminationPassthrough, routev1.InsecureEdgeTerminationPolicyRedirect)),
		newRoute(3, "a", "edge", "edge.test", to("plain"), edge()),
		newRoute(4, "a", "own", "own.test", to("plain"), withTLS(routev1.TLSConfig{
			Termination: routev1.TLSTerminationEdge, Certificate: string(own.Cert), Key: string(own.Key),
			InsecureEdgeTerminationPolicy: routev1.InsecureEdgeTerminationPolicyAllow,
		})),
		newRoute(5, "a", "again", "again.test", to("secure"), insecure(routev1.TLSTerminationReencrypt, routev1.InsecureEdgeTerminationPolicyRedirect)),
		newRoute(6, "a", "distrust", "distrust.test", to("secure"), withTLS(routev1.TLSConfig{
			Termination: routev1.TLSTerminationReencrypt, DestinationCACertificate: string(own.Cert),
		})),
		newRoute(7, "a", "wrong", "wrong.test", to("secure"), insecure(routev1.TLSTerminationEdge, "")),
	)
	for url, want := range map[string]string{
		"http://none.test/":      "200 plain",
		"https://none.test/":     "503 [*.test]",
		"https://web.test/":      "200 secure [web.test web.a.svc]",
		"http://web.test/":       "302 https://web.test/",
		"https://edge.test/":     "200 plain [*.test]",
		"http://edge.test/":      "503",
		"https://own.test/":      "200 plain [own.test]",
		"http://own.test/":       "200 plain",
		"https://again.test/":    "200 secure [*.test]",
		"http://again.test/":     "302 https://again.test/",
		"https://distrust.test/": "503 [*.test]",
		"https://wrong.test/":    "400 [*.test]", // the server expects TLS, and gets plain HTTP
		"http://unknown.test/":   "503",
		"https://unknown.test/":  "503 [*.test]",
	} {
		if got, err := f.get(f.client(), url); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", url, got, err, want)
		}
	}
}

// New connections are served during a reload, existing ones are kept, and only the new configuration is used
// afterwards.
func TestReloadKeepsConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kept := newRoute(1, "a", "web", "web.test", to("secure"), passthrough())
	terminated := newRoute(2, "a", "edge", "edge.test", to("plain"), edge())
	f.serve(kept, terminated)

	conn, err := tls.Dial("tcp", bind(f.listen.Address, f.listen.HTTPS), &tls.Config{InsecureSkipVerify: true, ServerName: "web.test"}) //nolint:gosec // the certificate is self-signed
	check.Must(t, err)
	defer func() { _ = conn.Close() }()

	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int64
	var clients sync.WaitGroup
	for _, url := range []string{"https://web.test/", "https://edge.test/"} {
		clients.Go(func() {
			c := f.client()
			for ctx.Err() == nil {
				if got, err := f.get(c, url); err != nil || !strings.HasPrefix(got, "200 ") {
					t.Errorf("%s while HAProxy reloads: %q, %v", url, got, err)
				}
				requests.Add(1)
			}
		})
	}
	for i := range 10 {
		host := fmt.Sprintf("new-%d.test", i)
		f.serve(kept, terminated, newRoute(3, "a", "new", host, to("plain")))
		for n := range 20 {
			if got, err := f.get(f.client(), "http://"+host+"/"); err != nil || got != "200 plain" {
				t.Errorf("request %d to the new host after reload %d: %q, %v", n, i, got, err)
			}
		}
		if got, err := f.get(f.client(), fmt.Sprintf("http://new-%d.test/", i-1)); err != nil || got != "503" {
			t.Errorf("the previous host after reload %d: %q, %v", i, got, err)
		}
	}
	cancel()
	clients.Wait()
	t.Logf("%d requests during 10 reloads", requests.Load())

	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("on a connection from before the reloads: %v", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("on a connection from before the reloads: %s", response.Status)
	}
}

func TestInvalidConfigurationIsNotApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve(newRoute(1, "a", "none", "none.test", to("plain")))
	err := f.haproxy.apply(t.Context(), map[string]string{configFile: "nonsense\n"})
	if err == nil || !strings.Contains(err.Error(), "unknown keyword 'nonsense'") {
		t.Errorf("applying nonsense: %v", err)
	}
	if got, err := f.get(f.client(), "http://none.test/"); err != nil || got != "200 plain" {
		t.Errorf("after an invalid configuration: %q, %v", got, err)
	}
	f.serve(newRoute(1, "a", "none", "fixed.test", to("plain")))
	if got, err := f.get(f.client(), "http://fixed.test/"); err != nil || got != "200 plain" {
		t.Errorf("after a valid one: %q, %v", got, err)
	}
}

// It uses a fake master process, because the time in which a previous worker still accepts connections is very short.
func TestReloadWaitsForPreviousWorkers(t *testing.T) {
	t.Parallel()
	h := &haproxy{dir: t.TempDir()}
	listener, err := net.Listen("unix", filepath.Join(h.dir, masterSocket))
	check.Must(t, err)
	defer func() { _ = listener.Close() }()
	answers := make(chan map[string]string, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			command, _ := io.ReadAll(conn)
			now := <-answers
			_, _ = io.WriteString(conn, now[strings.TrimSpace(string(command))])
			answers <- now
			_ = conn.Close()
		}
	}()
	const master, old, fresh = "1 master 1\n", "2 worker 1\n", "3 worker 0\n"
	for name, tc := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"there is no new worker":          {map[string]string{"show proc": master + old}, "no new worker"},
		"both accept connections":         {map[string]string{"show proc": master + fresh + old, "@!2 show info": "\nPid: 2\nUptime: 0\n"}, "worker 2 still accepts connections"},
		"the previous worker is stopping": {map[string]string{"show proc": master + fresh + old, "@!2 show info": "\nPid: 2\nStopping: 1\n"}, ""},
		"the previous worker has exited":  {map[string]string{"show proc": master + fresh}, ""},
	} {
		answers <- tc.answers
		got := ""
		if err := h.settled([]string{"2"}); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		<-answers
	}
}

// Its master may lose a signal then.
func TestStopEndsHAProxyWhileItReloads(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := newFixture(t)
		check.Must(t, f.haproxy.cmd.Process.Signal(unix.SIGUSR2))
		f.haproxy.stop()
	}
}

func TestApplyFailsAfterHAProxyExits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check.Must(t, f.haproxy.cmd.Process.Kill())
	<-f.haproxy.exited
	files, err := render(f.listen, nil, nil)
	check.Must(t, err)
	if err := f.haproxy.apply(t.Context(), files); !errors.Is(err, errHAProxyExited) {
		t.Errorf("applying after HAProxy exited: %v", err)
	}
}
