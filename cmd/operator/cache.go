package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// cacheOptions keeps the operator's memory small in a large cluster: it watches all Pods, Nodes and claims, but keeps of each only
// what its controllers read.
func cacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Transform: trim(trimPod)},
			&corev1.Node{}:      {Transform: trim(trimNode)},
			&appsv1.DaemonSet{}: {Namespaces: map[string]cache.Config{namespace: {}}},

			&networkingv1.NetworkPolicy{}: {Namespaces: map[string]cache.Config{namespace: {}}},
			// The operator's own, and no other.
			&appsv1.Deployment{}: {Namespaces: map[string]cache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", names.Operator),
			}}},
		},
	}
}

// trim makes a transform of a function that returns the part of an object worth keeping.
func trim[T client.Object](keep func(T) T) toolscache.TransformFunc {
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

// trimPod keeps what addresses depend on: volumes that are claims, the containers' ports, node, phase and labels.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: trimMetadata(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase},
	}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil {
			continue
		}
		slim := corev1.Volume{Name: volume.Name}
		slim.PersistentVolumeClaim = volume.PersistentVolumeClaim
		if volume.Ephemeral != nil {
			slim.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		kept.Spec.Volumes = append(kept.Spec.Volumes, slim)
	}
	if len(kept.Spec.Volumes) > 0 {
		for i := range pod.Spec.Containers {
			kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{
				Name: pod.Spec.Containers[i].Name, Ports: pod.Spec.Containers[i].Ports,
			})
		}
	}
	return kept
}

// trimNode keeps the addresses, and what says which Pods may run there: labels and taints.
func trimNode(node *corev1.Node) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: trimMetadata(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Taints: node.Spec.Taints},
		Status:     corev1.NodeStatus{Addresses: node.Status.Addresses},
	}
}

func trimMetadata(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Labels: meta.Labels, DeletionTimestamp: meta.DeletionTimestamp, CreationTimestamp: meta.CreationTimestamp,
	}
}
