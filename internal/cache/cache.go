// Package cache decides what the operator keeps in memory of the objects in the cluster, and so what its controllers
// can see. It watches all Pods, Nodes, PersistentVolumeClaims, PersistentVolumes and Services. A large cluster has many
// of these, so it keeps of each only the fields that a controller reads. A field that is missing from the cache reads
// as empty: to read another one, add it to the transform of its kind.
//
// Tests of controllers read what this cache keeps: API-server tests start their managers with Options, and unit tests
// read through its transforms (fakeclient.Cached). The indexes of the cache are in package index, and the caches of
// optional kinds in package platform. The package must never drop a field that a controller reads.
package cache

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Options returns the options of the cache of an operator in this namespace.
func Options(namespace string) ctrlcache.Options {
	byObject := map[client.Object]ctrlcache.ByObject{
		// Large clusters have many objects of these kinds.
		&corev1.Pod{}:                     {Transform: transform(trimPod)},
		&corev1.Node{}:                    {Transform: transform(trimNode)},
		&corev1.Service{}:                 {Transform: transform(func(s *corev1.Service) *corev1.Service { return trimService(s, namespace) })},
		&corev1.PersistentVolume{}:        {Transform: transform(trimVolume)},
		&corev1.PersistentVolumeClaim{}:   {Transform: transform(trimClaim)},
		&listenersv1alpha1.Listener{}:     {Transform: transform(trimListener)},
		&listenersv1alpha1.PodListeners{}: {Transform: transform(trimPodListeners)},

		tenancy.Namespace(): {Transform: transform(trimNamespace)},

		// In all namespaces: an installation in another namespace has one, too.
		&appsv1.DaemonSet{}:           {Field: fields.OneTermEqualSelector("metadata.name", names.NodeAgent)},
		&networkingv1.NetworkPolicy{}: {Transform: transform(func(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy { return trimPolicy(p, namespace) })},
		// What clients of each namespace have to trust.
		&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.name", names.CertificateAuthorityConfigMap)},
		// Without its data, which nothing may keep.
		lookup.Metadata(corev1.SchemeGroupVersion.WithKind("Secret")): {Namespaces: map[string]ctrlcache.Config{namespace: {
			FieldSelector: fields.OneTermEqualSelector("metadata.name", names.CertificateAuthoritySecret),
		}}},
		// The operator's own only.
		&appsv1.Deployment{}: {Namespaces: map[string]ctrlcache.Config{namespace: {
			FieldSelector: fields.OneTermEqualSelector("metadata.name", names.Operator),
		}}},
	}
	return ctrlcache.Options{DefaultTransform: ctrlcache.TransformStripManagedFields(), ByObject: byObject}
}
