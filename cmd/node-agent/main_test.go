package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

const podUID = "0b7b1c1e-5d0f-4c59-9ad2-3f1f3a6f8a55"

func TestMain(m *testing.M) {
	if url := os.Getenv(agentVariable); url != "" {
		if err := runAlone(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(apiserver.Run(m))
}

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		env  string
		args []string
		want Options
		err  string
	}{
		"defaults": {
			"node-1", nil,
			Options{NodeName: "node-1", KubeletDir: "/var/lib/kubelet", HealthProbeBindAddress: ":8081", LogLevel: "info"}, "",
		},
		"all": {
			"node-1", []string{"--node-name=n", "--kubelet-dir=/k/", "--health-probe-bind-address=:1", "--log-level=debug"},
			Options{NodeName: "n", KubeletDir: "/k", HealthProbeBindAddress: ":1", LogLevel: "debug"}, "",
		},
		"no node name":     {"", nil, Options{}, "NODE_NAME"},
		"relative path":    {"n", []string{"--kubelet-dir=k"}, Options{}, "not an absolute path"},
		"unknown level":    {"n", []string{"--log-level=trace"}, Options{}, "must be info or debug"},
		"unknown flag":     {"n", []string{"--unknown"}, Options{}, "unknown"},
		"unknown argument": {"n", []string{"serve"}, Options{}, "serve"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NODE_NAME", tc.env)
			got, err := parseOptions(tc.args, io.Discard)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error is %v, want %q in it", err, tc.err)
				}
				return
			}
			check.Must(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// kubelet is a fake of the kubelet, which finds the agent by its sockets.
type kubelet struct {
	t       *testing.T
	dir     string
	health  string
	stopped chan error
	stop    func()
}

// newKubelet returns a kubelet that no agent has found yet.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") //nolint:usetesting // t.TempDir is too long a path for a socket
	check.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, d := range []string{"pods", "plugins/listeners.stackable.tech", "plugins_registry"} {
		check.Must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	return &kubelet{t: t, dir: dir, health: freeAddress(t), stopped: make(chan error, 1)}
}

// startAgent runs the agent, with a root directory of a kubelet, until stop is called.
func startAgent(t *testing.T) *kubelet {
	t.Helper()
	k := newKubelet(t)
	ctx, cancel := context.WithCancel(t.Context())
	k.stop = cancel
	options := Options{NodeName: "node-1", KubeletDir: k.dir, HealthProbeBindAddress: k.health}
	config := apiserver.Config(t)
	go func() { k.stopped <- run(ctx, config, options) }()
	return k
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer l.Close() //nolint:errcheck // only its address is used
	return l.Addr().String()
}

func (k *kubelet) dial(socket string) *grpc.ClientConn {
	k.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	check.Must(k.t, err)
	k.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// register does what the kubelet does when it sees the agent's registration socket, and returns a connection to the
// driver.
func (k *kubelet) register(answer *registrationv1.RegistrationStatus) *grpc.ClientConn {
	k.t.Helper()
	registry := registrationv1.NewRegistrationClient(k.dial(filepath.Join(k.dir, "plugins_registry", "listeners.stackable.tech-reg.sock")))
	info, err := registry.GetInfo(k.t.Context(), &registrationv1.InfoRequest{})
	check.Must(k.t, err)
	if info.GetName() != "listeners.stackable.tech" {
		k.t.Errorf("the name of the driver is %q", info.GetName())
	}
	if _, err := registry.NotifyRegistrationStatus(k.t.Context(), answer); err != nil {
		k.t.Fatal(err)
	}
	return k.dial(info.GetEndpoint())
}

// ready is the status of /readyz, or 0.
func (k *kubelet) ready() int {
	response, err := http.Get("http://" + k.health + "/readyz") //nolint:noctx // a test's own server
	if err != nil {
		return 0
	}
	defer response.Body.Close() //nolint:errcheck // not read
	return response.StatusCode
}

// get returns what the agent serves at a path, or "".
func (k *kubelet) get(path string) string {
	response, err := http.Get("http://" + k.health + path) //nolint:noctx // a test's own server
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func TestVolumeIsPublishedAndUnpublished(t *testing.T) {
	g := NewWithT(t)
	k := startAgent(t)
	driver := csi.NewNodeClient(k.register(&registrationv1.RegistrationStatus{PluginRegistered: true}))
	g.Eventually(k.ready).WithTimeout(apiserver.Timeout).Should(Equal(http.StatusOK))

	mount := filepath.Join(k.dir, "pods", podUID, "volumes", "kubernetes.io~csi", "pvc-1", "mount")
	check.Must(t, os.MkdirAll(filepath.Dir(mount), 0o750))
	namespace := apiserver.Namespace(t)
	published := make(chan error, 1)
	go func() {
		_, err := driver.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: "pvc-1", TargetPath: mount,
			VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}},
			VolumeContext: map[string]string{
				"csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": namespace, "csi.storage.k8s.io/pod.uid": podUID,
			},
		})
		published <- err
	}()
	answer(t, client.ObjectKey{Namespace: namespace, Name: "web-0"})
	check.Must(t, <-published)
	port, err := os.ReadFile(filepath.Join(mount, "default-address", "ports", "http"))
	if err != nil || string(port) != "31234" {
		t.Errorf("the Pod reads %q, %v", port, err)
	}
	if _, err := driver.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: mount}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(mount); !os.IsNotExist(err) {
		t.Errorf("the volume still exists: %v", err)
	}
	k.stop()
	if err := <-k.stopped; err != nil {
		t.Errorf("the agent returned %v", err)
	}
}

// answer creates the PodListeners of a Pod, as the operator does.
func answer(t *testing.T, pod client.ObjectKey) {
	t.Helper()
	object := listenersv1alpha1.NewPodListeners(pod, podUID, "node-1")
	object.Spec.Listeners = map[string]listenersv1alpha1.PodListener{"listener": {
		Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: "pvc-1", ListenerName: "web",
		IngressAddresses: []listenersv1alpha1.IngressAddress{{
			Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 31234},
		}},
	}}
	check.Must(t, apiserver.Client(t).Create(t.Context(), object))
}

func TestAgentExitsIfTheKubeletRejectsItsRegistration(t *testing.T) {
	k := startAgent(t)
	k.register(&registrationv1.RegistrationStatus{Error: "another driver has this name"})
	if err := <-k.stopped; err == nil || !strings.Contains(err.Error(), "another driver has this name") {
		t.Errorf("the agent returned %v", err)
	}
}
