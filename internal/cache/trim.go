package cache

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// trimmer makes objects small that the cache keeps many of. Whoever reads a field from the cache that is missing there
// adds it here. An object may pass more than once, and its parts may be those of others: nobody may change what is in
// the cache.
type trimmer struct {
	// namespace is the operator's own, whose few Services are kept whole: they are compared with what they should be.
	namespace string
	// alike has the strings and maps that were seen last. Objects that come one after the other, as at the start, have
	// many in common, such as the labels of a StatefulSet's claims.
	alike *lru.Cache
}

// alikeSize is how many strings and maps are remembered; about 100 KiB.
const alikeSize = 1024

func newTrimmer(namespace string) *trimmer {
	return &trimmer{namespace: namespace, alike: lru.New(alikeSize)}
}

// transform makes a transform of a function that returns the part of an object worth keeping.
func transform[T client.Object](keep func(T) T) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		object, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("trimming %T for the cache: not a %T", o, object)
		}
		return keep(object), nil
	}
}

// pod keeps what addresses depend on: volumes that are claims, the containers' ports, node, phase and the labels of
// mounted Listeners.
func (t *trimmer) pod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: t.metadata(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: text(t, pod.Spec.NodeName)},
		Status:     corev1.PodStatus{Phase: text(t, pod.Status.Phase)},
	}
	if len(index.PodClaims(pod)) == 0 {
		return kept // it is none of ours
	}
	kept.Labels = some(pod.Labels, func(label string) bool { return strings.HasPrefix(label, names.PodMountLabelPrefix) })
	var ports []corev1.ContainerPort
	for i := range pod.Spec.Containers {
		ports = append(ports, pod.Spec.Containers[i].Ports...)
	}
	if len(ports) > 0 {
		kept.Spec.Containers = []corev1.Container{{Ports: ports}} // whose they are is the same to all
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if index.ClaimName(pod, volume) == "" {
			continue
		}
		slim := corev1.Volume{Name: volume.Name}
		slim.PersistentVolumeClaim = volume.PersistentVolumeClaim
		if volume.Ephemeral != nil {
			slim.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		kept.Spec.Volumes = append(kept.Spec.Volumes, slim)
	}
	return kept
}

// node keeps the addresses, and what says which Pods may run there: labels and taints.
func (t *trimmer) node(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: t.metadata(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	kept.Labels = node.Labels
	return kept
}

// service keeps what the addresses of a Listener are made of, who controls it, and a summary of what it was applied as.
func (t *trimmer) service(service *corev1.Service) *corev1.Service {
	if service.Namespace == t.namespace {
		service.ManagedFields = nil
		return service
	}
	kept := &corev1.Service{
		ObjectMeta: t.metadata(&service.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type:                          text(t, service.Spec.Type),
			Ports:                         service.Spec.Ports,
			ClusterIP:                     service.Spec.ClusterIP,
			ClusterIPs:                    service.Spec.ClusterIPs,
			ExternalTrafficPolicy:         text(t, service.Spec.ExternalTrafficPolicy),
			LoadBalancerClass:             service.Spec.LoadBalancerClass,
			AllocateLoadBalancerNodePorts: service.Spec.AllocateLoadBalancerNodePorts,
		},
		Status: corev1.ServiceStatus{LoadBalancer: service.Status.LoadBalancer},
	}
	if kept.OwnerReferences = controller(service); len(kept.OwnerReferences) > 0 {
		apply.SummarizeService(service, names.FieldManagerService)
		kept.ManagedFields = service.ManagedFields
	}
	return kept
}

// volume keeps of ours what it is reserved for, and what decides when it is deleted; of others that they are there.
func (t *trimmer) volume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{ObjectMeta: t.metadata(&pv.ObjectMeta)}
	if !claim.IsListenerVolume(pv) {
		return kept
	}
	kept.Finalizers = pv.Finalizers
	kept.Labels = some(pv.Labels, func(label string) bool {
		return label == names.LabelListenerNamespace || label == names.LabelListenerName
	})
	kept.Annotations = t.shared(some(pv.Annotations, func(annotation string) bool {
		return annotation == names.AnnotationNode || strings.HasPrefix(annotation, "pv.kubernetes.io/")
	}))
	kept.Spec = corev1.PersistentVolumeSpec{
		NodeAffinity:                  pv.Spec.NodeAffinity,
		PersistentVolumeReclaimPolicy: text(t, pv.Spec.PersistentVolumeReclaimPolicy),
		StorageClassName:              text(t, pv.Spec.StorageClassName),
	}
	kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: names.Driver, VolumeAttributes: t.shared(some(pv.Spec.CSI.VolumeAttributes, selects)),
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: text(t, ref.Namespace), Name: ref.Name, UID: ref.UID}
	}
	kept.Status.Phase = text(t, pv.Status.Phase)
	return kept
}

// claim keeps a claim whole until it is bound, because all of it is provisioned from; and then its volume, its owner,
// and the labels that its Listener has, too.
func (t *trimmer) claim(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	if pvc.Spec.VolumeName == "" {
		pvc.ManagedFields = nil
		return pvc
	}
	kept := &corev1.PersistentVolumeClaim{
		ObjectMeta: t.metadata(&pvc.ObjectMeta),
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pvc.Spec.VolumeName},
	}
	kept.OwnerReferences = controller(pvc)
	kept.Labels = t.shared(pvc.Labels)
	return kept
}

// listener keeps all but annotations.
func (t *trimmer) listener(listener *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	kept := &listenersv1alpha1.Listener{ObjectMeta: t.metadata(&listener.ObjectMeta), Spec: listener.Spec, Status: listener.Status}
	kept.Labels = t.shared(listener.Labels)
	kept.OwnerReferences = listener.OwnerReferences
	if kept.Status != nil {
		t.addresses(kept.Status.IngressAddresses, kept.Status.NodePorts)
		for i := range kept.Status.Conditions {
			condition := &kept.Status.Conditions[i]
			condition.Type, condition.Status, condition.Reason = text(t, condition.Type), text(t, condition.Status), text(t, condition.Reason)
		}
	}
	return kept
}

// podListeners keeps all but labels and annotations.
func (t *trimmer) podListeners(mounts *listenersv1alpha1.PodListeners) *listenersv1alpha1.PodListeners {
	kept := &listenersv1alpha1.PodListeners{ObjectMeta: t.metadata(&mounts.ObjectMeta), Spec: mounts.Spec}
	kept.OwnerReferences = mounts.OwnerReferences
	kept.Spec.NodeName = text(t, kept.Spec.NodeName)
	for _, l := range kept.Spec.Listeners {
		t.addresses(l.IngressAddresses, nil)
	}
	return kept
}

// addresses has addresses share what they have in common.
func (t *trimmer) addresses(addresses []listenersv1alpha1.IngressAddress, ports map[string]int32) {
	for i := range addresses {
		address := &addresses[i]
		address.Address, address.AddressType = text(t, address.Address), text(t, address.AddressType)
		if maps.Equal(address.Ports, ports) {
			address.Ports = ports
		}
		ports = address.Ports
	}
}

// metadata keeps what is read of every kind.
func (t *trimmer) metadata(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: text(t, meta.Namespace), UID: meta.UID, ResourceVersion: meta.ResourceVersion, Generation: meta.Generation,
		DeletionTimestamp: meta.DeletionTimestamp, CreationTimestamp: meta.CreationTimestamp,
	}
}

// controller keeps of an object's owners the one that controls it.
func controller(o metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// some returns the pairs with the keys that are passed, or nil. A map takes at least 300 bytes.
func some(all map[string]string, passes func(key string) bool) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if passes(key) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// selects passes the keys of what claim.ParseSelector reads.
func selects(key string) bool {
	return key == names.AnnotationListenerClass || key == names.AnnotationListenerName
}

// shared returns an equal map that was seen before, if there is a recent one.
func (t *trimmer) shared(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return m // there are no such strings
	}
	return alike(t, "map "+string(raw), m)
}

// text returns an equal string that was seen before, if there is a recent one.
func text[T ~string](t *trimmer, s T) T {
	if s == "" {
		return s
	}
	return alike(t, "text "+string(s), s)
}

func alike[T any](t *trimmer, key string, value T) T {
	if same, ok := t.alike.Get(key); ok {
		if same, ok := same.(T); ok {
			return same
		}
	}
	t.alike.Add(key, value)
	return value
}
