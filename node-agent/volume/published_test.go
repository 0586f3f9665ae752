package volume_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

func TestPublishedReadsTheKubeletsRecords(t *testing.T) {
	n := newNode(t)
	publish := func(pod, name, record string) {
		t.Helper()
		n.addVolume(pod, name, record)
		_, err := n.host.Write(volume.Target{PodUID: types.UID(pod), Name: name}, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)})
		must(t, err)
	}
	n.write(ip("192.0.2.1", nil))
	publish(podUID, "pv-two", `{"driverName":"listeners.stackable.tech","volumeHandle":"handle-two","specVolID":"pv-two","nodeName":"n"}`)
	publish(podUID, "listener", `{"driverName":"listeners.stackable.tech","volumeHandle":"csi-0123456789","specVolID":"listener","volumeLifecycleMode":"Ephemeral"}`)
	publish(podUID, "pv-foreign", `{"driverName":"nfs.csi.example.com","volumeHandle":"x"}`)
	publish(podUID, "pv-torn", `{"driverName":"listeners.st`)
	publish(podUID, "pv-without-record", "")
	publish(podUID, "pv-with-huge-record", strings.Repeat(" ", 64<<10)+`{"driverName":"listeners.stackable.tech","volumeHandle":"z"}`)
	publish(podUID, "pv-without-handle", `{"driverName":"listeners.stackable.tech"}`)
	n.addVolume(podUID, "pv-not-published", `{"driverName":"listeners.stackable.tech","volumeHandle":"y"}`)
	n.addVolume("other-pod", "pv-foreign", `{"driverName":"nfs.csi.example.com","volumeHandle":"x"}`)
	must(t, os.MkdirAll(filepath.Join(n.dir, "pods", "pod-without-volumes"), 0o750))
	must(t, os.Mkdir(filepath.Join(n.addVolume(podUID, "pv-with-strange-record", ""), "..", "vol_data.json"), 0o750))

	got, err := n.host.Published(podUID)
	must(t, err)
	slices.SortFunc(got, func(a, b volume.Published) int { return len(a.ID) - len(b.ID) })
	want := []volume.Published{
		{Target: volume.Target{PodUID: podUID, Name: "pv-two"}, ID: "handle-two"},
		{Target: volume.Target{PodUID: podUID, Name: "listener"}, ID: "csi-0123456789", Inline: true},
		{Target: n.target, ID: pvName},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, n.host.Remove(t.Context(), n.target))
	must(t, n.host.Remove(t.Context(), volume.Target{PodUID: podUID, Name: "pv-two"}))
	must(t, n.host.Remove(t.Context(), volume.Target{PodUID: podUID, Name: "listener"}))
	for _, pod := range []types.UID{podUID, "other-pod", "pod-without-volumes", "unknown"} {
		if got, err := n.host.Published(pod); err != nil || len(got) != 0 {
			t.Errorf("Pod %s: %v, error %v", pod, got, err)
		}
	}
}

func TestPublishedReturnsTheNamespaceOfTheLastWrite(t *testing.T) {
	n := newNode(t)
	namespace := func() string {
		t.Helper()
		published, err := n.host.Published(podUID)
		must(t, err)
		return published[0].Namespace
	}
	n.write(ip("192.0.2.1", nil))
	if got := namespace(); got != "" {
		t.Errorf("namespace %q of a volume that was written without one", got)
	}
	n.target.Namespace = "my-shop"
	n.write(ip("192.0.2.2", nil))
	if got := namespace(); got != "my-shop" {
		t.Errorf("namespace %q, want my-shop", got)
	}
	must(t, n.host.Remove(t.Context(), n.target))
}
