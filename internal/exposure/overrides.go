package exposure

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// override merges the overrides of the class, and then those of the Listener, into the generated Service.
//
// Overrides must not change the identity or the owner of the Service: of its metadata they may set only labels and
// annotations. The author of a Listener is less trusted than that of a class. Overrides of a Listener must neither
// select Pods that do not mount the Listener nor set spec.externalIPs, which would redirect the traffic of foreign
// addresses (CVE-2020-8554).
func override(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener,
) (*corev1ac.ServiceApplyConfiguration, error) {
	byClass, err := merge(service, class.Spec.ServiceOverrides.Raw)
	if err == nil {
		err = checkIdentity(service, byClass)
	}
	if err != nil {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass %s: %v", class.Name, err)
	}
	service = byClass
	for i, raw := range listener.Spec.ObjectOverrides {
		ok, err := targets(raw.Raw, service)
		if err == nil && ok {
			service, err = overrideByListener(service, raw.Raw, names.PodMountLabel(listener.UID))
		}
		if err != nil {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[%d]: %v", i, err)
		}
	}
	return service, nil
}

// overrideByListener merges one of the Listener's overrides, or returns an error if it is not allowed to the author of
// a Listener.
func overrideByListener(before *corev1ac.ServiceApplyConfiguration, patch []byte, mountLabel string) (*corev1ac.ServiceApplyConfiguration, error) {
	after, err := merge(before, patch)
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(before, after); err != nil {
		return nil, err
	}
	if !slices.Equal(before.Spec.ExternalIPs, after.Spec.ExternalIPs) {
		return nil, errors.New("spec.externalIPs may only be set by the ListenerClass")
	}
	old, existed := before.Spec.Selector[mountLabel]
	if current, exists := after.Spec.Selector[mountLabel]; current != old || exists != existed {
		return nil, fmt.Errorf("the selector %s may only be changed by the ListenerClass", mountLabel)
	}
	return after, nil
}

// targets reports whether an override of a Listener applies to its Service: apiVersion, kind, name and namespace must
// all be those of the Service (contract 1.5). An entry without one of them applies to no object, which is not an error,
// because product operators pass on lists that are written for all of their objects.
func targets(raw []byte, service *corev1ac.ServiceApplyConfiguration) (bool, error) {
	var entry struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &entry); err != nil {
		return false, fmt.Errorf("decoding the object: %w", err)
	}
	return entry.APIVersion == *service.APIVersion && entry.Kind == *service.Kind &&
		entry.Metadata.Name == *service.Name && entry.Metadata.Namespace == *service.Namespace, nil
}

// merge applies a strategic merge patch. Fields that a Service does not have are an error.
func merge(service *corev1ac.ServiceApplyConfiguration, patch []byte) (*corev1ac.ServiceApplyConfiguration, error) {
	if len(patch) == 0 {
		return service, nil
	}
	original, err := json.Marshal(service)
	if err != nil {
		return nil, fmt.Errorf("encoding the Service: %w", err)
	}
	patched, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Service{})
	if err != nil {
		return nil, fmt.Errorf("merging: %w", err)
	}
	// Decoding into the apply configuration drops nulls and keeps explicit zero values.
	merged := &corev1ac.ServiceApplyConfiguration{}
	unknown, err := kjson.UnmarshalStrict(patched, merged)
	if err != nil {
		return nil, fmt.Errorf("decoding the merged Service: %w", err)
	}
	if len(unknown) > 0 {
		messages := make([]string, len(unknown))
		for i, u := range unknown {
			messages[i] = u.Error()
		}
		return nil, fmt.Errorf("a Service does not have this field: %s", strings.Join(messages, ", "))
	}
	if merged.Spec == nil {
		return nil, errors.New("spec may not be removed")
	}
	merged.Status = nil // owned by other controllers
	return merged, nil
}

// checkIdentity returns an error if the Service's apiVersion, kind, or metadata other than labels and annotations
// differ.
func checkIdentity(before, after *corev1ac.ServiceApplyConfiguration) error {
	if !reflect.DeepEqual(before.TypeMetaApplyConfiguration, after.TypeMetaApplyConfiguration) ||
		!reflect.DeepEqual(withoutLabels(before), withoutLabels(after)) {
		return errors.New("apiVersion, kind and metadata of a Service cannot be overridden, except metadata.labels and metadata.annotations")
	}
	return nil
}

// withoutLabels returns the metadata of a Service without labels and annotations.
func withoutLabels(service *corev1ac.ServiceApplyConfiguration) metav1ac.ObjectMetaApplyConfiguration {
	if service.ObjectMetaApplyConfiguration == nil {
		return metav1ac.ObjectMetaApplyConfiguration{}
	}
	meta := *service.ObjectMetaApplyConfiguration
	meta.Labels, meta.Annotations = nil, nil
	return meta
}
