package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// hasLine reports whether metrics have a line that begins so.
func hasLine(metrics, start string) bool {
	return strings.Contains("\n"+metrics, "\n"+start)
}

func TestMetricsCountMountsByCode(t *testing.T) {
	a := start(t, kubeletDir(t))
	_, err := a.registration().GetInfo(limited(t), &registrationv1.InfoRequest{}) // waits until the agent serves
	must(t, err)
	for _, line := range []string{
		"listener_node_agent_mounts_in_flight 0", `listener_node_agent_mount_duration_seconds_count{code="OK"} 0`,
		`listener_node_agent_mount_duration_seconds_count{code="Unavailable"} 0`, "process_resident_memory_bytes ",
		// The kubelet waits for two minutes, and so no mount takes longer.
		`listener_node_agent_mount_duration_seconds_bucket{code="OK",le="120"} 0`,
	} {
		if got := a.get("/metrics"); !hasLine(got, line) {
			t.Errorf("before the first mount, the metrics lack %q:\n%s", line, got)
		}
	}
	begun, end := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	a.driver.publish = func(ctx context.Context, r *csi.NodePublishVolumeRequest) error {
		logr.FromContextOrDiscard(ctx).Info("Waiting")
		begun <- struct{}{}
		<-end
		if r.GetVolumeId() == "none" {
			return status.Error(codes.Unavailable, "no address of shop/web-0")
		}
		return nil
	}
	for _, volume := range []string{"web", "none"} {
		go func() {
			_, err := a.node().NodePublishVolume(limited(t), &csi.NodePublishVolumeRequest{VolumeId: volume})
			results <- err
		}()
		<-begun
	}
	if got := a.get("/metrics"); !hasLine(got, "listener_node_agent_mounts_in_flight 2") {
		t.Errorf("during two mounts:\n%s", got)
	}
	close(end)
	for range 2 {
		if err := <-results; err != nil && status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
	got := a.get("/metrics")
	for _, line := range []string{
		"listener_node_agent_mounts_in_flight 0", `listener_node_agent_mount_duration_seconds_count{code="OK"} 1`,
		`listener_node_agent_mount_duration_seconds_count{code="Unavailable"} 1`, `listener_node_agent_mount_duration_seconds_bucket{code="OK",le="+Inf"} 1`,
	} {
		if !hasLine(got, line) {
			t.Errorf("after the mounts, the metrics lack %q:\n%s", line, got)
		}
	}
	// Everybody can read them.
	for _, name := range []string{"shop", "web"} {
		if strings.Contains(got, name) {
			t.Errorf("the metrics contain %q:\n%s", name, got)
		}
	}
}

// Other requests are answered in microseconds, and would hide how long users wait.
func TestMetricsCountNoOtherRequests(t *testing.T) {
	a := start(t, kubeletDir(t))
	_, err := a.node().NodeUnpublishVolume(limited(t), &csi.NodeUnpublishVolumeRequest{VolumeId: "web"})
	if status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
	if got := a.get("/metrics"); strings.Contains(got, "Unimplemented") {
		t.Errorf("metrics:\n%s", got)
	}
}
