package volume_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/node-agent/volume"
)

func TestTargetPathMustBeThatOfTheKubelet(t *testing.T) {
	const good = "/var/lib/kubelet/pods/" + podUID + "/volumes/kubernetes.io~csi/" + pvName + "/mount"
	for name, tc := range map[string]struct {
		kubeletDir, path string
		ok               bool
	}{
		"usual":                       {"/var/lib/kubelet", good, true},
		"kubelet dir with a slash":    {"/var/lib/kubelet/", good, true},
		"other kubelet dir":           {"/data/k0s/kubelet", "/data/k0s/kubelet" + strings.TrimPrefix(good, "/var/lib/kubelet"), true},
		"uid of a static Pod":         {"/var/lib/kubelet", strings.Replace(good, podUID, "4f8cbf8ab28c0b8a0e3e1b1c5a4e6d0f", 1), true},
		"volume name with dots":       {"/var/lib/kubelet", strings.Replace(good, pvName, "my.volume-1", 1), true},
		"empty":                       {"/var/lib/kubelet", "", false},
		"relative":                    {"/var/lib/kubelet", good[1:], false},
		"of another kubelet dir":      {"/data/kubelet", good, false},
		"kubelet dir as a prefix":     {"/var/lib/kube", good, false},
		"double slash":                {"/var/lib/kubelet", strings.Replace(good, "/pods/", "/pods//", 1), false},
		"trailing slash":              {"/var/lib/kubelet", good + "/", false},
		"below the volume":            {"/var/lib/kubelet", good + "/x", false},
		"the volume's parent":         {"/var/lib/kubelet", filepath.Dir(good), false},
		"dot":                         {"/var/lib/kubelet", strings.Replace(good, "/volumes/", "/./volumes/", 1), false},
		"traversal that stays inside": {"/var/lib/kubelet", strings.Replace(good, "/volumes/", "/volumes/../volumes/", 1), false},
		"uid is the parent":           {"/var/lib/kubelet", strings.Replace(good, podUID, "..", 1), false},
		"volume is the parent":        {"/var/lib/kubelet", strings.Replace(good, pvName, "..", 1), false},
		"empty volume":                {"/var/lib/kubelet", strings.Replace(good, pvName, "", 1), false},
		"NUL":                         {"/var/lib/kubelet", strings.Replace(good, pvName, "a\x00b", 1), false},
		"backslash":                   {"/var/lib/kubelet", strings.Replace(good, pvName, `a\b`, 1), false},
		"another kind of volume":      {"/var/lib/kubelet", strings.Replace(good, "~csi", "~empty-dir", 1), false},
		"block device":                {"/var/lib/kubelet", strings.Replace(good, "/volumes/", "/volumeDevices/", 1), false},
		"another last part":           {"/var/lib/kubelet", strings.Replace(good, "/mount", "/target", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := volume.NewHost(tc.kubeletDir).Parse(tc.path)
			if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, volume.ErrInvalidTarget) {
				t.Fatalf("got %v, error %v", target, err)
			}
			if tc.ok && !strings.Contains(tc.path, "/"+string(target.PodUID)+"/volumes/kubernetes.io~csi/"+target.Name+"/") {
				t.Errorf("got %#v", target)
			}
		})
	}
}
