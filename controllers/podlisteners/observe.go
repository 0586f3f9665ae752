package podlisteners

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// pod returns the Pod whose uid is in the name of a PodListeners, or nil. Its name is the recorded one, or else that in
// the owner reference of the object. If a Pod of an object is not in the cache yet, it is read from the API server.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName, existing *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	var owner string
	if existing != nil && len(existing.OwnerReferences) > 0 {
		owner = existing.OwnerReferences[0].Name
	}
	uid := listenersv1alpha1.PodUID(key.Name)
	recorded, _ := r.podNames.Load(uid)
	name, _ := recorded.(string)
	name = cmp.Or(name, owner)
	if uid == "" || name == "" {
		return nil, nil //nolint:nilnil // a name that no Pod can have is not an error: the object is deleted
	}
	pod, err := lookup.WithUID(ctx, r.Client, types.NamespacedName{Namespace: key.Namespace, Name: name}, uid, &corev1.Pod{})
	if err != nil || pod != nil {
		return pod, err
	}
	// The API server does not check the names in owner references, and the client refuses to send some of them.
	if owner == "" || len(validation.IsDNS1123Subdomain(owner)) > 0 {
		return nil, nil //nolint:nilnil // as above
	}
	return lookup.WithUID(ctx, r.APIReader, types.NamespacedName{Namespace: key.Namespace, Name: owner}, uid, &corev1.Pod{})
}

// mounts returns the listener volumes of a Pod that are bound, with what decides about their addresses, and warnings
// about claims. A volume that the operator did not provision may name a Listener that cannot exist.
func (r *Reconciler) mounts(
	ctx context.Context, pod *corev1.Pod, entries map[string]listenersv1alpha1.PodListener,
) (mounts []*mount, warnings []warning, _ error) {
	volumes, err := r.volumes(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	node, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
	if err != nil {
		return nil, nil, err
	}
	for _, m := range volumes {
		if problem := claim.ListenerNameProblem(m.listenerName()); problem != "" {
			warnings = append(warnings, m.warning(listenersv1alpha1.ReasonInvalidName, actionMount, fmt.Sprintf("Volume %q is not mounted: %s", m.volume, problem)))
			continue
		}
		warnings = append(warnings, m.changedSelector())
		m.previous, m.known = entries[m.volume]
		key := types.NamespacedName{Namespace: m.claim.Namespace, Name: m.listenerName()}
		if m.listener, err = lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{}); err != nil {
			return nil, warnings, err
		}
		if m.listener != nil {
			isCopy, err := reservation.Copies(ctx, r.Client, m.listener)
			if err != nil {
				return nil, warnings, err
			}
			m.isCopy = isCopy(pod)
		}
		if err := r.observeClass(ctx, m); err != nil {
			return nil, warnings, err
		}
		if m.node = node; node != nil && r.Nodes != nil {
			published := ptr.Deref(m.listener, listenersv1alpha1.Listener{}).Status.TargetAddresses()
			m.node, _ = r.Nodes.Settle(node, exposure.AddressSet(published))
		}
		mounts = append(mounts, m)
	}
	return mounts, warnings, nil
}

// volumes returns the listener volumes of a Pod that are bound. A change of any other volume, or of its claim, is
// watched. Like the kubelet, it ignores an ephemeral claim that the Pod does not control.
func (r *Reconciler) volumes(ctx context.Context, pod *corev1.Pod) ([]*mount, error) {
	var bound []*mount
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		key := types.NamespacedName{Namespace: pod.Namespace, Name: claim.NameOf(pod, volume)}
		if key.Name == "" {
			continue
		}
		pvc, err := lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return nil, err
		}
		if pvc == nil || pvc.Spec.VolumeName == "" || volume.Ephemeral != nil && !metav1.IsControlledBy(pvc, pod) {
			continue
		}
		pv, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{})
		if err != nil {
			return nil, err
		}
		if pv == nil || !claim.IsBoundTo(pv, pvc) {
			continue
		}
		if selector, err := claim.VolumeSelector(pv); err == nil {
			m := &mount{pod: pod, volume: volume.Name, claim: pvc, pv: pv}
			m.selector, m.selectorIgnored = selector.Follow(pvc.Annotations)
			bound = append(bound, m)
		}
	}
	return bound, nil
}

// observeClass reads the class of the Listener.
func (r *Reconciler) observeClass(ctx context.Context, m *mount) (err error) {
	if m.listener == nil || m.listener.Class() == "" {
		return nil
	}
	m.class, err = lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.listener.Class()}, &listenersv1alpha1.ListenerClass{})
	if m.backend = nil; m.class != nil {
		m.backend = r.Backends.Of(m.class)
	}
	return err
}

// mountsClaims reports whether a Pod may have listener volumes.
func mountsClaims(pod *corev1.Pod) bool { return len(claim.NamesOf(pod)) > 0 }
