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

// override merges the overrides of the class, and then those of the Listener, over the generated Service.
//
// None of them may change what the Service is and whom it belongs to: of its metadata only labels and annotations are
// open. Those of a Listener, whose author need not be trusted with the cluster, may neither point the Service at Pods
// that do not mount the Listener nor have it attract the traffic of addresses of others (spec.externalIPs,
// CVE-2020-8554).
func override(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener,
) (*corev1ac.ServiceApplyConfiguration, error) {
	ofClass, err := merge(service, class.Spec.ServiceOverrides.Raw)
	if err == nil {
		err = checkIdentity(service, ofClass)
	}
	if err != nil {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass %s: %v", class.Name, err)
	}
	service = ofClass
	for i, raw := range listener.Spec.ObjectOverrides {
		ok, err := targets(raw.Raw, service)
		if err == nil && ok {
			service, err = overrideAsListener(service, raw.Raw, names.PodMountLabel(listener.UID))
		}
		if err != nil {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[%d]: %v", i, err)
		}
	}
	return service, nil
}

func overrideAsListener(before *corev1ac.ServiceApplyConfiguration, patch []byte, mountLabel string) (*corev1ac.ServiceApplyConfiguration, error) {
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
	was, had := before.Spec.Selector[mountLabel]
	if is, has := after.Spec.Selector[mountLabel]; is != was || has != had {
		return nil, fmt.Errorf("the selector %s may only be changed by the ListenerClass", mountLabel)
	}
	return after, nil
}

// targets tells whether an entry of a Listener's overrides is meant for its Service: apiVersion, kind, name and
// namespace must all be the Service's (contract 1.5). An entry that leaves one of them out is meant for nothing here,
// and is no mistake either: product operators hand on lists that are written for all of their objects.
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
		return false, fmt.Errorf("reading it as an object: %w", err)
	}
	return entry.APIVersion == *service.APIVersion && entry.Kind == *service.Kind &&
		entry.Metadata.Name == *service.Name && entry.Metadata.Namespace == *service.Namespace, nil
}

// merge applies a strategic merge patch. Fields that Services do not have are an error.
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
	// Decoding into the apply configuration drops nulls, and keeps zero values that were given.
	merged := &corev1ac.ServiceApplyConfiguration{}
	unknown, err := kjson.UnmarshalStrict(patched, merged)
	if err != nil {
		return nil, fmt.Errorf("reading the result as a Service: %w", err)
	}
	if len(unknown) > 0 {
		messages := make([]string, len(unknown))
		for i, u := range unknown {
			messages[i] = u.Error()
		}
		return nil, fmt.Errorf("a Service has no such field: %s", strings.Join(messages, ", "))
	}
	if merged.Spec == nil {
		return nil, errors.New("spec may not be removed")
	}
	merged.Status = nil // not ours to say
	return merged, nil
}

// checkIdentity refuses a change of anything but labels and annotations in the Service's type and metadata.
func checkIdentity(before, after *corev1ac.ServiceApplyConfiguration) error {
	if !reflect.DeepEqual(before.TypeMetaApplyConfiguration, after.TypeMetaApplyConfiguration) ||
		!reflect.DeepEqual(withoutLabels(before), withoutLabels(after)) {
		return errors.New("of a Service's apiVersion, kind and metadata only metadata.labels and metadata.annotations may be overridden")
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
