package driver_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/driver"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// FuzzPublishRequest checks that a request is refused as invalid, or changes its own volume only, which is removed
// again by a request to unpublish it.
func FuzzPublishRequest(f *testing.F) {
	const pods = "/pods/" + podUID + "/volumes/kubernetes.io~csi/"
	f.Add("pvc-1", pods+"pvc-1/mount", "shop", "web-0", podUID, "false", false)
	f.Add("pvc-1", pods+"pvc-1/mount", "shop", "web-0", podUID, "true", false)
	f.Add("pvc-1", pods+"pvc-1/mount", "../..", "web-0", podUID, "", true)
	f.Add("pvc-1", pods+"../pvc-1/mount", "a/b", "..", podUID, "", false)
	f.Add("pvc-1", pods+"pvc-1/mount/", "shop\x00", "web-0", "other", "", false)
	f.Add("", "", "", "", "", "", false)
	f.Fuzz(func(t *testing.T, id, target, namespace, name, uid, ephemeral string, block bool) {
		n := newNode(t)
		d := driver.New("node-1", volume.NewHost(n.dir), anyVolume{})
		check.Must(t, os.MkdirAll(filepath.Dir(n.target("pvc-1")), 0o750))
		capability := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
		if block {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}
		before := n.files()
		_, err := d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: id, TargetPath: n.dir + target, VolumeCapability: capability,
			VolumeContext: map[string]string{
				"csi.storage.k8s.io/pod.name": name, "csi.storage.k8s.io/pod.namespace": namespace, "csi.storage.k8s.io/pod.uid": uid,
				"csi.storage.k8s.io/ephemeral": ephemeral,
			},
		})
		switch {
		case err == nil:
			if got := n.read("pvc-1", "default-address/address"); got != "192.0.2.1" {
				t.Fatalf("the Pod reads %q", got)
			}
		case strings.HasPrefix(target, pods) && status.Code(err) == codes.Internal: // The kubelet has not created the directory.
		case status.Code(err) != codes.InvalidArgument:
			t.Fatal(err)
		}
		after := slices.DeleteFunc(n.files(), func(path string) bool { return strings.HasPrefix(path, n.target("pvc-1")) })
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("outside of the volume (-before +after):\n%s", diff)
		}
		if err != nil {
			return
		}
		if _, err := d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: n.dir + target}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, n.files()); diff != "" {
			t.Fatalf("after unpublishing (-before +after):\n%s", diff)
		}
	})
}
