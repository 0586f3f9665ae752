package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

// FuzzTargetPath checks that an accepted path is canonical, and below the kubelet's directory of Pods.
func FuzzTargetPath(f *testing.F) {
	const pods = "/var/lib/kubelet/pods/"
	f.Add(pods + podUID + "/volumes/kubernetes.io~csi/" + pvName + "/mount")
	f.Add(pods + "../volumes/kubernetes.io~csi/../mount")
	f.Add(pods + "a/volumes/kubernetes.io~csi/b/../../mount")
	f.Add("/")
	host := volume.NewHost("/var/lib/kubelet")
	f.Fuzz(func(t *testing.T, path string) {
		target, err := host.Parse(path)
		if err != nil {
			if !errors.Is(err, volume.ErrInvalidTarget) {
				t.Fatalf("%q: %v", path, err)
			}
			return
		}
		want := filepath.Join(pods, string(target.PodUID), "volumes", "kubernetes.io~csi", target.Name, "mount")
		if path != want || path != filepath.Clean(path) || !strings.HasPrefix(path, pods) {
			t.Fatalf("%q became %#v", path, target)
		}
	})
}

// FuzzNames checks that for any names of addresses and ports nothing outside of the volume changes, and that the volume
// has only the files of the contract and the one with variables.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"192.0.2.1", "fd00::1", "fe80::1%/../..", "a.example.com", "..", "../../x", "/etc", "http", "", "a/b", "\x00"} {
		f.Add(name, "http", int32(80))
		f.Add("192.0.2.1", name, int32(80))
	}
	f.Fuzz(func(t *testing.T, address, port string, number int32) {
		n := newNode(t)
		outside := canary(t, n.dir)
		before := outsideOf(t, n)
		written, err := n.host.Write(n.target, []listenersv1alpha1.IngressAddress{ip(address, map[string]int32{port: number})})
		if err != nil && !errors.Is(err, volume.ErrNoAddress) {
			t.Fatal(err)
		}
		checkCanary(t, outside)
		if diff := cmp.Diff(before, outsideOf(t, n)); diff != "" {
			t.Fatalf("outside of the volume (-before +after):\n%s", diff)
		}
		if err != nil {
			return
		}
		want := map[string]string{
			"/addresses": "..data/addresses", "/default-address": "..data/default-address", "/default-address.env": "..data/default-address.env",
			"/default-address.quoted.env": "..data/default-address.quoted.env",
			"default-address":             "-> addresses/" + address, "addresses": "drwxr-xr-x", "addresses/" + address: "drwxr-xr-x",
			"addresses/" + address + "/address": "-r--r--r-- " + address, "addresses/" + address + "/ports": "drwxr-xr-x",
		}
		variables := "LISTENER_ADDRESS=" + address + "\n"
		if len(written.Skipped) == 0 {
			want["addresses/"+address+"/ports/"+port] = "-r--r--r-- " + strconv.Itoa(int(number))
			suffix := strings.ToUpper(strings.ReplaceAll(port, "-", "_"))
			variables += fmt.Sprintf("LISTENER_PORT_%s=%d\nLISTENER_ENDPOINT_%s=%s\n", suffix, number, suffix, net.JoinHostPort(address, strconv.Itoa(int(number))))
		}
		want["default-address.env"] = "-r--r--r-- " + variables
		want["default-address.quoted.env"] = "-r--r--r-- " + strings.NewReplacer("=", "='", "\n", "'\n").Replace(variables)
		if diff := cmp.Diff(want, seen(t, n)); diff != "" {
			t.Fatalf("in the volume (-want +got):\n%s", diff)
		}
	})
}

// outsideOf returns all files of the test's directory except for those in the volume.
func outsideOf(t *testing.T, n *node) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(filepath.Dir(n.dir), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == n.mount:
			return fs.SkipDir
		case entry.IsDir():
			all[path] = "directory"
			return nil
		}
		content, err := os.ReadFile(path)
		all[path] = string(content)
		return err
	}))
	return all
}

// FuzzRecord checks that the kubelet's record of a volume is recognized as the driver's only if it says so.
func FuzzRecord(f *testing.F) {
	for _, record := range []string{
		`{"driverName":"listeners.stackable.tech","volumeHandle":"pvc-1","specVolID":"pvc-1"}`, `{"driverName":"other","volumeHandle":"pvc-1"}`,
		`{"driverName":"listeners.stackable.tech","volumeHandle":""}`, `{"driverName":["listeners.stackable.tech"]}`, `{}{}`, `null`, `[`, "",
	} {
		f.Add([]byte(record))
	}
	n := newNode(f)
	n.write(ip("192.0.2.1", nil))
	path := filepath.Join(filepath.Dir(n.mount), "vol_data.json")
	f.Fuzz(func(t *testing.T, record []byte) {
		must(t, os.WriteFile(path, record, 0o600))
		published, err := n.host.Published(podUID)
		must(t, err)
		switch {
		case len(published) == 0:
		case len(published) > 1 || published[0].ID == "" || published[0].Target != n.target:
			t.Fatalf("%q became %+v", record, published)
		case !bytes.Contains(bytes.ToLower(record), []byte("drivername")):
			t.Fatalf("%q was recognized", record)
		}
	})
}
