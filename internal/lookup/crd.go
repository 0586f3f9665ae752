package lookup

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configurationCRD is the CustomResourceDefinition of the configuration.
const configurationCRD = "listeneroperators.listener-operator.dev"

// ConfigurationCRD returns a reference to the CustomResourceDefinition of the configuration. It owns the policies that
// exist as long as the operator is installed, whether there is a configuration or not. The operator cannot change it.
func ConfigurationCRD(ctx context.Context, reader client.Reader) (metav1.OwnerReference, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := reader.Get(ctx, client.ObjectKey{Name: configurationCRD}, crd); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading CustomResourceDefinition %s: %w", configurationCRD, err)
	}
	return metav1.OwnerReference{APIVersion: crd.APIVersion, Kind: crd.Kind, Name: crd.Name, UID: crd.UID}, nil
}
