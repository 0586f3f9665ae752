// Package cache decides what the operator keeps in memory of the objects in the cluster, and so what its controllers
// can see. It watches all Pods, Nodes, PersistentVolumeClaims, PersistentVolumes and Services, of which a large cluster
// has many, but keeps of each only the fields that a controller reads. A field that is missing from the cache reads as
// empty: to read another one, add it to the transform of its kind.
//
// Tests of controllers read what this cache keeps: API-server tests start their managers with Options, and unit tests
// read through its transforms (fakeclient.Cached). The indexes of the cache are in package index, and the caches of
// optional kinds in package platform. The package must never drop a field that a controller reads, and nothing may
// change an object in the cache, because objects share their parts.
package cache

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Options returns the options of the cache of an operator in this namespace.
func Options(namespace string) ctrlcache.Options {
	t := newTrimmer(namespace)
	return ctrlcache.Options{
		DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&corev1.Pod{}:                     {Transform: transform(t.pod)},
			&corev1.Node{}:                    {Transform: transform(t.node)},
			&corev1.Service{}:                 {Transform: transform(t.service)},
			&corev1.PersistentVolume{}:        {Transform: transform(t.volume)},
			&corev1.PersistentVolumeClaim{}:   {Transform: transform(t.claim)},
			tenancy.Namespace():               {Transform: transform(t.namespaceLabels)},
			&listenersv1alpha1.Listener{}:     {Transform: transform(t.listener)},
			&listenersv1alpha1.PodListeners{}: {Transform: transform(t.podListeners)},

			// In all namespaces: an installation in another namespace has one, too.
			&appsv1.DaemonSet{}:           {Field: fields.OneTermEqualSelector("metadata.name", names.NodeAgent)},
			&networkingv1.NetworkPolicy{}: {Namespaces: map[string]ctrlcache.Config{namespace: {}}},
			// The operator's own only.
			&appsv1.Deployment{}: {Namespaces: map[string]ctrlcache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", names.Operator),
			}}},
		},
	}
}
