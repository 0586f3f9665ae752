package podlisteners

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// pod returns the Pod whose uid is in the name of a PodListeners, or nil. Its name is the recorded one, or else that in
// the owner reference of the object. If a Pod of an object is not in the cache yet, it is read from the API server.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName,
	existing *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	var owner string
	if existing != nil && len(existing.OwnerReferences) > 0 {
		owner = existing.OwnerReferences[0].Name
	}
	uid := listenersv1alpha1.PodUID(key.Name)
	recorded, _ := r.podNames.Load(uid)
	name, _ := recorded.(string)
	pod, err := lookup.WithUID(ctx, r.Client, types.NamespacedName{Namespace: key.Namespace, Name: cmp.Or(name, owner)},
		uid, &corev1.Pod{})
	if err != nil || pod != nil {
		return pod, err
	}
	// The API server does not check the names in owner references, and the client refuses to send some of them.
	if owner == "" || len(validation.IsDNS1123Subdomain(owner)) > 0 {
		return nil, nil //nolint:nilnil // a name that no Pod can have is not an error: the object is deleted
	}
	return lookup.WithUID(ctx, r.APIReader, types.NamespacedName{Namespace: key.Namespace, Name: owner}, uid,
		&corev1.Pod{})
}

// observe returns the mounts of a Pod's listener volumes, and warns about volumes and claims.
func (r *Reconciler) observe(ctx context.Context, p *pass) (mounts []*mount, _ error) {
	node, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: p.pod.Spec.NodeName}, &corev1.Node{})
	if err != nil {
		return nil, err
	}
	volumes, _ := claim.Volumes(p.pod)
	for _, volume := range volumes {
		m, err := r.observeVolume(ctx, p, volume)
		if err != nil {
			return nil, err
		}
		if m != nil {
			r.observeNode(m, node)
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

// observeVolume returns the mount of a volume, or nil if it is not a listener volume, not bound, or cannot be mounted:
// a volume that the operator did not provision may name a Listener that cannot exist.
func (r *Reconciler) observeVolume(ctx context.Context, p *pass, volume *corev1.Volume) (*mount, error) {
	m, err := r.requested(ctx, p, volume)
	if err != nil || m == nil {
		return nil, err
	}
	if err := r.observeListener(ctx, m); err != nil {
		return nil, err
	}
	if m.isCopy {
		return m, r.observeClass(ctx, m)
	}
	if refused, err := r.refused(ctx, m); err != nil || refused {
		return nil, err
	}
	if m.listener != nil {
		isCopy, err := reservation.Copies(ctx, r.Client, m.listener)
		if err != nil {
			return nil, err
		}
		m.isCopy = isCopy(m.pod)
	}
	return m, r.observeClass(ctx, m)
}

// requested returns a mount with what its volume requests, which is at least what the Pod was given, or nil.
func (r *Reconciler) requested(ctx context.Context, p *pass, volume *corev1.Volume) (*mount, error) {
	if claim.IsInline(volume) {
		m := &mount{pass: p, volume: volume.Name, request: claim.OfInline(p.pod, volume), object: p.pod}
		m.selector, _ = claim.ParseSelector(m.request.Annotations)
		return m, r.observeOriginal(ctx, m)
	}
	m, err := r.bound(ctx, p, volume)
	if err != nil || m != nil || !p.has.Admitted(volume.Name) {
		return m, err
	}
	entry := p.has.Listeners[volume.Name]
	if entry.ListenerName == "" || entry.PersistentVolumeName == "" {
		return nil, nil //nolint:nilnil // as lookup
	}
	pvc, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	pvc.Namespace, pvc.Name, pv.Name = p.pod.Namespace, claim.NameOf(p.pod, volume), entry.PersistentVolumeName
	return mountOf(p, volume, pvc, pv, claim.Selector{Listener: entry.ListenerName}), nil
}

// bound returns the mount of a claim that is bound to a listener volume, or nil. Changes of others, or of their claims,
// are watched. Like the kubelet, it ignores an ephemeral claim that the Pod does not control.
func (r *Reconciler) bound(ctx context.Context, p *pass, volume *corev1.Volume) (*mount, error) {
	key := types.NamespacedName{Namespace: p.pod.Namespace, Name: claim.NameOf(p.pod, volume)}
	pvc, err := lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil || pvc.Spec.VolumeName == "" ||
		volume.Ephemeral != nil && !metav1.IsControlledBy(pvc, p.pod) {
		return nil, err
	}
	pv, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{})
	if err != nil || pv == nil || !claim.IsBoundTo(pv, pvc) {
		return nil, err
	}
	selector, err := claim.VolumeSelector(pv)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is not one of the operator
	}
	selector, ignored := selector.Follow(pvc.Annotations)
	m := mountOf(p, volume, pvc, pv, selector)
	if ignored {
		m.warnSelector()
	}
	return m, nil
}

// observeOriginal lets the inline volume of a copy use the Listener of the Pod that it is a copy of, as a claim does,
// also after that Pod. A volume that has addresses of its own is none.
func (r *Reconciler) observeOriginal(ctx context.Context, m *mount) error {
	if slices.Contains(m.has.Copies, m.volume) {
		m.isCopy, m.selector = true, claim.Selector{Listener: m.has.Listeners[m.volume].ListenerName}
		return nil
	}
	if m.selector.Class == "" || m.has.Admitted(m.volume) || metav1.GetControllerOf(m.pod) != nil {
		return nil
	}
	var pods corev1.PodList
	if token := claim.TokenVolume(m.pod); token != "" {
		index.List(ctx, r.Client, &pods, client.InNamespace(m.pod.Namespace),
			client.MatchingFields{index.PodsByInline: index.Token(token)})
	}
	host, err := lookup.Get(ctx, r.Client, types.NamespacedName{Namespace: m.pod.Namespace, Name: m.pod.Spec.Hostname},
		&corev1.Pod{})
	if host != nil {
		pods.Items = append(pods.Items, *host)
	}
	for i := range pods.Items {
		volumes, _ := claim.Volumes(&pods.Items[i])
		of := func(v *corev1.Volume) bool { return v.Name == m.volume && claim.IsInline(v) }
		if v := slices.IndexFunc(volumes, of); v >= 0 && claim.IsCopy(m.pod, &pods.Items[i]) {
			m.isCopy, m.selector = true, claim.Selector{Listener: claim.NameOf(&pods.Items[i], volumes[v])}
		}
	}
	return err
}

// observeListener adds the Listener, and what the Pod has of it.
func (r *Reconciler) observeListener(ctx context.Context, m *mount) (err error) {
	if m.listener, err = lookup.Get(ctx, r.Client, m.listenerKey(), &listenersv1alpha1.Listener{}); err != nil {
		return err
	}
	var known bool
	m.previous, known = m.has.Listeners[m.volume]
	m.isNew = !known && (m.listener == nil ||
		m.pod.Labels[names.PodMountLabel(m.listener.UID)] != names.ListenerLabel(m.listener.Name))
	m.admitted = m.has.Admitted(m.volume) ||
		m.request.Inline && m.listener != nil && claim.HasOwner(m.listener, m.pod.UID)
	return nil
}

func (r *Reconciler) refused(ctx context.Context, m *mount) (bool, error) {
	reason, problem := listenersv1alpha1.ReasonInvalidName, claim.ListenerNameProblem(m.listenerName())
	if m.request.Inline {
		ofInline, err := r.inlineProblem(ctx, m)
		if err != nil {
			return false, err
		}
		if ofInline != "" {
			reason, problem = listenersv1alpha1.ReasonInvalidVolume, ofInline
		}
	}
	return problem != "" && m.refuse(reason, problem), nil
}

// inlineProblem returns why an inline volume cannot be mounted, or "".
func (r *Reconciler) inlineProblem(ctx context.Context, m *mount) (string, error) {
	if problem := m.request.InlineProblem(m.pod, m.listener); problem != "" {
		return problem, nil
	}
	class, err := r.class(ctx, cmp.Or(m.selector.Class, m.listener.Class()))
	if err != nil || class == nil {
		return "", err
	}
	return m.classProblem(class), nil
}

// classProblem returns why an inline volume cannot be mounted with a class, or "".
func (m *mount) classProblem(class *listenersv1alpha1.ListenerClass) string {
	ports, problem := m.request.Ports(m.pod)
	switch pinning := class.Pinning(); {
	case pinning != nil && pinning.Policy == listenersv1alpha1.PinningPolicyRequired:
		return fmt.Sprintf("ListenerClass %s pins volumes to nodes, which needs a claim; use one in place of the "+
			"inline volume, or name another class", class.Name)
	case m.selector.Class == "":
		return ""
	case class.Spec.InlineVolumes == listenersv1alpha1.InlineVolumePolicyForbidden:
		return fmt.Sprintf("ListenerClass %s allows no inline volumes; use a claim in place of the inline volume, or "+
			"name another class", class.Name)
	case problem != "":
		return problem
	case len(ports) == 0 && !exposure.AddsPorts(class):
		return fmt.Sprintf("no container of Pod %s has a port that could be exposed; add ports to its containers",
			m.pod.Name)
	default:
		return ""
	}
}

func (r *Reconciler) observeClass(ctx context.Context, m *mount) (err error) {
	m.class, err = r.class(ctx, m.listener.Class())
	if m.backend = nil; m.class != nil {
		m.backend = r.Backends.Of(m.class)
	}
	return err
}

func (r *Reconciler) class(ctx context.Context, name string) (*listenersv1alpha1.ListenerClass, error) {
	return lookup.Get(ctx, r.Client, types.NamespacedName{Name: name}, &listenersv1alpha1.ListenerClass{})
}

// observeNode adds the node of the Pod, which may be nil, with the addresses that the Listener follows by now.
func (r *Reconciler) observeNode(m *mount, node *corev1.Node) {
	if node == nil {
		return
	}
	published := ptr.Deref(m.listener, listenersv1alpha1.Listener{}).Status.TargetAddresses()
	var settles time.Duration
	m.node, settles = r.Nodes.Settle(node, exposure.AddressSet(published))
	if m.class == nil { // otherwise, the Listener changes then
		m.again.Add(settles, "the node reports other addresses")
	}
}
