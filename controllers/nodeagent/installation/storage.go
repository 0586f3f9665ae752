package installation

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1ac "k8s.io/client-go/applyconfigurations/storage/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// csiDriver registers the driver with Kubernetes (contract 1.2). attachRequired and volumeLifecycleModes are immutable,
// so they have to be those of earlier installations, although mounts of inline volumes are refused.
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

// storageClass is the class of claims for listener volumes (contract 1.2). Nearly all of its fields are immutable, so
// they have to be those of earlier installations. Binding waits for the first Pod, because an address may be that of
// the Pod's node.
func storageClass(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	return storagev1ac.StorageClass(names.Driver).
		WithProvisioner(names.Driver).
		WithVolumeBindingMode(storagev1.VolumeBindingWaitForFirstConsumer), nil
}
