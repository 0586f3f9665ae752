// Package cache decides what the operator keeps in memory of the objects in the cluster, and so what its controllers
// can see. It watches all Pods, Nodes, PersistentVolumeClaims, PersistentVolumes and Services. A large cluster has many
// of these, so it keeps of each only the fields that a controller reads, and of what tenants write no more than a
// limit. A field that is missing from the cache reads as empty: to read another one, add it to the transform of its
// kind.
//
// Tests of controllers read what this cache keeps: API-server tests start their managers with Options, and unit tests
// read through its transforms (fakeclient.Cached). The indexes of the cache are in package index, and the caches of
// optional kinds in package platform. The package must never drop a field that a controller reads.
package cache

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Options returns the options of the cache of an operator in this namespace.
func Options(namespace string) ctrlcache.Options {
	byObject := map[client.Object]ctrlcache.ByObject{
		// Large clusters have many objects of these kinds.
		&corev1.Pod{}:  {Transform: transform(Pod)},
		&corev1.Node{}: {Transform: transform(trimNode)},
		&corev1.Service{}: {Transform: bounded(4*maxObject, func(s *corev1.Service) *corev1.Service {
			return trimService(s, namespace)
		})},
		&corev1.PersistentVolume{}:      {Transform: transform(trimVolume)},
		&corev1.PersistentVolumeClaim{}: {Transform: bounded(maxObject, trimClaim)},
		tenancy.Namespace(): {Transform: transform(func(n *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{TypeMeta: n.TypeMeta, ObjectMeta: trimMetadata(n, nil, n.Labels)}
		})},
		&listenersv1alpha1.PodListeners{}: {Transform: transform(trimPodListeners)},
		&listenersv1alpha1.Listener{}:     {Transform: transform(trimListener)},

		// In all namespaces: an installation in another namespace has one, too.
		&appsv1.DaemonSet{}: {
			Field:     fields.OneTermEqualSelector("metadata.name", names.NodeAgent),
			Transform: bounded(maxObject, whole[*appsv1.DaemonSet]),
		},
		&networkingv1.NetworkPolicy{}: {
			Transform: bounded(4*maxObject, func(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
				return trimPolicy(p, namespace)
			}),
		},
		// What clients of each namespace have to trust.
		&corev1.ConfigMap{}: {
			Field:     fields.OneTermEqualSelector("metadata.name", names.CertificateAuthorityConfigMap),
			Transform: bounded(maxObject, whole[*corev1.ConfigMap]),
		},
		// Without its data, which nothing may keep.
		lookup.Metadata(corev1.SchemeGroupVersion.WithKind(
			"Secret")): {Namespaces: map[string]ctrlcache.Config{namespace: {
			FieldSelector: fields.OneTermEqualSelector("metadata.name", names.CertificateAuthoritySecret),
		}}},
		// The operator's own only.
		&appsv1.Deployment{}: {Namespaces: map[string]ctrlcache.Config{namespace: {
			FieldSelector: fields.OneTermEqualSelector("metadata.name", names.Operator),
		}}},
	}
	return ctrlcache.Options{DefaultTransform: ctrlcache.TransformStripManagedFields(), ByObject: byObject}
}

// transform returns a transform for the objects of one type. keep returns an object without the fields that no
// controller reads, and changes nothing in one that it returned.
func transform[T client.Object](keep func(T) T) toolscache.TransformFunc {
	return func(o any) (any, error) {
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		return keep(o.(T)), nil
	}
}

// bounded is transform with a limit of the bytes of what is kept.
func bounded[T client.Object](limit int, keep func(T) T) toolscache.TransformFunc {
	return transform(func(o T) T {
		kept := keep(o)
		bound(kept, limit)
		return kept
	})
}

func whole[T client.Object](o T) T {
	o.SetManagedFields(nil)
	return o
}

// Pod returns what the cache keeps of a Pod that was read from the API server.
func Pod(pod *corev1.Pod) *corev1.Pod {
	kept := trimPod(pod)
	bound(kept, maxObject)
	return kept
}

// trimPod keeps what addresses depend on: volumes with claims and inline ones, the ports of containers, node, phase,
// start and the labels; what restarts depend on: the controller, and whether the Pod is ready; and what copies have of
// another Pod. Before the Pod is bound to a node, it keeps what scheduling depends on, and its verdict. Of a Pod
// without claims it keeps node and phase, of a node agent what a rollout depends on, and of a Pod of Stackable's
// operator what it is recognized by.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: trimMetadata(pod, nil, nil),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if stackable.Resembles(pod) {
		stackable.Keep(kept, pod)
	}
	if names.IsNodeAgent(pod) {
		kept.OwnerReferences, kept.Labels = controller(pod), filter(pod.Labels, names.LabelTemplateGeneration)
		kept.Status.Conditions = condition(pod, corev1.PodReady)
	}
	volumes, beyond := claim.Volumes(pod)
	if len(volumes) == 0 {
		return kept
	}
	kept.Labels, kept.OwnerReferences, kept.GenerateName = pod.Labels, controller(pod), pod.GenerateName
	kept.Status.StartTime = pod.Status.StartTime
	keepMounts(kept, pod, volumes)
	keepPorts(kept, pod)
	if slices.ContainsFunc(kept.Spec.Volumes, func(v corev1.Volume) bool { return claim.IsInline(&v) }) {
		kept.Spec.Hostname = pod.Spec.Hostname
		if token := claim.TokenVolume(pod); token != "" {
			kept.Spec.Volumes = append(kept.Spec.Volumes, corev1.Volume{Name: token})
		}
	}
	if beyond != nil { // a warning names it
		kept.Spec.Volumes = append(kept.Spec.Volumes, slimVolume(beyond))
	}
	if pod.Spec.NodeName == "" {
		kept.Spec.NodeSelector, kept.Spec.Tolerations = pod.Spec.NodeSelector, pod.Spec.Tolerations
		if pod.Spec.Affinity != nil {
			kept.Spec.Affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
		}
		kept.Status.Conditions = condition(pod, corev1.PodScheduled)
	} else if claim.PodReady(pod) {
		kept.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return kept
}

// condition returns a condition of a Pod, without its probes, if it has one of this type.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) (conditions []corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return conditions
}

// slimVolume returns a volume without what no controller reads.
func slimVolume(volume *corev1.Volume) corev1.Volume {
	slim := corev1.Volume{Name: volume.Name}
	slim.PersistentVolumeClaim = volume.PersistentVolumeClaim
	if claim.IsInline(volume) {
		slim.CSI = &corev1.CSIVolumeSource{Driver: names.Driver, VolumeAttributes: volume.CSI.VolumeAttributes}
	}
	if volume.Ephemeral != nil {
		slim.Ephemeral = &corev1.EphemeralVolumeSource{}
	}
	return slim
}

// keepMounts keeps volumes, which containers mount them, and how often those that started restarted.
func keepMounts(kept, pod *corev1.Pod, volumes []*corev1.Volume) {
	restarts, isKept := map[string]int32{}, sets.New[string]()
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		restarts[status.Name] = status.RestartCount
	}
	for _, volume := range volumes {
		isKept.Insert(volume.Name)
		kept.Spec.Volumes = append(kept.Spec.Volumes, slimVolume(volume))
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		slim, mounted := corev1.Container{Name: container.Name}, sets.New[string]()
		for _, m := range container.VolumeMounts {
			if isKept.Has(m.Name) && !mounted.Has(m.Name) { // it may be mounted several times
				mounted.Insert(m.Name)
				slim.VolumeMounts = append(slim.VolumeMounts, corev1.VolumeMount{Name: m.Name})
			}
		}
		if count, started := restarts[slim.Name]; started && len(slim.VolumeMounts) > 0 {
			kept.Spec.Containers = append(kept.Spec.Containers, slim)
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: slim.Name, RestartCount: count})
		}
	}
}

// keepPorts keeps all ports, and which of them are those of sidecars. No controller reads which container has a port.
func keepPorts(kept, pod *corev1.Pod) {
	sidecars, ports := claim.SidecarPorts(pod), claim.ContainerPorts(pod)
	if ports = ports[:len(ports)-len(sidecars)]; len(ports) > 0 {
		if len(kept.Spec.Containers) == 0 {
			kept.Spec.Containers = []corev1.Container{{}}
		}
		kept.Spec.Containers[0].Ports = ports
	}
	if len(sidecars) > 0 {
		kept.Spec.InitContainers = []corev1.Container{{Ports: sidecars,
			RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	}
}

// trimNode keeps the addresses, the annotation that overrides them, since when the node is ready or not, and what
// scheduling depends on: labels, taints, and whether the node is cordoned.
func trimNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: trimMetadata(node, nil, node.Labels, names.AnnotationAdvertisedAddress),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status,
				LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return kept
}

// trimPodListeners keeps all, because the operator acts on labels and the like that others set.
func trimPodListeners(l *listenersv1alpha1.PodListeners) *listenersv1alpha1.PodListeners {
	for volume, entry := range l.Spec.Listeners {
		sharePorts(sharePorts(nil, entry.IngressAddresses), l.Spec.StartAddresses[volume])
	}
	return whole(l)
}

// sharePorts keeps equal ports once, which mostly are all ports of a volume or Listener. last are those of the address
// before, and the result those of the last address.
func sharePorts(last map[string]int32, addresses []listenersv1alpha1.IngressAddress) map[string]int32 {
	for i := range addresses {
		ports := addresses[i].Ports
		if !maps.Equal(last, ports) {
			last = ports
		} else if reflect.ValueOf(last).Pointer() != reflect.ValueOf(ports).Pointer() {
			addresses[i].Ports = last
		}
	}
	return last
}

// trimListener keeps all except annotations of others. Status is the operator's own.
func trimListener(l *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	kept := &listenersv1alpha1.Listener{
		ObjectMeta: trimMetadata(l, l.OwnerReferences, l.Labels, names.AnnotationClaim, names.AnnotationKeptFor,
			names.AnnotationNumbers),
		Spec: l.Spec, Status: l.Status,
	}
	if l.Status != nil {
		sharePorts(nil, l.Status.IngressAddresses)
	}
	bound(&kept.ObjectMeta, maxObject)
	bound(&kept.Spec, 2*maxObject)
	return kept
}

// trimService keeps what the addresses of a Listener depend on, the controller, and a summary of the applied fields.
// Services in the operator's namespace are kept whole, because a controller compares them with their desired state.
func trimService(service *corev1.Service, operator string) *corev1.Service {
	if service.Namespace == operator {
		service.ManagedFields = nil
		return service
	}
	kept := &corev1.Service{
		ObjectMeta: trimMetadata(service, controller(service), nil),
		Spec: corev1.ServiceSpec{
			Type: service.Spec.Type, Ports: service.Spec.Ports,
			ExternalTrafficPolicy: service.Spec.ExternalTrafficPolicy,
			ClusterIP:             service.Spec.ClusterIP, ClusterIPs: service.Spec.ClusterIPs,
			IPFamilies:                    service.Spec.IPFamilies,
			LoadBalancerClass:             service.Spec.LoadBalancerClass,
			HealthCheckNodePort:           service.Spec.HealthCheckNodePort,
			AllocateLoadBalancerNodePorts: service.Spec.AllocateLoadBalancerNodePorts,
		},
		Status: service.Status,
	}
	if len(kept.OwnerReferences) > 0 {
		kept.Annotations = filter(service.Annotations, names.AnnotationHostname, names.AnnotationPod)
		apply.SummarizeService(service, names.FieldManagerService)
		kept.ManagedFields = service.ManagedFields
	} else if exposure.RestoredFor(service) != "" {
		kept.Labels = service.Labels
	}
	return kept
}

// trimPolicy keeps of a NetworkPolicy of another namespace, unless it belongs to a Listener, which Pods it selects.
func trimPolicy(policy *networkingv1.NetworkPolicy, operator string) *networkingv1.NetworkPolicy {
	if policy.Namespace != operator {
		policy.Spec.PodSelector = exposure.BoundSelector(policy.Spec.PodSelector)
	}
	if policy.Namespace == operator || exposure.IsClientPolicy(policy) {
		policy.ManagedFields = nil
		return policy
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: trimMetadata(policy, controller(policy), nil),
		Spec: networkingv1.NetworkPolicySpec{PodSelector: policy.Spec.PodSelector,
			PolicyTypes: policy.Spec.PolicyTypes},
	}
}

// trimVolume keeps of a listener volume its claim, its Listener, its nodes and what its deletion depends on.
func trimVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if !claim.IsListenerVolume(pv) {
		return &corev1.PersistentVolume{ObjectMeta: trimMetadata(pv, nil, nil)}
	}
	kept := &corev1.PersistentVolume{
		ObjectMeta: trimMetadata(pv, nil, filter(pv.Labels, names.LabelListenerNamespace, names.LabelListenerName),
			names.AnnotationNode, names.AnnotationLostSince, names.AnnotationReleasedFrom, names.AnnotationReminded,
			"pv.kubernetes.io/"),
		Spec: corev1.PersistentVolumeSpec{
			NodeAffinity: pv.Spec.NodeAffinity, StorageClassName: pv.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: pv.Spec.PersistentVolumeReclaimPolicy,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, // claim.ParseSelector reads the attributes
				VolumeAttributes: filter(pv.Spec.CSI.VolumeAttributes, names.AnnotationListenerClass,
					names.AnnotationListenerName),
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: pv.Status.Phase},
	}
	kept.Finalizers = pv.Finalizers
	if ref := pv.Spec.ClaimRef; ref != nil {
		kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	return kept
}

// trimClaim keeps a claim whole until it is bound, because provisioning depends on all of it, and then its volume, its
// controller, the labels, which its Listener has, too, and of a claim of the driver its provisioner, its class or
// Listener, the ports that it lists, and the request to release its volume.
func trimClaim(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	annotations := []string{
		names.AnnotationProvisioner, names.AnnotationRelease, names.AnnotationPorts,
		names.AnnotationListenerClass, names.AnnotationListenerName,
	}
	if pvc.Spec.VolumeName == "" {
		// No volume with so large an annotation can be mounted.
		maps.DeleteFunc(pvc.Annotations, func(key, value string) bool {
			return len(value) > maxText && !slices.Contains(annotations, key)
		})
		pvc.ManagedFields = nil
		return pvc
	}
	if !claim.IsListenerClaim(pvc) {
		annotations = nil
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: trimMetadata(pvc, controller(pvc), pvc.Labels, annotations...),
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pvc.Spec.VolumeName},
	}
}

// trimMetadata returns the metadata that controllers read of every kind, with these owners, labels and annotations.
func trimMetadata(o metav1.Object, owners []metav1.OwnerReference, labels map[string]string,
	annotations ...string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Generation:        o.GetGeneration(),
		DeletionTimestamp: o.GetDeletionTimestamp(), CreationTimestamp: o.GetCreationTimestamp(),
		OwnerReferences: owners, Labels: labels, Annotations: filter(o.GetAnnotations(), annotations...),
	}
}

func controller(o metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

// filter returns the entries with these keys, or nil if there are none. A key that ends with a slash is a prefix.
func filter(all map[string]string, keys ...string) (kept map[string]string) {
	for key, value := range all {
		if slices.ContainsFunc(keys, func(k string) bool {
			return key == k || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
		}) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}
