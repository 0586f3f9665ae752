package certificates

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// addressesOf returns the addresses that the operator has published for the listener volumes of a Pod, or for those
// that the order names: those in PodListeners and in the status of Listeners, which only the operator can write. Nodes
// forward to any of the Pods that share a Listener. When a Listener is deleted, others may get its addresses.
func (s *Signer) addressesOf(ctx context.Context, pod *corev1.Pod, o order) (certificate.Names, error) {
	volumes, err := s.volumes(ctx, pod, o.volumes)
	if err != nil {
		return certificate.Names{}, err
	}
	own,
		err := lookup.Get(ctx, s.Client, types.NamespacedName{Namespace: pod.Namespace,
		Name: listenersv1alpha1.PodListenersName(pod.UID)}, &listenersv1alpha1.PodListeners{})
	if err != nil {
		return certificate.Names{}, err
	}
	var first, others []listenersv1alpha1.IngressAddress
	listeners := sets.New[string]()
	for _, volume := range volumes {
		entry := ptr.Deref(own, listenersv1alpha1.PodListeners{}).Spec.Listeners[volume]
		if len(entry.IngressAddresses) == 0 {
			return certificate.Names{}, wait("volume %q has no address yet", volume)
		}
		first = append(first, entry.IngressAddresses...)
		listeners.Insert(entry.ListenerName)
	}
	for _, name := range sets.List(listeners) {
		listener, err := lookup.Get(ctx, s.Client, types.NamespacedName{Namespace: pod.Namespace, Name: name},
			&listenersv1alpha1.Listener{})
		switch {
		case err != nil:
			return certificate.Names{}, err
		case listener == nil || listener.Status == nil || listener.DeletionTimestamp != nil:
			return certificate.Names{}, wait("Listener %s was deleted", name)
		}
		others = append(others, listener.Status.IngressAddresses...)
	}
	return certificate.NamesOf(first, others), nil
}

// volumes returns the names of the listener volumes of a Pod, or of the selected ones. What is no listener volume is
// known for certain once its claim is bound.
func (s *Signer) volumes(ctx context.Context, pod *corev1.Pod, selected sets.Set[string]) ([]string, error) {
	var volumes []string
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if claim.NameOf(pod, volume) == "" || selected != nil && !selected.Has(volume.Name) {
			continue
		}
		if is, err := s.isListenerVolume(ctx, pod, volume); err != nil {
			return nil, err
		} else if is {
			volumes = append(volumes, volume.Name)
		}
	}
	if missing := selected.Difference(sets.New(volumes...)); len(missing) > 0 {
		return nil, deny(certificatesv1.PodCertificateRequestConditionInvalidUserConfig,
			"userAnnotations: the Pod has no listener volume %q", sets.List(missing)[0])
	}
	if len(volumes) == 0 {
		return nil, deny(listenersv1alpha1.ReasonNoListenerVolumes,
			"the Pod has no listener volume, and so no addresses for a certificate: add a volume with a claim of the "+
				"StorageClass %s", names.Driver)
	}
	return volumes, nil
}

func (s *Signer) isListenerVolume(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (bool, error) {
	if claim.IsInline(volume) {
		return true, nil
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: claim.NameOf(pod, volume)}
	pvc, err := lookup.Get(ctx, s.Client, key, &corev1.PersistentVolumeClaim{})
	switch {
	case err != nil:
		return false, err
	case pvc == nil || volume.Ephemeral != nil && !metav1.IsControlledBy(pvc, pod):
		return false, wait("the claim %s of volume %q does not exist yet", key.Name, volume.Name)
	case claim.IsListenerClaim(pvc):
		return true, nil
	case pvc.Spec.VolumeName == "":
		return false, wait("the claim %s of volume %q is not bound yet", key.Name, volume.Name)
	}
	pv, err := lookup.Get(ctx, s.Client, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{})
	// A volume of another driver may not be in the cache, nor exist any more.
	return pv != nil && claim.IsListenerVolume(pv), err
}
