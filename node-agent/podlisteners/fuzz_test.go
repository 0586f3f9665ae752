package podlisteners_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/podlisteners"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// FuzzPodListeners checks that whatever the content of a PodListeners object is, nothing changes but the content of the
// volumes of its Pod, which keep a default address.
func FuzzPodListeners(f *testing.F) {
	for _, spec := range []string{
		`{"listeners":{"a":{"scope":"Node","persistentVolumeName":"pvc-1","ingressAddresses":[{"address":"192.0.2.2","addressType":"IP","ports":{"http":80}}]}}}`,
		`{"listeners":{"a":{"persistentVolumeName":"pvc-1","ingressAddresses":[{"address":"../../x","ports":{"../y":1}},{"address":"h.example.com","ports":{"":0}}]}}}`,
		`{"listeners":{"../a":{"persistentVolumeName":"../pvc-1","ingressAddresses":null}}}`, `{"nodeName":"other"}`, `{}`,
	} {
		f.Add("shop", []byte(spec))
		f.Add("other", []byte(spec))
	}
	const uid = types.UID("0b7b1c1e-5d0f-4c59-9ad2-3f1f3a6f8a55")
	f.Fuzz(func(t *testing.T, namespace string, spec []byte) {
		object := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: namespace, Name: "web-0"}, uid, "node-1")
		if json.Unmarshal(spec, &object.Spec) != nil {
			return
		}
		n := &node{t: t, dir: t.TempDir(), pod: podlisteners.Pod{Namespace: "shop", Name: "web-0", UID: uid}}
		n.host = volume.NewHost(n.dir)
		n.publish("pvc-1", "192.0.2.1")
		before := filesOutside(t, n)
		watch, err := podlisteners.NewWatch(&rest.Config{}, "node-1")
		check.Must(t, err)
		syncer := podlisteners.NewSyncer(watch, n.host)
		check.Must(t, watch.Receive(object))
		_ = syncer.Sync(t.Context(), object) // fails if no address is valid
		if diff := cmp.Diff(before, filesOutside(t, n)); diff != "" {
			t.Fatalf("outside of the volume (-before +after):\n%s", diff)
		}
		got := n.file("pvc-1")()
		if got == "" || namespace != "shop" && got != "192.0.2.1" {
			t.Fatalf("the Pod reads %q", got)
		}
	})
}

// filesOutside returns the paths of all files of the node that are not in the volume pvc-1.
func filesOutside(t *testing.T, n *node) []string {
	t.Helper()
	var all []string
	if err := filepath.WalkDir(filepath.Dir(n.dir), func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasPrefix(path, n.mount("pvc-1")+string(os.PathSeparator)) {
			all = append(all, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
