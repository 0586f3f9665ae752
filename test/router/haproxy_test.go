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
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// bench is a HAProxy with a server behind it, on this machine's loopback interface.
type bench struct {
	*testing.T
	haproxy   *haproxy
	listen    Listen
	authority *pki.Authority
	// plain and secure are a server's ports; both answer with their name.
	plain, secure *httptest.Server
}

// newBench returns a bench with a HAProxy that serves nothing yet.
func newBench(t *testing.T) *bench {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs the Debian package haproxy, which every run of the test cluster installs")
	}
	b := &bench{T: t, listen: Listen{Address: "127.0.0.1", HTTP: freePort(t), HTTPS: freePort(t)}}
	b.haproxy = &haproxy{dir: t.TempDir(), output: &testWriter{t: t}}
	authority, err := pki.NewAuthority("authority")
	if err != nil {
		t.Fatal(err)
	}
	b.authority = authority
	b.plain = httptest.NewServer(answering("plain"))
	b.secure = httptest.NewUnstartedServer(answering("secure"))
	b.secure.TLS = &tls.Config{Certificates: []tls.Certificate{b.certificate("web.test", "web.a.svc")}}
	b.secure.StartTLS()
	t.Cleanup(b.plain.Close)
	t.Cleanup(b.secure.Close)
	pair, err := authority.Issue(pki.Request{DNSNames: []string{"*.test"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.haproxy.write(map[string]string{
		defaultPair: string(pair.Cert) + string(pair.Key), serviceCA: string(authority.Cert),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.haproxy.stop)
	b.serve()
	return b
}

func answering(with string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, with) })
}

// certificate returns a certificate for some names.
func (b *bench) certificate(names ...string) tls.Certificate {
	b.Helper()
	pair, err := b.authority.Issue(pki.Request{DNSNames: names})
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		b.Fatal(err)
	}
	return certificate
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// testWriter shows what HAProxy prints in the test's log.
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

// serve lets HAProxy serve these Routes, to the Service "web" of the namespace "a".
func (b *bench) serve(routes ...routev1.Route) {
	b.Helper()
	var verdicts []verdict
	for i := range routes {
		routes[i].Spec.To.Name = "web"
		verdicts = append(verdicts, verdict{route: &routes[i]})
	}
	files, err := render(b.listen, verdicts, []discoveryv1.EndpointSlice{b.endpoints()})
	if err != nil {
		b.Fatal(err)
	}
	if err := b.haproxy.apply(b.Context(), files); err != nil {
		b.Fatal(err)
	}
}

// endpoints are the servers of the bench, as the ports "plain" and "secure" of a Service.
func (b *bench) endpoints() discoveryv1.EndpointSlice {
	port := func(name string, s *httptest.Server) discoveryv1.EndpointPort {
		number := s.Listener.Addr().(*net.TCPAddr).Port
		return discoveryv1.EndpointPort{Name: &name, Port: ptr.To(int32(number)), Protocol: ptr.To(corev1.ProtocolTCP)}
	}
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{port("plain", b.plain), port("secure", b.secure)},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}},
	}
}

// client is an HTTP client that finds every host at HAProxy, trusts the bench's authority, and follows no redirect.
func (b *bench) client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.authority.Cert)
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				port := b.listen.HTTP
				if strings.HasSuffix(address, ":443") {
					port = b.listen.HTTPS
				}
				return (&net.Dialer{}).DialContext(ctx, "tcp", bind(b.listen.Address, port))
			},
		},
	}
}

// get returns "status body [certificate's names] location", without what there is none of.
func (b *bench) get(c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
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

// TestTrafficEndsWhereTheTerminationSays asks a server through HAProxy in every way that there is.
func TestTrafficEndsWhereTheTerminationSays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	own, err := b.authority.Issue(pki.Request{DNSNames: []string{"own.test"}})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(
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
		"https://wrong.test/":    "400 [*.test]", // TLS is expected, plain HTTP arrives
		"http://unknown.test/":   "503",
		"https://unknown.test/":  "503 [*.test]",
	} {
		if got, err := b.get(b.client(), url); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", url, got, err, want)
		}
	}
}

// TestAReloadDisturbsNobody: new connections are served all the time, those that exist go on, and only the new
// configuration counts afterwards.
func TestAReloadDisturbsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	kept := newRoute(1, "a", "web", "web.test", to("secure"), passthrough())
	terminated := newRoute(2, "a", "edge", "edge.test", to("plain"), edge())
	b.serve(kept, terminated)

	conn, err := tls.Dial("tcp", bind(b.listen.Address, b.listen.HTTPS), &tls.Config{InsecureSkipVerify: true, ServerName: "web.test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()

	ctx, cancel := context.WithCancel(t.Context())
	var requests atomic.Int64
	var clients sync.WaitGroup
	for _, url := range []string{"https://web.test/", "https://edge.test/"} {
		clients.Go(func() {
			c := b.client()
			for ctx.Err() == nil {
				if got, err := b.get(c, url); err != nil || !strings.HasPrefix(got, "200 ") {
					t.Errorf("%s while HAProxy reloads: %q, %v", url, got, err)
				}
				requests.Add(1)
			}
		})
	}
	for i := range 10 {
		host := fmt.Sprintf("new-%d.test", i)
		b.serve(kept, terminated, newRoute(3, "a", "new", host, to("plain")))
		for n := range 20 {
			if got, err := b.get(b.client(), "http://"+host+"/"); err != nil || got != "200 plain" {
				t.Errorf("request %d to the new host after reload %d: %q, %v", n, i, got, err)
			}
		}
		if got, err := b.get(b.client(), fmt.Sprintf("http://new-%d.test/", i-1)); err != nil || got != "503" {
			t.Errorf("the former host after reload %d: %q, %v", i, got, err)
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

// TestABrokenConfigurationChangesNothing: HAProxy goes on with the former one.
func TestABrokenConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.serve(newRoute(1, "a", "none", "none.test", to("plain")))
	err := b.haproxy.apply(t.Context(), map[string]string{configFile: "nonsense\n"})
	if err == nil || !strings.Contains(err.Error(), "unknown keyword 'nonsense'") {
		t.Errorf("applying nonsense: %v", err)
	}
	if got, err := b.get(b.client(), "http://none.test/"); err != nil || got != "200 plain" {
		t.Errorf("after a broken configuration: %q, %v", got, err)
	}
	b.serve(newRoute(1, "a", "none", "mended.test", to("plain")))
	if got, err := b.get(b.client(), "http://mended.test/"); err != nil || got != "200 plain" {
		t.Errorf("after a mended one: %q, %v", got, err)
	}
}

// TestAReloadEndsWhenNoFormerWorkerAcceptsConnections talks to a master that is not real, because the moment in which a
// former worker still accepts is too short to be met.
func TestAReloadEndsWhenNoFormerWorkerAcceptsConnections(t *testing.T) {
	t.Parallel()
	h := &haproxy{dir: t.TempDir()}
	listener, err := net.Listen("unix", filepath.Join(h.dir, masterSocket))
	if err != nil {
		t.Fatal(err)
	}
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
		"nothing has happened":   {map[string]string{"show proc": master + old}, "no new worker"},
		"both accept":            {map[string]string{"show proc": master + fresh + old, "@!2 show info": "\nPid: 2\nUptime: 0\n"}, "worker 2 still accepts connections"},
		"the former one stops":   {map[string]string{"show proc": master + fresh + old, "@!2 show info": "\nPid: 2\nStopping: 1\n"}, ""},
		"the former one is gone": {map[string]string{"show proc": master + fresh}, ""},
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

// TestTheEndOfHAProxyIsNoticed: nobody waits for what cannot come.
func TestTheEndOfHAProxyIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.haproxy.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.haproxy.ended
	files, err := render(b.listen, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.haproxy.apply(t.Context(), files); !errors.Is(err, errHAProxyEnded) {
		t.Errorf("applying to a dead HAProxy: %v", err)
	}
}
