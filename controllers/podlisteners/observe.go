package podlisteners

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// mount is one listener volume of a Pod, with all that decides its addresses.
type mount struct {
	// volume is the name of the volume in the Pod.
	volume   string
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	selector claim.Selector
	// listener is nil while it does not exist.
	listener *listenersv1alpha1.Listener
	// class is nil while it does not exist, or the Listener has none.
	class *listenersv1alpha1.ListenerClass
}

func (m *mount) listenerName() string { return m.selector.ListenerName(m.claim.Name) }

func (m *mount) pinned() bool { return len(index.PinnedNodes(m.pv)) > 0 }

// listenerRef returns the Listener for an event, or a nil interface if there is none.
func (m *mount) listenerRef() runtime.Object {
	if m.listener == nil {
		return nil
	}
	return m.listener
}

// observe reads a PodListeners and its Pod. Each is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*listenersv1alpha1.PodListeners, *corev1.Pod, error) {
	hint := &listenersv1alpha1.PodListeners{}
	switch err := r.Client.Get(ctx, key, hint); {
	case apierrors.IsNotFound(err):
		hint = nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading PodListeners %s: %w", key, err)
	}
	pod, err := r.pod(ctx, key, hint)
	return hint, pod, err
}

// pod finds the Pod whose uid the name of a PodListeners carries. A Pod that the cache has not seen yet is read from the API, by the name
// in the hint's owner reference.
func (r *Reconciler) pod(ctx context.Context, key types.NamespacedName, hint *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	uid, ok := strings.CutPrefix(key.Name, listenersv1alpha1.PodListenersName(""))
	if !ok || uid == "" {
		return nil, nil //nolint:nilnil // a name that no Pod can have is not an error: its object is removed
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingFields{index.PodsByUID: uid}); err != nil {
		return nil, fmt.Errorf("finding the Pod of PodListeners %s: %w", key, err)
	}
	if len(pods.Items) > 0 {
		return &pods.Items[0], nil
	}
	if hint == nil || len(hint.OwnerReferences) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	var pod corev1.Pod
	podKey := types.NamespacedName{Namespace: key.Namespace, Name: hint.OwnerReferences[0].Name}
	switch err := r.APIReader.Get(ctx, podKey, &pod); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // as above
	case err != nil:
		return nil, fmt.Errorf("reading Pod %s: %w", podKey, err)
	case string(pod.UID) != uid:
		return nil, nil //nolint:nilnil // as above
	}
	return &pod, nil
}

// mounts returns the Pod's listener volumes that are bound. What is not known yet comes with a watch.
func (r *Reconciler) mounts(ctx context.Context, pod *corev1.Pod) ([]mount, error) {
	var mounts []mount
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		m, err := r.mount(ctx, pod, volume)
		if err != nil {
			return nil, err
		}
		if m != nil {
			mounts = append(mounts, *m)
		}
	}
	return mounts, nil
}

// mount returns a Pod's volume if it is bound to one of our PersistentVolumes, else nil.
func (r *Reconciler) mount(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (*mount, error) {
	name := index.ClaimName(pod, volume)
	if name == "" {
		return nil, nil //nolint:nilnil // most volumes are none of ours
	}
	pvc, err := get(ctx, r.Client, types.NamespacedName{Namespace: pod.Namespace, Name: name}, &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil || pvc.Spec.VolumeName == "" {
		return nil, err
	}
	if volume.Ephemeral != nil && !metav1.IsControlledBy(pvc, pod) {
		return nil, nil //nolint:nilnil // somebody else's claim, which the kubelet does not mount either
	}
	pv, err := get(ctx, r.Client, types.NamespacedName{Name: pvc.Spec.VolumeName}, &corev1.PersistentVolume{})
	if err != nil || pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != names.Driver {
		return nil, err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, nil //nolint:nilnil // bound to another claim: not this Pod's volume
	}
	selector, err := claim.VolumeSelector(pv)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // not one that we provisioned; there is no Listener to look for
	}
	m := &mount{volume: volume.Name, claim: pvc, pv: pv, selector: selector}
	return m, r.resolve(ctx, m)
}

// resolve reads the Listener and the class of a mount.
func (r *Reconciler) resolve(ctx context.Context, m *mount) error {
	var err error
	key := types.NamespacedName{Namespace: m.claim.Namespace, Name: m.listenerName()}
	if m.listener, err = get(ctx, r.Client, key, &listenersv1alpha1.Listener{}); err != nil || m.listener == nil {
		return err
	}
	if m.listener.Class() != "" {
		m.class, err = get(ctx, r.Client, types.NamespacedName{Name: m.listener.Class()}, &listenersv1alpha1.ListenerClass{})
	}
	return err
}

func (r *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	return get(ctx, r.Client, types.NamespacedName{Name: name}, &corev1.Node{})
}

// get reads an object, and returns nil if it does not exist.
func get[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, o T) (T, error) {
	var none T
	if err := reader.Get(ctx, key, o); err != nil {
		if apierrors.IsNotFound(err) {
			return none, nil
		}
		return none, fmt.Errorf("reading %T %s: %w", o, key, err)
	}
	return o, nil
}

// ensureListener makes the Listener of a class-based claim as it should be for the Pod that mounts it now: with its ports, owned
// by claim and volume. A Listener that was not made for the claim is left alone.
func (r *Reconciler) ensureListener(ctx context.Context, pod *corev1.Pod, m *mount) error {
	if m.selector.Class == "" {
		return nil
	}
	desired := claim.Listener(m.claim, m.pv, m.selector.Class, claim.PodPorts(pod))
	switch {
	case m.listener == nil:
		return r.Listeners.Apply(ctx, desired, nil)
	case m.listener.DeletionTimestamp != nil:
		return nil // it is made anew when it is gone
	case !claim.OwnedBy(m.listener, m.claim):
		r.Events.Eventf(pod, m.listener, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignListener, "Mount",
			"Listener %s exists but was not made for claim %s, and is left alone; rename one of the two", m.listener.Name, m.claim.Name)
		m.listener = nil
		return nil
	default:
		return r.Listeners.Apply(ctx, desired, m.listener)
	}
}

// entry is what the Pod is told of a volume. previous keeps its addresses while the Listener, its class or the node are not known well
// enough to say better: an address that worked is not taken away on a doubt.
func (m *mount) entry(node *corev1.Node, previous listenersv1alpha1.PodListener) listenersv1alpha1.PodListener {
	entry := listenersv1alpha1.PodListener{
		Scope:                listenersv1alpha1.ListenerScopeCluster,
		IngressAddresses:     previous.IngressAddresses,
		PersistentVolumeName: m.pv.Name,
		ListenerName:         m.listenerName(),
	}
	if previous.Scope != "" {
		entry.Scope = previous.Scope
	}
	if !m.settled() {
		return entry
	}
	status := m.listener.Status
	if status.NodePorts == nil {
		entry.Scope = listenersv1alpha1.ListenerScopeCluster
		entry.IngressAddresses = status.IngressAddresses
		return entry
	}
	entry.Scope = listenersv1alpha1.ListenerScopeNode
	if node != nil {
		if address, kind, ok := exposure.NodeAddress(node, m.class.AddressPreference()); ok {
			entry.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: address, AddressType: kind, Ports: status.NodePorts}}
		}
	}
	return entry
}

// settled tells whether the status of the Listener describes the Listener as it is now.
func (m *mount) settled() bool {
	return m.listener != nil && m.class != nil && m.listener.Status != nil &&
		m.listener.Status.ObservedGeneration == m.listener.Generation
}

// waitsFor says in the user's words why there is no address, or "" when it is only a matter of the next pass.
func (m *mount) waitsFor(node *corev1.Node) string {
	switch {
	case m.listener == nil && m.selector.Class == "":
		return "it does not exist; the mount goes on as soon as it does"
	case m.listener == nil:
		return ""
	case m.listener.Class() == "":
		return "it has no spec.className"
	case m.class == nil:
		return fmt.Sprintf("ListenerClass %q does not exist", m.listener.Class())
	case !m.settled():
		return ""
	case m.listener.Status.NodePorts != nil && node == nil:
		return "the Pod's node is not known"
	case m.listener.Status.NodePorts != nil:
		return fmt.Sprintf("node %s has neither an IP address nor a host name", node.Name)
	}
	for _, kind := range []string{listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady} {
		if c := meta.FindStatusCondition(m.listener.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return c.Message
		}
	}
	return "it has no address yet"
}

// mountsClaims tells whether a Pod has any volume that could be a listener volume.
func mountsClaims(pod *corev1.Pod) bool { return len(index.PodClaims(pod)) > 0 }

func hasMountLabel(pod *corev1.Pod) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, names.PodMountLabelPrefix) {
			return true
		}
	}
	return false
}

// missing returns the wanted pairs that an object does not have.
func missing(observed, wanted map[string]string) map[string]string {
	lacking := map[string]string{}
	for key, value := range wanted {
		if has, ok := observed[key]; !ok || has != value {
			lacking[key] = value
		}
	}
	return lacking
}

// metadataPatch is a merge patch that only applies to the object with the uid.
func metadataPatch(uid types.UID, labels, annotations map[string]string) (client.Patch, error) {
	type metadata struct {
		UID         types.UID         `json:"uid"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	raw, err := json.Marshal(map[string]any{"metadata": metadata{uid, labels, annotations}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of labels: %w", err)
	}
	return client.RawPatch(types.MergePatchType, raw), nil
}
