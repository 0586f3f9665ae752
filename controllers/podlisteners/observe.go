package podlisteners

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
)

// observe reads a PodListeners and its Pod. Either is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*listenersv1alpha1.PodListeners, *corev1.Pod, error) {
	existing, err := lookup.Get(ctx, r.Client, key, &listenersv1alpha1.PodListeners{})
	if err != nil {
		return nil, nil, err
	}
	pod, err := r.pod(ctx, key, existing)
	return existing, pod, err
}

// pod returns the Pod whose uid is in the name of a PodListeners, or nil. Its name is the recorded one, or else that in
// the owner reference of the object. If a Pod of an object is not in the cache yet, it is read from the API server.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName, existing *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	uid := listenersv1alpha1.PodUID(key.Name)
	if uid == "" {
		return nil, nil //nolint:nilnil // a name that no Pod can have is not an error: the object is deleted
	}
	var owner string
	if existing != nil && len(existing.OwnerReferences) > 0 {
		owner = existing.OwnerReferences[0].Name
	}
	name := cmp.Or(r.pods.name(uid), owner)
	if name == "" {
		return nil, nil //nolint:nilnil // as above
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

// podNames has the names of the Pods with claims that the reconciler has seen in the cache, by uid. An index of the
// cache would need ten times its memory. It is safe for concurrent use.
type podNames struct {
	mu    sync.Mutex
	names map[types.UID]string
}

func (p *podNames) record(pod client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[types.UID]string{}
	}
	p.names[pod.GetUID()] = pod.GetName()
}

// name returns the name of a Pod, or "" if it is not known.
func (p *podNames) name(uid types.UID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[uid]
}

func (p *podNames) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, uid)
}

// mounts returns the listener volumes of a Pod that are bound. A change of any other volume is watched. A volume that
// the operator did not provision may name a Listener that cannot exist, which an event reports.
func (r *Reconciler) mounts(ctx context.Context, pod *corev1.Pod) ([]mount, error) {
	var mounts []mount
	for i := range pod.Spec.Volumes {
		m := mount{volume: pod.Spec.Volumes[i].Name}
		found, err := r.observeVolume(ctx, &m, pod, &pod.Spec.Volumes[i])
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if problem := claim.ListenerNameProblem(m.listenerName()); problem != "" {
			r.emitEvent(pod, &m, listenersv1alpha1.ReasonInvalidName, actionMount, fmt.Sprintf("Volume %q is not mounted: %s", m.volume, problem))
			continue
		}
		if text := m.changedSelector(); r.warningDue(pod, &m, listenersv1alpha1.ReasonSelectorChanged, text) {
			r.Events.Eventf(m.claim, pod, corev1.EventTypeWarning, listenersv1alpha1.ReasonSelectorChanged, actionMount, "%s", message.Printable(text, message.MaxEvent))
		}
		if err := r.observeListener(ctx, &m); err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// observeVolume reads the claim and the PersistentVolume of a Pod's volume. It reports whether that is a bound listener
// volume.
func (r *Reconciler) observeVolume(ctx context.Context, m *mount, pod *corev1.Pod, volume *corev1.Volume) (bool, error) {
	name := index.ClaimName(pod, volume)
	if name == "" {
		return false, nil
	}
	var err error
	key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
	if m.claim, err = lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{}); err != nil || m.claim == nil {
		return false, err
	}
	if m.claim.Spec.VolumeName == "" {
		return false, nil // the change of the claim is watched
	}
	if m.pv, err = lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.claim.Spec.VolumeName}, &corev1.PersistentVolume{}); err != nil || m.pv == nil {
		return false, err
	}
	// Like the kubelet, ignore an ephemeral claim that the Pod does not control.
	own := volume.Ephemeral == nil || metav1.IsControlledBy(m.claim, pod)
	return own && m.readSelector(), nil
}

// observeListener reads the Listener and the class of a mount.
func (r *Reconciler) observeListener(ctx context.Context, m *mount) error {
	var err error
	key := types.NamespacedName{Namespace: m.claim.Namespace, Name: m.listenerName()}
	if m.listener, err = lookup.Get(ctx, r.Client, key, &listenersv1alpha1.Listener{}); err != nil {
		return err
	}
	return r.observeClass(ctx, m)
}

// observeClass reads the class of the Listener of a mount.
func (r *Reconciler) observeClass(ctx context.Context, m *mount) (err error) {
	if m.listener == nil || m.listener.Class() == "" {
		return nil
	}
	m.class, err = lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.listener.Class()}, &listenersv1alpha1.ListenerClass{})
	if m.class != nil {
		m.backend = r.Backends.Of(m.class)
	}
	return err
}

func (r *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	return lookup.Get(ctx, r.Client, types.NamespacedName{Name: name}, &corev1.Node{})
}

// mountsClaims reports whether a Pod has a volume that may be a listener volume.
func mountsClaims(pod *corev1.Pod) bool { return len(index.PodClaims(pod)) > 0 }
