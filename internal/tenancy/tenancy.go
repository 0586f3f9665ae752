// Package tenancy decides which namespaces may use a class. It reads the labels of namespaces, and whether they are
// being deleted, and must never read anything else of them.
package tenancy

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// Namespace returns an object for the metadata of a namespace, or for a watch of all.
func Namespace() *metav1.PartialObjectMetadata {
	return lookup.Metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

// Terminating reports whether a namespace is being deleted. reader must read namespaces from the cache. In one that
// does not exist any more, or not yet, the API server decides.
func Terminating(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	object, err := lookup.Get(ctx, reader, client.ObjectKey{Name: namespace}, Namespace())
	return object != nil && object.DeletionTimestamp != nil, err
}

// Check returns why Listeners and claims of a namespace may not use a class, or "" if they may. Only reading the
// namespace can fail. A namespace that the reader does not know yet has no labels.
func Check(ctx context.Context, reader client.Reader, class *listenersv1alpha1.ListenerClass,
	namespace string) (problem string, _ error) {
	allowed := class.Spec.AllowedNamespaces
	if allowed == nil || slices.Contains(allowed.Names, namespace) {
		return "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
	if err != nil {
		return fmt.Sprintf("ListenerClass %s does not allow namespace %s, because spec.allowedNamespaces.selector is "+
			"not valid: %v", class.Name, namespace, err), nil
	}
	if allowed.Selector != nil {
		metadata := Namespace()
		if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, metadata); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading namespace %s: %w", namespace, err)
		}
		if selector.Matches(labels.Set(metadata.Labels)) {
			return "", nil
		}
	}
	return fmt.Sprintf("ListenerClass %s does not allow namespace %s", class.Name, namespace), nil
}
