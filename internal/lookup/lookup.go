// Package lookup reads objects that may not exist, and says which may be meant. It must never hide another error.
package lookup

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/message"
)

// Get reads an object into o, and returns nil if it does not exist.
func Get[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, o T) (T, error) {
	var none T
	kind := cmp.Or(o.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(o).Elem().Name())
	switch err := reader.Get(ctx, key, o); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %s %s: %w", kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	return o, nil
}

// WithUID reads an object into o, and returns nil if it does not exist or has another UID.
func WithUID[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, uid types.UID,
	o T) (T, error) {
	var none T
	o, err := Get(ctx, reader, key, o)
	if err != nil || any(o) == any(none) || o.GetUID() != uid {
		return none, err
	}
	return o, nil
}

// podPage is how many Pods are in memory at a time: users choose how many there are, and each may need 15 MB.
const podPage = 10

// EachPod passes Pods of the API server to a function, which must not keep them whole.
func EachPod(ctx context.Context, apiReader client.Reader, do func(*corev1.Pod), options ...client.ListOption) error {
	for next := ""; ; {
		var page corev1.PodList
		if err := apiReader.List(ctx, &page, append(options, client.Limit(podPage),
			client.Continue(next))...); err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		for i := range page.Items {
			do(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// Finalizers returns the finalizers of an object, except Kubernetes' own, which wait for other objects.
func Finalizers(o client.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(name string) bool {
		return strings.HasPrefix(name, "kubernetes.io/") || name == metav1.FinalizerDeleteDependents ||
			name == metav1.FinalizerOrphanDependents
	})
}

// DidYouMean returns a hint about the object of a list whose name is most similar to this one, or "" if none is, or one
// has the name. It begins with a separator.
func DidYouMean(name string, list client.ObjectList) string {
	meant, distance := "", min(2*len(name), len(name)/4+2)
	_ = meta.EachListItem(list, func(o runtime.Object) error { // which returns no error
		other := o.(client.Object).GetName()
		d := message.Differing(strings.ToLower(name), other)
		if strings.HasPrefix(other, name) {
			d = min(d, 1)
		}
		if d < distance {
			meant, distance = other, d
		}
		return nil
	})
	if meant == "" || meant == name {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", meant)
}

// Metadata returns an empty object for the metadata of a kind, to read one or to watch all.
func Metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind)
	return metadata
}

// MetadataList returns an empty list for the metadata of objects of a kind.
func MetadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}

// configurationCRD is the CustomResourceDefinition of the configuration.
const configurationCRD = "listeneroperators.listener-operator.dev"

// ConfigurationCRD returns a reference to the CustomResourceDefinition of the configuration. It owns the policies that
// exist as long as the operator is installed, whether there is a configuration or not. The operator cannot change it.
func ConfigurationCRD(ctx context.Context, reader client.Reader) (metav1.OwnerReference, error) {
	crd := Metadata(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := reader.Get(ctx, client.ObjectKey{Name: configurationCRD}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading CustomResourceDefinition %s: %w", configurationCRD, err)
	}
	return metav1.OwnerReference{APIVersion: crd.APIVersion, Kind: crd.Kind, Name: crd.Name, UID: crd.UID}, nil
}
