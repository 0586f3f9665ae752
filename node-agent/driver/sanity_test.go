package driver_test

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/driver"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/server"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// anyVolume is a driver.Source with an address for every volume.
type anyVolume struct{}

func (anyVolume) Addresses(context.Context, podlisteners.Pod, string) ([]listenersv1alpha1.IngressAddress, error) {
	return []listenersv1alpha1.IngressAddress{address("192.0.2.1")}, nil
}

func (anyVolume) Recheck(podlisteners.Pod) {}

// TestSanity runs the CSI conformance suite against the driver as the node agent serves it. The suite has no notion of
// Pods, so an interceptor adds to its requests what the kubelet adds, and the test itself serves the Controller
// service.
func TestSanity(t *testing.T) {
	dir := shortDir(t)
	for _, d := range []string{"pods", "plugins/listeners.stackable.tech", "plugins_registry"} {
		check.Must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), testr.New(t)))
	d := driver.New("node-1", volume.NewHost(dir), anyVolume{})
	go func() {
		served <- server.Run(ctx, server.Options{KubeletDir: dir, HealthAddress: "0", Identity: d, Node: d})
	}()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	}()

	parent := filepath.Join(dir, "pods", podUID, "volumes", "kubernetes.io~csi", "sanity")
	config := sanity.NewTestConfig()
	config.Address = "unix://" + server.Socket(dir)
	config.DialOptions = []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(asKubelet),
	}
	config.ControllerAddress = "unix://" + serveProvisioner(t, filepath.Join(dir, "provisioner.sock"), d)
	config.CreateTargetDir = func(string) (string, error) { return parent, os.MkdirAll(parent, 0o750) }
	config.RemoveTargetPath = os.RemoveAll
	config.CheckPath = func(path string) (sanity.PathKind, error) { return checkPath(targetOf(path)) }
	config.StagingPath = filepath.Join(dir, "staging")
	// The Controller service is not the driver's.
	check.Must(t, flag.Set("ginkgo.skip", `Controller Service|ListVolumes|Snapshot`))
	// Ginkgo also succeeds if it skips all specs.
	var passed int
	ginkgo.ReportAfterSuite("specs", func(report ginkgo.Report) { passed = report.SpecReports.CountWithState(types.SpecStatePassed) })
	sanity.Test(t, config)
	if passed < 18 {
		t.Errorf("%d specs passed, want those of the Identity and Node services, at least 18", passed)
	}
}

// shortDir returns a directory whose path is short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") //nolint:usetesting // t.TempDir is too long a path for a socket
	check.Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// targetOf returns the kubelet's path for a target path of the suite.
func targetOf(path string) string {
	if parent, ok := strings.CutSuffix(path, "/target"); ok {
		return parent + "/mount"
	}
	return path
}

// asKubelet adds to requests what the kubelet adds. It also announces a Controller service, without which the suite
// publishes nothing.
func asKubelet(ctx context.Context, method string, request, response any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch r := request.(type) {
	case *csi.NodePublishVolumeRequest:
		r.TargetPath = targetOf(r.TargetPath)
		r.VolumeContext = map[string]string{
			"csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "shop", "csi.storage.k8s.io/pod.uid": podUID,
		}
	case *csi.NodeUnpublishVolumeRequest:
		r.TargetPath = targetOf(r.TargetPath)
	}
	err := invoke(ctx, method, request, response, conn, opts...)
	if r, ok := response.(*csi.GetPluginCapabilitiesResponse); ok && err == nil {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}})
	}
	return err
}

func checkPath(path string) (sanity.PathKind, error) {
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return sanity.PathIsNotFound, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return sanity.PathIsDir, nil
	default:
		return sanity.PathIsOther, nil
	}
}

// provisioner is a Controller service that creates and deletes volumes by doing nothing.
type provisioner struct {
	csi.UnimplementedControllerServer
}

func (provisioner) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		}},
	}}}, nil
}

func (provisioner) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "pvc-" + r.GetName()}}, nil
}

func (provisioner) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func serveProvisioner(t *testing.T, path string, identity csi.IdentityServer) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	check.Must(t, err)
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, identity)
	csi.RegisterControllerServer(s, provisioner{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := s.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { s.Stop(); <-stopped })
	return path
}
