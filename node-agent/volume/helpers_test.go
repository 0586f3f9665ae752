package volume_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

const (
	podUID = "0b7b1c1e-5d0f-4c59-9ad2-3f1f3a6f8a55"
	pvName = "pvc-6a5d3f0c-0a1b-4f57-8d53-6c0c6c0a9c11"
)

// node is a kubelet directory with a Pod that has one listener volume, which is not published yet.
type node struct {
	t      testing.TB
	dir    string // the kubelet's root directory
	mount  string // the path of the volume
	host   *volume.Host
	target volume.Target
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "kubelet"), target: volume.Target{PodUID: podUID, Name: pvName}}
	n.host = volume.NewHost(n.dir)
	n.mount = n.addVolume(podUID, pvName, `{"driverName":"listeners.stackable.tech","specVolID":"`+pvName+`","volumeHandle":"`+pvName+`"}`)
	return n
}

// addVolume creates what the kubelet creates before it publishes a volume.
func (n *node) addVolume(pod, name, record string) (mount string) {
	n.t.Helper()
	parent := filepath.Join(n.dir, "pods", pod, "volumes", "kubernetes.io~csi", name)
	must(n.t, os.MkdirAll(parent, 0o750))
	if record != "" {
		must(n.t, os.WriteFile(filepath.Join(parent, "vol_data.json"), []byte(record), 0o644))
	}
	return filepath.Join(parent, "mount")
}

func (n *node) write(addresses ...listenersv1alpha1.IngressAddress) volume.Written {
	n.t.Helper()
	written, err := n.host.Write(n.target, addresses)
	must(n.t, err)
	return written
}

// read returns a file of the volume as the Pod sees it.
func (n *node) read(name string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.mount, name))
	must(n.t, err)
	return string(content)
}

var random = regexp.MustCompile(`(\.\.[a-z]+)-[A-Z2-7]+`)

// listing describes all files below a directory: links by their targets, others by mode and content.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		described, err := describe(path, entry)
		all[random.ReplaceAllString(name, "$1-X")] = random.ReplaceAllString(described, "$1-X")
		return err
	}))
	return all
}

// namesIn returns the names in a directory, sorted, without their random parts.
func namesIn(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, random.ReplaceAllString(e.Name(), "$1-X"))
	}
	return names
}

func describe(path string, entry fs.DirEntry) (string, error) {
	info, err := entry.Info()
	if err != nil {
		return "", err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		return "-> " + to, err
	case info.Mode().IsRegular():
		content, err := os.ReadFile(path)
		return fmt.Sprintf("%v %s", info.Mode(), content), err
	default:
		return info.Mode().String(), nil
	}
}

func ip(address string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports}
}

func hostname(address string, ports map[string]int32) listenersv1alpha1.IngressAddress {
	return listenersv1alpha1.IngressAddress{Address: address, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports}
}

func must(t testing.TB, err error) {
	t.Helper()
	check.Must(t, err)
}
