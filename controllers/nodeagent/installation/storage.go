package installation

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1ac "k8s.io/client-go/applyconfigurations/storage/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// csiDriver registers the driver with Kubernetes (contract: names and constants). attachRequired and
// volumeLifecycleModes are immutable, so they have to be those of earlier installations, although mounts of inline
// volumes are refused.
//
// fsGroupPolicy is None, not the contract's File, which no consumer notices: with File the kubelet would change owner
// and mode of the files while the agent replaces some of them, without any benefit, because all files are readable by
// every user.
func csiDriver(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return storagev1ac.CSIDriver(names.Driver).WithSpec(storagev1ac.CSIDriverSpec().
		WithAttachRequired(false).
		WithPodInfoOnMount(true).
		WithFSGroupPolicy(storagev1.NoneFSGroupPolicy).
		WithRequiresRepublish(false).
		WithStorageCapacity(false).
		WithSELinuxMount(false).
		WithVolumeLifecycleModes(storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent)), nil
}

// storageClass is the class of claims for listener volumes (contract: names and constants). Volumes are bound at once:
// a class that waits for the first Pod makes the scheduler wait for the volume, which it checks once a second. A volume
// is pinned to a node when its Pod has been bound to it, see controllers/podlisteners.
func storageClass(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return storagev1ac.StorageClass(names.Driver).
		WithProvisioner(names.Driver).
		WithVolumeBindingMode(storagev1.VolumeBindingImmediate), nil
}

// storageClassImmutable reports whether a StorageClass cannot be updated to the desired one, as those of Stackable's
// listener operator.
func storageClassImmutable(observed Object) bool {
	class, ok := observed.(*storagev1.StorageClass)
	return ok && class.Provisioner == names.Driver && (len(class.Parameters) > 0 ||
		ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) != corev1.PersistentVolumeReclaimDelete ||
		ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate)
}
