package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/listener-operator/listener-operator/node-agent/server"
)

// driver is a CSI driver whose NodePublishVolume the test provides.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	publish func(context.Context, *csi.NodePublishVolumeRequest) error
}

func (d *driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := d.publish(ctx, r); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// agent is a running server, with clients for what it serves.
type agent struct {
	t      *testing.T
	dir    string
	health string
	driver *driver
	log    *lines
	stop   context.CancelFunc
	result chan error
}

// kubeletDir creates a kubelet's directory. Its path is short, because that of a socket must have less than 108 bytes.
func kubeletDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // the directory of a test with a long name is too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.MkdirAll(filepath.Dir(server.Socket(dir)), 0o750))
	must(t, os.MkdirAll(filepath.Dir(server.RegistrationSocket(dir)), 0o750))
	return dir
}

func start(t *testing.T, dir string, change ...func(*server.Options)) *agent {
	t.Helper()
	a := &agent{
		t: t, dir: dir, health: freeAddress(t), log: &lines{}, result: make(chan error, 1),
		driver: &driver{publish: func(context.Context, *csi.NodePublishVolumeRequest) error { return nil }},
	}
	options := server.Options{KubeletDir: dir, HealthAddress: a.health, Identity: a.driver, Node: a.driver}
	for _, c := range change {
		c(&options)
	}
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), a.log.logger()))
	a.stop = cancel
	go func() { a.result <- server.Run(ctx, options) }()
	t.Cleanup(func() {
		cancel()
		if err := a.wait(); err != nil {
			t.Log("the server returned", err)
		}
	})
	return a
}

// wait waits until the server returns, and returns its error.
func (a *agent) wait() error {
	a.t.Helper()
	select {
	case err := <-a.result:
		a.result <- err // for the clean-up
		return err
	case <-time.After(20 * time.Second):
		a.t.Fatal("the server does not return")
		return nil
	}
}

// dial returns a connection to one of the agent's sockets, whose RPCs wait until the socket exists.
func (a *agent) dial(socket string) *grpc.ClientConn {
	a.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must(a.t, err)
	a.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (a *agent) node() csi.NodeClient { return csi.NewNodeClient(a.dial(server.Socket(a.dir))) }

func (a *agent) registration() registrationv1.RegistrationClient {
	return registrationv1.NewRegistrationClient(a.dial(server.RegistrationSocket(a.dir)))
}

// get sends an HTTP request, and returns the status code and the body.
func (a *agent) get(path string) string {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://"+a.health+path, nil)
	must(a.t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must(a.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(a.t, err)
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

func TestDriverIsRegisteredWithTheKubelet(t *testing.T) {
	unready := errors.New("no addresses yet")
	var mu sync.Mutex
	a := start(t, kubeletDir(t), func(o *server.Options) {
		o.Ready = func() error { mu.Lock(); defer mu.Unlock(); return unready }
	})
	registration := a.registration()
	info, err := registration.GetInfo(limited(t), &registrationv1.InfoRequest{})
	must(t, err)
	got := []string{info.GetType(), info.GetName(), info.GetEndpoint(), strings.Join(info.GetSupportedVersions(), ",")}
	want := []string{"CSIPlugin", "listeners.stackable.tech", filepath.Join(a.dir, "plugins/listeners.stackable.tech/csi.sock"), "1.0.0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := a.get("/healthz"); got != "200 ok" {
		t.Errorf("/healthz: %s", got)
	}
	if got := a.get("/readyz"); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "has not registered") {
		t.Errorf("/readyz before the registration: %s", got)
	}
	_, err = registration.NotifyRegistrationStatus(limited(t), &registrationv1.RegistrationStatus{PluginRegistered: true})
	must(t, err)
	if got := a.get("/readyz"); got != "503 no addresses yet" {
		t.Errorf("/readyz while the driver is not ready: %s", got)
	}
	mu.Lock()
	unready = nil
	mu.Unlock()
	if got := a.get("/readyz"); got != "200 ok" {
		t.Errorf("/readyz: %s", got)
	}
}

// The kubelet finds the sockets by their names. They are those of Stackable's listener operator, so that this driver
// replaces its driver (contract: names and constants).
func TestSocketsHaveThePathsOfTheContract(t *testing.T) {
	if got, want := server.Socket("/k"), "/k/plugins/listeners.stackable.tech/csi.sock"; got != want {
		t.Errorf("the driver's socket is %s, want %s", got, want)
	}
	if got, want := server.RegistrationSocket("/k"), "/k/plugins_registry/listeners.stackable.tech-reg.sock"; got != want {
		t.Errorf("the registration's socket is %s, want %s", got, want)
	}
}

func TestRunReturnsWhenTheKubeletRefusesTheDriver(t *testing.T) {
	a := start(t, kubeletDir(t))
	_, err := a.registration().NotifyRegistrationStatus(limited(t), &registrationv1.RegistrationStatus{Error: "another driver of that name"})
	must(t, err)
	if err := a.wait(); err == nil || !strings.Contains(err.Error(), "another driver of that name") {
		t.Errorf("the server returned %v", err)
	}
}

func TestSocketsAreForRootOnlyAndAreRemovedAtTheEnd(t *testing.T) {
	a := start(t, kubeletDir(t))
	_, err := a.node().NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{})
	must(t, err)
	sockets := []string{server.Socket(a.dir), server.RegistrationSocket(a.dir)}
	for _, path := range sockets {
		info, err := os.Lstat(path)
		must(t, err)
		if got := info.Mode().String(); got != "Srw-------" {
			t.Errorf("%s has mode %s", path, got)
		}
	}
	a.stop()
	must(t, a.wait())
	for _, path := range sockets {
		entries, err := os.ReadDir(filepath.Dir(path))
		must(t, err)
		if len(entries) != 0 {
			t.Errorf("left behind: %v", entries)
		}
	}
}

func TestSocketsOfAnEarlierAgentAreReplaced(t *testing.T) {
	dir := kubeletDir(t)
	for _, path := range []string{server.Socket(dir), server.RegistrationSocket(dir)} {
		for _, name := range []string{path, filepath.Join(filepath.Dir(path), "."+filepath.Base(path))} {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
			must(t, err)
			listener.SetUnlinkOnClose(false)
			must(t, listener.Close())
		}
	}
	a := start(t, dir)
	_, err := a.registration().GetInfo(limited(t), &registrationv1.InfoRequest{})
	must(t, err)
	_, err = a.node().NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{})
	must(t, err)
}

func TestAgentThatStopsKeepsTheSocketsOfItsSuccessor(t *testing.T) {
	dir := kubeletDir(t)
	first := start(t, dir)
	_, err := first.registration().GetInfo(limited(t), &registrationv1.InfoRequest{})
	must(t, err)
	old, err := os.Lstat(server.RegistrationSocket(dir))
	must(t, err)
	second := start(t, dir)
	for {
		now, err := os.Lstat(server.RegistrationSocket(dir))
		must(t, err)
		if !os.SameFile(old, now) {
			break
		}
	}
	if got := first.get("/healthz"); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "belongs to another process") {
		t.Errorf("/healthz of an agent whose sockets were replaced: %s", got)
	}
	first.stop()
	must(t, first.wait())
	_, err = second.registration().GetInfo(limited(t), &registrationv1.InfoRequest{})
	must(t, err)
	_, err = second.node().NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{})
	must(t, err)
}

func TestAgentWithoutOneOfItsSocketsIsUnhealthy(t *testing.T) {
	for _, socket := range []func(string) string{server.Socket, server.RegistrationSocket} {
		a := start(t, kubeletDir(t))
		_, err := a.registration().NotifyRegistrationStatus(limited(t), &registrationv1.RegistrationStatus{PluginRegistered: true})
		must(t, err)
		path := socket(a.dir)
		must(t, os.Remove(path))
		for _, check := range []string{"/healthz", "/readyz"} {
			if got := a.get(check); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, path) {
				t.Errorf("%s without %s: %s", check, path, got)
			}
		}
	}
}

func TestMissingHostDirectoryIsAnError(t *testing.T) {
	for _, missing := range []func(string) string{server.Socket, server.RegistrationSocket} {
		dir := kubeletDir(t)
		must(t, os.Remove(filepath.Dir(missing(dir))))
		a := start(t, dir)
		if err := a.wait(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing(dir)) {
			t.Errorf("the server returned %v", err)
		}
		if _, err := os.Lstat(server.Socket(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the driver's socket is left: %v", err)
		}
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(limited(t), "tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	a := start(t, kubeletDir(t), func(o *server.Options) { o.HealthAddress = listener.Addr().String() })
	if err := a.wait(); err == nil || !strings.Contains(err.Error(), "health") {
		t.Errorf("the server returned %v", err)
	}
}

func TestPanicFailsOnlyItsRPC(t *testing.T) {
	a := start(t, kubeletDir(t))
	node := a.node()
	a.driver.publish = func(context.Context, *csi.NodePublishVolumeRequest) error { panic("index out of range") }
	_, err := node.NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{VolumeId: "pvc-1"})
	if status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if log := a.log.all(); !strings.Contains(log, "index out of range") || !strings.Contains(log, "server_test.go") || !strings.Contains(log, "pvc-1") {
		t.Errorf("the log lacks the panic, its stack or the volume: %s", log)
	}
	a.driver.publish = func(context.Context, *csi.NodePublishVolumeRequest) error { return nil }
	_, err = node.NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{})
	must(t, err)
}

func TestStoppingCancelsPendingRPCs(t *testing.T) {
	a := start(t, kubeletDir(t))
	waiting := make(chan struct{})
	a.driver.publish = func(ctx context.Context, _ *csi.NodePublishVolumeRequest) error {
		close(waiting)
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	result := make(chan error, 1)
	node := a.node()
	go func() {
		_, err := node.NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{})
		result <- err
	}()
	<-waiting
	a.stop()
	if err := <-result; status.Code(err) != codes.Unavailable || status.Convert(err).Message() != server.ErrStopping.Error() {
		t.Errorf("the RPC returned %v", err)
	}
	must(t, a.wait())
}

func TestStoppingDoesNotWaitForRPCsThatIgnoreIt(t *testing.T) {
	a := start(t, kubeletDir(t))
	waiting, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	a.driver.publish = func(context.Context, *csi.NodePublishVolumeRequest) error {
		close(waiting)
		<-release
		return nil
	}
	node := a.node()
	go func() { _, _ = node.NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{}) }()
	<-waiting
	a.stop()
	must(t, a.wait())
}

func TestStoppingBeforeTheFirstRPC(t *testing.T) {
	a := start(t, kubeletDir(t))
	a.stop()
	must(t, a.wait())
}

func TestNamesAreLoggedAndSecretsAreNot(t *testing.T) {
	a := start(t, kubeletDir(t))
	request := &csi.NodePublishVolumeRequest{
		VolumeId:          "pvc-1",
		TargetPath:        "/var/lib/kubelet/pods/uid/target",
		StagingTargetPath: "/staging-hunter2",
		Secrets:           map[string]string{"password": "hunter2"},
		PublishContext:    map[string]string{"key": "hunter2"},
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/pod.name":                           "web-0",
			"csi.storage.k8s.io/pod.namespace":                      "shop",
			"csi.storage.k8s.io/serviceAccount.tokens":              "hunter2",
			"kubectl.kubernetes.io/last-applied-configuration":      "hunter2",
			"listeners.stackable.tech/listener-class":               "hunter2",
			"hunter2-as-a-key.example.com/anything":                 "",
			"csi.storage.k8s.io/serviceAccount.name.of.someone.new": "hunter2",
		},
	}
	node := a.node()
	_, err := node.NodePublishVolume(limited(t), request)
	must(t, err)
	a.driver.publish = func(context.Context, *csi.NodePublishVolumeRequest) error {
		return status.Error(codes.Unavailable, "no address")
	}
	_, err = node.NodePublishVolume(limited(t), request)
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	log := a.log.all()
	if strings.Contains(log, "hunter2") {
		t.Errorf("a secret is in the log: %s", log)
	}
	for _, want := range []string{"NodePublishVolume", "pvc-1", "/var/lib/kubelet/pods/uid/target", "web-0", "shop", "no address", "Unavailable"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
}

// limited returns a context with a timeout, for RPCs that a broken server would not answer.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// lines collects what is logged, at every level.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, prefix+args)
	}, funcr.Options{Verbosity: 100})
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.text, "\n")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(limited(t), "tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
