package nodeagent

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1ac "k8s.io/client-go/applyconfigurations/storage/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// csiDriver tells Kubernetes about the driver (contract 1.2). attachRequired and volumeLifecycleModes are immutable, so
// they have to be those of earlier installations, although inline volumes are refused at the mount.
//
// fsGroupPolicy is None, not the contract's File, which no consumer notices: with File the kubelet would change owner
// and mode of the tree while the agent replaces parts of it, and there is nothing to gain, for everyone may read all of
// it.
func csiDriver(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
	return storagev1ac.CSIDriver(names.Driver).WithSpec(storagev1ac.CSIDriverSpec().
		WithAttachRequired(false).
		WithPodInfoOnMount(true).
		WithFSGroupPolicy(storagev1.NoneFSGroupPolicy).
		WithRequiresRepublish(false).
		WithStorageCapacity(false).
		WithSELinuxMount(false).
		WithVolumeLifecycleModes(storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent)), nil
}

// storageClass is what claims name to get a listener volume (contract 1.2). Nearly all of it is immutable, so it has to
// be that of earlier installations. The volume waits for its Pod, because an address may be that of the Pod's node.
func storageClass(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
	return storagev1ac.StorageClass(names.Driver).
		WithProvisioner(names.Driver).
		WithVolumeBindingMode(storagev1.VolumeBindingWaitForFirstConsumer), nil
}
