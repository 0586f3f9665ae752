package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrInvalidTarget means that a path is not the path of a CSI volume of a Pod on this node.
var ErrInvalidTarget = errors.New("not the path of a CSI volume of a Pod")

// The kubelet's names for the directories of a Pod's CSI volumes, and for its record of a volume.
const (
	volumesDir = "volumes"
	csiDir     = "kubernetes.io~csi"
	mountDir   = "mount"
	recordFile = "vol_data.json"
)

// Target identifies a volume of a Pod, and the path at which it is published.
type Target struct {
	// PodUID is the uid of the Pod.
	PodUID types.UID
	// Name is the name of the PersistentVolume, or of an inline volume in the Pod, which the kubelet uses in the path.
	Name string
	// Namespace is that of the Pod, or "" if it is unknown. It is not part of the path.
	Namespace string
}

// Parse parses the target path of a CSI request. It returns ErrInvalidTarget unless the path is exactly
// <kubelet dir>/pods/<Pod uid>/volumes/kubernetes.io~csi/<volume>/mount.
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
			return Target{}, fmt.Errorf("%q: %w: %q is not a valid object name", path, ErrInvalidTarget, name)
		}
	}
	return Target{PodUID: types.UID(parts[0]), Name: parts[3]}, nil
}

// parent returns the path of the directory that the kubelet creates for the volume, relative to that of the Pods.
func (t Target) parent() string {
	return filepath.Join(string(t.PodUID), volumesDir, csiDir, t.Name)
}

// key returns the target without what is not part of the path.
func (t Target) key() Target { return Target{PodUID: t.PodUID, Name: t.Name} }

// String returns a description for logs and errors.
func (t Target) String() string {
	return t.Name + " of Pod " + string(t.PodUID)
}
