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

// trimmer removes from objects the fields that no controller reads, and lets equal strings and maps of different
// objects share memory. Trimming a trimmed object changes nothing.
type trimmer struct {
	// namespace is the operator's. The few Services in it are kept whole, because a controller compares them with their
	// desired state.
	namespace string
	// interned has the most recent strings, maps and parts of Pods. Objects that are added one after the other, as at
	// the start, have many in common, such as the labels of the claims of one StatefulSet.
	interned *lru.Cache
}

// internedSize is the number of strings and maps in trimmer.interned, which need about 100 KiB.
const internedSize = 1024

func newTrimmer(namespace string) *trimmer {
	return &trimmer{namespace: namespace, interned: lru.New(internedSize)}
}

// transform returns a transform for the objects of one type. keep returns the trimmed object.
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

// pod keeps what addresses depend on: volumes with claims, the ports of containers, node, phase and the labels of
// mounted Listeners. Until the Pod is bound to a node, it also keeps what decides which nodes take it, and the
// scheduler's verdict. Of a Pod without claims it keeps node and phase.
func (t *trimmer) pod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: t.metadata(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: intern(t, pod.Spec.NodeName), HostNetwork: pod.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: intern(t, pod.Status.Phase)},
	}
	if len(index.PodClaims(pod)) == 0 {
		return kept
	}
	kept.Labels = filter(pod.Labels, func(label string) bool { return strings.HasPrefix(label, names.PodMountLabelPrefix) })
	var ports []corev1.ContainerPort
	for i := range pod.Spec.Containers {
		ports = append(ports, pod.Spec.Containers[i].Ports...)
	}
	if len(ports) > 0 {
		// No controller reads which container has a port. An empty container needs 400 bytes, and replicas have equal
		// ports.
		kept.Spec.Containers = internEqual(t, "containers", []corev1.Container{{Ports: ports}})
	}
	if pod.Spec.NodeName == "" {
		t.scheduling(kept, pod)
	}
	shared := true // the volumes of replicas are equal if their names alone determine the names of the claims
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if index.ClaimName(pod, volume) == "" {
			continue
		}
		slim := corev1.Volume{Name: volume.Name}
		slim.PersistentVolumeClaim = volume.PersistentVolumeClaim
		shared = shared && volume.Ephemeral != nil
		if volume.Ephemeral != nil {
			slim.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		kept.Spec.Volumes = append(kept.Spec.Volumes, slim)
	}
	if shared {
		kept.Spec.Volumes = internEqual(t, "volumes", kept.Spec.Volumes)
	}
	return kept
}

// scheduling keeps what decides which nodes take a Pod, as far as a controller reads it.
func (t *trimmer) scheduling(kept, pod *corev1.Pod) {
	kept.Spec.NodeSelector, kept.Spec.Tolerations = pod.Spec.NodeSelector, pod.Spec.Tolerations
	if pod.Spec.Affinity != nil {
		kept.Spec.Affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
		}
	}
}

// node keeps the addresses, and what scheduling depends on: labels, taints, and whether the node is cordoned.
func (t *trimmer) node(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: t.metadata(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	kept.Labels = node.Labels
	return kept
}

// service keeps what the addresses of a Listener depend on, the controller, and a summary of the applied fields.
func (t *trimmer) service(service *corev1.Service) *corev1.Service {
	if service.Namespace == t.namespace {
		service.ManagedFields = nil
		return service
	}
	kept := &corev1.Service{
		ObjectMeta: t.metadata(&service.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type:                          intern(t, service.Spec.Type),
			Ports:                         service.Spec.Ports,
			ClusterIP:                     service.Spec.ClusterIP,
			ClusterIPs:                    service.Spec.ClusterIPs,
			ExternalTrafficPolicy:         intern(t, service.Spec.ExternalTrafficPolicy),
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

// volume keeps of a listener volume its claim, its Listener, its nodes and what its deletion depends on. Of other
// volumes it keeps the metadata only.
func (t *trimmer) volume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{ObjectMeta: t.metadata(&pv.ObjectMeta)}
	if !claim.IsListenerVolume(pv) {
		return kept
	}
	kept.Finalizers = pv.Finalizers
	kept.Labels = filter(pv.Labels, func(label string) bool {
		return label == names.LabelListenerNamespace || label == names.LabelListenerName
	})
	kept.Annotations = t.internMap(filter(pv.Annotations, func(annotation string) bool {
		return annotation == names.AnnotationNode || annotation == names.AnnotationLostSince || annotation == names.AnnotationReleasedFrom ||
			strings.HasPrefix(annotation, "pv.kubernetes.io/")
	}))
	kept.Spec = corev1.PersistentVolumeSpec{
		NodeAffinity:                  pv.Spec.NodeAffinity,
		PersistentVolumeReclaimPolicy: intern(t, pv.Spec.PersistentVolumeReclaimPolicy),
		StorageClassName:              intern(t, pv.Spec.StorageClassName),
	}
	kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{
		Driver: names.Driver, VolumeAttributes: t.internMap(filter(pv.Spec.CSI.VolumeAttributes, isSelector)),
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: intern(t, ref.Namespace), Name: ref.Name, UID: ref.UID}
	}
	kept.Status.Phase = intern(t, pv.Status.Phase)
	return kept
}

// claim keeps a claim whole until it is bound, because provisioning depends on all of it, and then its volume, its
// controller, the labels, which its Listener has, too, and of a claim of the driver its provisioner and the request to
// release its volume.
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
	kept.Labels = t.internMap(pvc.Labels)
	if claim.IsListenerClaim(pvc) {
		annotated := pvc.Annotations[names.AnnotationProvisioner] != ""
		kept.Annotations = t.internMap(filter(pvc.Annotations, func(annotation string) bool {
			return annotation == names.AnnotationProvisioner || annotation == names.AnnotationRelease || !annotated && isSelector(annotation)
		}))
	}
	return kept
}

// namespaceLabels keeps the labels.
func (t *trimmer) namespaceLabels(namespace *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	kept := &metav1.PartialObjectMetadata{TypeMeta: namespace.TypeMeta, ObjectMeta: t.metadata(&namespace.ObjectMeta)}
	kept.Labels = t.internMap(namespace.Labels)
	return kept
}

// listener keeps everything but annotations.
func (t *trimmer) listener(listener *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	kept := &listenersv1alpha1.Listener{ObjectMeta: t.metadata(&listener.ObjectMeta), Spec: listener.Spec, Status: listener.Status}
	kept.Labels = t.internMap(listener.Labels)
	kept.OwnerReferences = listener.OwnerReferences
	if kept.Status != nil {
		t.addresses(kept.Status.IngressAddresses, kept.Status.NodePorts)
		for i := range kept.Status.Conditions {
			condition := &kept.Status.Conditions[i]
			condition.Type, condition.Status, condition.Reason = intern(t, condition.Type), intern(t, condition.Status), intern(t, condition.Reason)
		}
	}
	return kept
}

// podListeners keeps everything but managed fields. The operator sets no labels, annotations and finalizers, and acts
// on those that others set.
func (t *trimmer) podListeners(mounts *listenersv1alpha1.PodListeners) *listenersv1alpha1.PodListeners {
	kept := &listenersv1alpha1.PodListeners{ObjectMeta: t.metadata(&mounts.ObjectMeta), Spec: mounts.Spec}
	kept.OwnerReferences, kept.Finalizers = mounts.OwnerReferences, mounts.Finalizers
	kept.Labels, kept.Annotations = mounts.Labels, mounts.Annotations
	kept.Spec.NodeName = intern(t, kept.Spec.NodeName)
	for _, l := range kept.Spec.Listeners {
		t.addresses(l.IngressAddresses, nil)
	}
	return kept
}

// addresses lets equal strings and ports of addresses share memory.
func (t *trimmer) addresses(addresses []listenersv1alpha1.IngressAddress, ports map[string]int32) {
	for i := range addresses {
		address := &addresses[i]
		address.Address, address.AddressType = intern(t, address.Address), intern(t, address.AddressType)
		if maps.Equal(address.Ports, ports) {
			address.Ports = ports
		}
		ports = address.Ports
	}
}

// metadata keeps the metadata that controllers read of every kind.
func (t *trimmer) metadata(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: intern(t, meta.Namespace), UID: meta.UID, ResourceVersion: meta.ResourceVersion, Generation: meta.Generation,
		DeletionTimestamp: meta.DeletionTimestamp, CreationTimestamp: meta.CreationTimestamp,
	}
}

// controller returns the owner reference of the controller of an object, or nil.
func controller(o metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// filter returns the entries whose keys pass, or nil if there are none: even an empty map needs 300 bytes.
func filter(all map[string]string, passes func(key string) bool) map[string]string {
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

// isSelector reports whether claim.ParseSelector reads this key.
func isSelector(key string) bool {
	return key == names.AnnotationListenerClass || key == names.AnnotationListenerName
}

// internMap returns a recent map that is equal to m, or m.
func (t *trimmer) internMap(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return internEqual(t, "map", m)
}

// internEqual returns a recent value of the same kind that is encoded as v is, or v.
func internEqual[T any](t *trimmer, kind string, v T) T {
	raw, err := json.Marshal(v)
	if err != nil {
		return v // encoding these types never fails
	}
	return lookup(t, kind+" "+string(raw), v)
}

// intern returns a recent string that is equal to s, or s.
func intern[T ~string](t *trimmer, s T) T {
	if s == "" {
		return s
	}
	return lookup(t, "string "+string(s), s)
}

// lookup returns the recent value of the key, or adds value as such.
func lookup[T any](t *trimmer, key string, value T) T {
	if recent, ok := t.interned.Get(key); ok {
		if recent, ok := recent.(T); ok {
			return recent
		}
	}
	t.interned.Add(key, value)
	return value
}
