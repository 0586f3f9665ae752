package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/driver"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

const podUID = "0b7b1c1e-5d0f-4c59-9ad2-3f1f3a6f8a55"

// source is a driver.Source that returns the addresses set by the test, and blocks for volumes that have none.
type source struct {
	mu        sync.Mutex
	addresses map[string][]listenersv1alpha1.IngressAddress
	changed   chan struct{}
	rechecked []podlisteners.Pod
}

func newSource() *source {
	return &source{
		addresses: map[string][]listenersv1alpha1.IngressAddress{}, changed: make(chan struct{}),
	}
}

// set sets the addresses of a volume, and wakes the callers of Addresses.
func (s *source) set(volume string, addresses ...listenersv1alpha1.IngressAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[volume] = addresses
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) Addresses(ctx context.Context, pod podlisteners.Pod, volume string) ([]listenersv1alpha1.IngressAddress, error) {
	for {
		s.mu.Lock()
		addresses, changed := s.addresses[volume], s.changed
		s.mu.Unlock()
		if len(addresses) > 0 {
			return addresses, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s of Pod %s has %w: %w", volume, pod, podlisteners.ErrNoAddress, ctx.Err())
		}
	}
}

func (s *source) Recheck(pod podlisteners.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rechecked = append(s.rechecked, pod)
}

// node is a kubelet directory and the driver that serves it.
type node struct {
	t      *testing.T
	dir    string
	source *source
	host   *volume.Host
	driver *driver.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), source: newSource()}
	n.host = volume.NewHost(n.dir)
	n.driver = driver.New("node-1", n.host, n.source)
	return n
}

func (n *node) target(volume string) string {
	return filepath.Join(n.dir, "pods", podUID, "volumes", "kubernetes.io~csi", volume, "mount")
}

// request returns the kubelet's request to publish a volume, and creates the volume's parent directory as the kubelet
// does.
func (n *node) request(volume string) *csi.NodePublishVolumeRequest {
	n.t.Helper()
	target := n.target(volume)
	check.Must(n.t, os.MkdirAll(filepath.Dir(target), 0o750))
	return &csi.NodePublishVolumeRequest{
		VolumeId:   volume,
		TargetPath: target,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		},
		VolumeContext: map[string]string{
			"csi.storage.k8s.io/pod.name":            "web-0",
			"csi.storage.k8s.io/pod.namespace":       "shop",
			"csi.storage.k8s.io/pod.uid":             podUID,
			"csi.storage.k8s.io/ephemeral":           "false",
			"csi.storage.k8s.io/serviceAccount.name": "default",
			"listeners.stackable.tech/listener-name": "web",
		},
	}
}

func (n *node) read(volume, name string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.target(volume), name))
	check.Must(n.t, err)
	return string(content)
}

func (n *node) publish(ctx context.Context, volume string) error {
	n.t.Helper()
	_, err := n.driver.NodePublishVolume(ctx, n.request(volume))
	return err
}

func (n *node) unpublish(volume string) error {
	n.t.Helper()
	_, err := n.driver.NodeUnpublishVolume(n.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: n.target(volume)})
	return err
}

func address(a string) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: a, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080}}
}

func TestNodeInfo(t *testing.T) {
	got, err := newNode(t).driver.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	check.Must(t, err)
	want := &csi.NodeGetInfoResponse{
		NodeId: "node-1", MaxVolumesPerNode: math.MaxInt64,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{"listeners.stackable.tech/hostname": "node-1"}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdentity(t *testing.T) {
	d := newNode(t).driver
	info, err := d.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != "listeners.stackable.tech" || info.GetVendorVersion() == "" {
		t.Errorf("plugin info is %v, error %v", info, err)
	}
	capabilities, err := d.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	check.Must(t, err)
	want := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS},
	}}}}
	if diff := cmp.Diff(want, capabilities, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInvalidPublishRequestsAreRefusedWithAdvice(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*csi.NodePublishVolumeRequest)
		want   string
	}{
		"no volume id":     {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, "volume_id"},
		"no target path":   {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, "target_path"},
		"no capability":    {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, "volume_capability"},
		"no Pod name":      {func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, "csi.storage.k8s.io/pod.name") }, "podInfoOnMount"},
		"no Pod namespace": {func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, "csi.storage.k8s.io/pod.namespace") }, "podInfoOnMount"},
		"no Pod uid":       {func(r *csi.NodePublishVolumeRequest) { delete(r.VolumeContext, "csi.storage.k8s.io/pod.uid") }, "podInfoOnMount"},
		"no context":       {func(r *csi.NodePublishVolumeRequest) { r.VolumeContext = nil }, "podInfoOnMount"},
		"block device": {
			func(r *csi.NodePublishVolumeRequest) {
				r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
			},
			"volumeMode: Filesystem",
		},
		"another Pod's directory": {
			func(r *csi.NodePublishVolumeRequest) { r.VolumeContext["csi.storage.k8s.io/pod.uid"] = "another" }, "does not belong to Pod shop/web-0",
		},
		"target outside":      {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/etc/cron.d" }, "/etc/cron.d"},
		"target that escapes": {func(r *csi.NodePublishVolumeRequest) { r.TargetPath += "/../../../../../../../etc" }, "/../"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.source.set("pvc-1", address("192.0.2.1"))
			request := n.request("pvc-1")
			tc.change(request)
			_, err := n.driver.NodePublishVolume(t.Context(), request)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want InvalidArgument about %q", err, tc.want)
			}
			if _, err := os.Lstat(n.target("pvc-1")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the volume exists: %v", err)
			}
		})
	}
}

// Neither the id that the kubelet makes up for it counts, nor attributes that its author writes.
func TestAnInlineVolumeIsKnownByItsName(t *testing.T) {
	n := newNode(t)
	n.source.set("inline/listener", address("192.0.2.1"))
	n.source.set("pvc-1", address("192.0.2.2"))
	request := n.request("listener")
	request.VolumeId, request.VolumeContext["csi.storage.k8s.io/ephemeral"] = "pvc-1", "true"
	request.VolumeContext["listener-operator.dev/volume"] = "pvc-1"
	if _, err := n.driver.NodePublishVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := n.read("listener", "default-address/address"); got != "192.0.2.1" {
		t.Errorf("the volume reads %q", got)
	}
}

func TestTwoVolumesOfAPodHaveTheirOwnAddresses(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.1"))
	n.source.set("pvc-2", address("2001:db8::1"), address("192.0.2.2"))
	check.Must(t, errors.Join(n.publish(t.Context(), "pvc-1"), n.publish(t.Context(), "pvc-2")))
	for file, want := range map[[2]string]string{
		{"pvc-1", "default-address/address"}:          "192.0.2.1",
		{"pvc-2", "default-address/address"}:          "2001:db8::1",
		{"pvc-2", "default-address/ports/http"}:       "8080",
		{"pvc-2", "addresses/192.0.2.2/address"}:      "192.0.2.2",
		{"pvc-2", "addresses/2001:db8::1/ports/http"}: "8080",
		{"pvc-1", "addresses/192.0.2.1/ports/http"}:   "8080",
	} {
		if got := n.read(file[0], file[1]); got != want {
			t.Errorf("%s of %s reads %q, want %q", file[1], file[0], got, want)
		}
	}
	pod := podlisteners.Pod{Namespace: "shop", Name: "web-0", UID: podUID}
	check.Equal(t, "rechecked", []podlisteners.Pod{pod, pod}, n.source.rechecked)
}

// The namespace protects the volume from objects in other namespaces that claim the same Pod uid.
func TestPublishedVolumeHasTheNamespaceOfItsPod(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.1"))
	request := n.request("pvc-1")
	record := `{"driverName":"listeners.stackable.tech","volumeHandle":"pvc-1"}`
	check.Must(t, os.WriteFile(filepath.Join(filepath.Dir(n.target("pvc-1")), "vol_data.json"), []byte(record), 0o600))
	if _, err := n.driver.NodePublishVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	got, err := n.host.Published(podUID)
	check.Must(t, err)
	want := []volume.Published{{Target: volume.Target{PodUID: podUID, Name: "pvc-1", Namespace: "shop"}, ID: "pvc-1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLateAddressCompletesTheMountAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		done := make(chan error, 1)
		go func() { done <- n.publish(t.Context(), "pvc-1") }()
		synctest.Wait()
		time.Sleep(100 * time.Second) // on the fake clock
		began := time.Now()
		n.source.set("pvc-1", address("192.0.2.1"))
		check.Must(t, <-done)
		if took := time.Since(began); took != 0 {
			t.Errorf("answered after %s", took)
		}
		if got := n.read("pvc-1", "default-address/address"); got != "192.0.2.1" {
			t.Errorf("the Pod reads %q", got)
		}
	})
}

func TestNoAddressInTimeIsUnavailable(t *testing.T) {
	for name, tc := range map[string]struct {
		deadline, want time.Duration // of the call, zero for none; and how long it waits
	}{
		"without a deadline":     {0, 110 * time.Second},
		"the kubelet's deadline": {120 * time.Second, 110 * time.Second},
		"a shorter deadline":     {60 * time.Second, 55 * time.Second},
		"very short deadline":    {2 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				began := time.Now()
				err := n.publish(ctx, "pvc-1")
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "pvc-1 of Pod shop/web-0") {
					t.Errorf("error is %v", err)
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("answered after %s, want %s", took, tc.want)
				}
				if _, err := os.Lstat(n.target("pvc-1")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the volume exists: %v", err)
				}
			})
		})
	}
}

func TestPublishEndsWhenTheCallIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.publish(ctx, "pvc-1") }()
		synctest.Wait()
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Errorf("error is %v", err)
		}
		if err := n.unpublish("pvc-1"); err != nil {
			t.Errorf("unpublishing a volume that was never published: %v", err)
		}
		// synctest.Test also fails if a goroutine is left.
	})
}

func TestPublishAfterTheDeadlineIsDeadlineExceeded(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := newNode(t).publish(ctx, "pvc-1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("error is %v", err)
	}
}

func TestPublishCallsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		stuck := make(chan error, 50)
		for i := range 50 {
			go func() { stuck <- n.publish(t.Context(), fmt.Sprintf("stuck-%d", i)) }()
		}
		synctest.Wait()
		n.source.set("pvc-1", address("192.0.2.1"))
		began := time.Now()
		if err := n.publish(t.Context(), "pvc-1"); err != nil || time.Since(began) != 0 {
			t.Errorf("answered after %s: %v", time.Since(began), err)
		}
		for range 50 {
			if err := <-stuck; status.Code(err) != codes.Unavailable {
				t.Errorf("error is %v", err)
			}
		}
	})
}

func TestPublishedVolumeIsRepublishedWithoutTheOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.source.set("pvc-1", address("192.0.2.1"))
		check.Must(t, n.publish(t.Context(), "pvc-1"))
		restarted := newSource() // as of an agent that cannot reach the API server
		n.driver = driver.New("node-1", volume.NewHost(n.dir), restarted)
		began := time.Now()
		check.Must(t, n.publish(t.Context(), "pvc-1"))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("answered after %s", took)
		}
		if got := n.read("pvc-1", "default-address/address"); got != "192.0.2.1" {
			t.Errorf("the Pod reads %q", got)
		}
		restarted.set("pvc-1", address("192.0.2.2"))
		check.Must(t, n.publish(t.Context(), "pvc-1"))
		if got := n.read("pvc-1", "default-address/address"); got != "192.0.2.2" {
			t.Errorf("with a connection the Pod reads %q", got)
		}
	})
}

func TestFilledDirectoryIsRepublishedAfterAReboot(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.2"))
	request := n.request("pvc-1")
	old := filepath.Join(n.target("pvc-1"), "addresses", "192.0.2.1")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(old, "ports"), 0o755),
		os.WriteFile(filepath.Join(old, "address"), []byte("192.0.2.1"), 0o644),
		os.Symlink("addresses/192.0.2.1", filepath.Join(n.target("pvc-1"), "default-address")),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := n.driver.NodePublishVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if got := n.read("pvc-1", "default-address/address"); got != "192.0.2.2" {
		t.Errorf("the Pod reads %q", got)
	}
	if _, err := os.Stat(filepath.Join(n.target("pvc-1"), "addresses", "192.0.2.1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old address: %v", err)
	}
}

func TestAddressesThatAreNoFileNamesAreNotPublished(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("../../../etc"))
	if err := n.publish(t.Context(), "pvc-1"); status.Code(err) != codes.Unavailable {
		t.Errorf("error is %v", err)
	}
	n.source.set("pvc-1", listenersv1alpha1.IngressAddress{
		Address: "192.0.2.1", Ports: map[string]int32{"a/b": 1, "..": 2, strings.Repeat("p", 64): 3, strings.Repeat("p", 63): 4, "ok": 5},
	})
	check.Must(t, n.publish(t.Context(), "pvc-1"))
	entries, err := os.ReadDir(filepath.Join(n.target("pvc-1"), "default-address", "ports"))
	check.Must(t, err)
	got := map[string]bool{}
	for _, e := range entries {
		got[e.Name()] = true
	}
	if want := map[string]bool{"ok": true, strings.Repeat("p", 63): true}; !maps.Equal(want, got) {
		t.Errorf("ports are %v", got)
	}
}

func TestUnpublishIsLocalAndIdempotent(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.1"))
	check.Must(t, n.publish(t.Context(), "pvc-1"))
	n.driver = driver.New("node-1", volume.NewHost(n.dir), nil) // a call of the source would panic
	for range 2 {
		check.Must(t, n.unpublish("pvc-1"))
		if _, err := os.Lstat(n.target("pvc-1")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the volume: %v", err)
		}
	}
	if err := n.unpublish("pvc-unknown"); err != nil {
		t.Errorf("an unknown volume: %v", err)
	}
}

func TestInvalidUnpublishRequestsAreRefused(t *testing.T) {
	n := newNode(t)
	for name, request := range map[string]*csi.NodeUnpublishVolumeRequest{
		"no volume id":   {TargetPath: n.target("pvc-1")},
		"no target path": {VolumeId: "pvc-1"},
		"target outside": {VolumeId: "pvc-1", TargetPath: "/etc"},
	} {
		if _, err := n.driver.NodeUnpublishVolume(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestFailureToWriteAVolumeIsInternal(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.1"))
	request := n.request("pvc-1")
	if err := os.RemoveAll(filepath.Dir(n.target("pvc-1"))); err != nil { // only the kubelet creates it
		t.Fatal(err)
	}
	if _, err := n.driver.NodePublishVolume(t.Context(), request); status.Code(err) != codes.Internal {
		t.Errorf("error is %v", err)
	}
}

func TestFailureToRewriteAVolumeIsInternal(t *testing.T) {
	n := newNode(t)
	n.source.set("pvc-1", address("192.0.2.1"))
	check.Must(t, n.publish(t.Context(), "pvc-1"))
	n.host.Label = func(*os.File) error { return errors.New("denied") }
	n.source.set("pvc-1", address("192.0.2.2"))
	if err := n.publish(t.Context(), "pvc-1"); status.Code(err) != codes.Internal {
		t.Errorf("error is %v", err)
	}
}

func TestOtherMethodsAreUnimplemented(t *testing.T) {
	if _, err := newNode(t).driver.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("error is %v", err)
	}
}

// files returns the paths of all files below the kubelet's directory.
func (n *node) files() []string {
	n.t.Helper()
	var all []string
	if err := filepath.WalkDir(n.dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	return all
}

func TestStagingIsAnnouncedAndDoesNothing(t *testing.T) {
	n := newNode(t)
	capabilities, err := n.driver.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
	check.Must(t, err)
	want := &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	}}}}
	if diff := cmp.Diff(want, capabilities, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.source.set("pvc-1", address("192.0.2.1"))
	staging := filepath.Join(n.dir, "plugins", "kubernetes.io", "csi", "listeners.stackable.tech", "sha", "globalmount")
	check.Must(t, os.MkdirAll(staging, 0o750))
	before := n.files()
	if _, err := n.driver.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: "pvc-1", StagingTargetPath: staging, VolumeCapability: n.request("pvc-1").VolumeCapability,
	}); err != nil {
		t.Fatal(err)
	}
	// A volume that an earlier version has published was not staged.
	for _, path := range []string{staging, filepath.Join(n.dir, "unknown")} {
		if _, err := n.driver.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "pvc-1", StagingTargetPath: path}); err != nil {
			t.Fatal(err)
		}
	}
	check.Must(t, os.RemoveAll(filepath.Join(n.dir, "pods")))
	if diff := cmp.Diff(before, n.files()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
