// Package lookup reads objects that may not exist. It must never hide another error than that.
package lookup

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
func WithUID[T client.Object](ctx context.Context, reader client.Reader, key types.NamespacedName, uid types.UID, o T) (T, error) {
	var none T
	o, err := Get(ctx, reader, key, o)
	if err != nil || any(o) == any(none) || o.GetUID() != uid {
		return none, err
	}
	return o, nil
}

// Metadata returns an empty object for the metadata of a kind, to read one or to watch all.
func Metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind)
	return metadata
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
