package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrInvalidTarget means that a path is not that of a CSI volume of a Pod on this node.
var ErrInvalidTarget = errors.New("not the path of a CSI volume of a Pod")

// The names that the kubelet gives to the directories of a Pod's CSI volumes, and to its record of one.
const (
	volumesDir = "volumes"
	csiDir     = "kubernetes.io~csi"
	mountDir   = "mount"
	recordFile = "vol_data.json"
)

// Target is where one volume of one Pod is published.
type Target struct {
	// PodUID is the uid of the Pod.
	PodUID types.UID
	// Name is what the kubelet calls the volume: the name of its PersistentVolume.
	Name string
	// Namespace is that of the Pod, or "" if it is not known. It is no part of the path.
	Namespace string
}

// Parse parses the target path of a CSI request, which must be <kubelet dir>/pods/<Pod
// uid>/volumes/kubernetes.io~csi/<volume>/mount to the letter, or is refused with ErrInvalidTarget.
func (h *Host) Parse(path string) (Target, error) {
	below, ok := strings.CutPrefix(path, h.pods+"/")
	if !ok {
		return Target{}, fmt.Errorf("%q: %w: it does not begin with %s/", path, ErrInvalidTarget, h.pods)
	}
	parts := strings.Split(below, "/")
	if len(parts) != 5 || parts[1] != volumesDir || parts[2] != csiDir || parts[4] != mountDir {
		return Target{}, fmt.Errorf("%q: %w: it does not follow %s/<uid>/%s/%s/<volume>/%s",
			path, ErrInvalidTarget, h.pods, volumesDir, csiDir, mountDir)
	}
	for _, name := range []string{parts[0], parts[3]} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return Target{}, fmt.Errorf("%q: %w: %q is no name of an object", path, ErrInvalidTarget, name)
		}
	}
	return Target{PodUID: types.UID(parts[0]), Name: parts[3]}, nil
}

// parent is the directory that the kubelet makes for the volume, below that of the Pods.
func (t Target) parent() string {
	return filepath.Join(string(t.PodUID), volumesDir, csiDir, t.Name)
}

// String is for logs and errors.
func (t Target) String() string {
	return t.Name + " of Pod " + string(t.PodUID)
}
