package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// cacheOptions keeps the operator's memory small in a large cluster: it watches all Pods, Nodes, claims, volumes and
// Services, but keeps of each only what its controllers read.
func cacheOptions(namespace string) cache.Options {
	t := newTrimmer(namespace)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                     {Transform: transform(t.pod)},
			&corev1.Node{}:                    {Transform: transform(t.node)},
			&corev1.Service{}:                 {Transform: transform(t.service)},
			&corev1.PersistentVolume{}:        {Transform: transform(t.volume)},
			&corev1.PersistentVolumeClaim{}:   {Transform: transform(t.claim)},
			&listenersv1alpha1.Listener{}:     {Transform: transform(t.listener)},
			&listenersv1alpha1.PodListeners{}: {Transform: transform(t.podListeners)},

			// Also those of an earlier installation in another namespace.
			&appsv1.DaemonSet{}:           {Field: fields.OneTermEqualSelector("metadata.name", names.NodeAgent)},
			&networkingv1.NetworkPolicy{}: {Namespaces: map[string]cache.Config{namespace: {}}},
			// The operator's own, and no other.
			&appsv1.Deployment{}: {Namespaces: map[string]cache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", names.Operator),
			}}},
		},
	}
}
