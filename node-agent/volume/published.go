package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/internal/names"
)

// maxRecord is the maximum size of the kubelet's record of a volume, in bytes. Real records have less than one KiB.
const maxRecord = 64 << 10

// Published is a published volume.
type Published struct {
	Target
	// ID is the CSI volume id: the name of the PersistentVolume, unless the volume is inline.
	ID string
	// Inline states that the volume has no PersistentVolume, but is a part of its Pod.
	Inline bool
}

// Published returns a Pod's published volumes of this driver. It reads the kubelet's records, so that the node agent
// needs no state of its own. It leaves out volumes that do not exist. The namespace is that of the last write; it is ""
// for a volume that Stackable's listener operator wrote, or whose content the Pod has deleted. A Pod can falsify it
// only for its own volumes.
func (h *Host) Published(pod types.UID) ([]Published, error) {
	pods, err := os.OpenRoot(h.pods)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of Pods: %w", err)
	}
	defer pods.Close()
	entries, err := fs.ReadDir(pods.FS(), path.Join(string(pod), volumesDir, csiDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the volumes of Pod %s: %w", pod, err)
	}
	var volumes []Published
	for _, entry := range entries {
		target := Target{PodUID: pod, Name: entry.Name()}
		record := readRecord(pods, path.Join(target.parent(), recordFile))
		if record.Driver != names.Driver || record.Handle == "" {
			continue
		}
		if namespace, exists := h.namespace(target); exists {
			target.Namespace = namespace
			volumes = append(volumes, Published{Target: target, ID: record.Handle,
				Inline: record.Mode == string(storagev1.VolumeLifecycleEphemeral)})
		}
	}
	return volumes, nil
}

// namespace returns the namespace of the last write to a volume, and whether the volume exists.
func (h *Host) namespace(target Target) (string, bool) {
	mount, err := h.open(target, false)
	if err != nil {
		return "", false
	}
	defer mount.Close()
	generation := currentGeneration(mount)
	if own, ok := h.visible.Load(target.key()); ok && own != "" {
		generation = own.(string) // whatever the link leads to now
	}
	return namespaceOf(generation), true
}

// record is the kubelet's record of a volume.
type record struct {
	Driver string `json:"driverName"`
	Handle string `json:"volumeHandle"`
	Mode   string `json:"volumeLifecycleMode"`
}

// readRecord reads a record, which is empty if it cannot be read.
func readRecord(root *os.Root, name string) (r record) {
	f, err := root.Open(name)
	if err != nil {
		return record{}
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxRecord)).Decode(&r); err != nil {
		return record{}
	}
	return r
}
