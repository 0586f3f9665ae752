package exposure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// override merges the overrides of the class, and then those of the Listener, into the generated Service.
//
// Overrides must not change the identity or the owner of the Service. The author of a Listener is less trusted than
// that of a class, and may only change the fields that the class allows. What the author wrote is within limits before
// it is merged.
func override(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener,
) (*corev1ac.ServiceApplyConfiguration, *Refusal) {
	byClass, _, err := merge(service, class.Spec.ServiceOverrides.Raw)
	if err == nil {
		err = checkIdentity(service, byClass)
	}
	if err != nil {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass %s: %v", class.Name, err)
	}
	service = byClass
	var size overrideSize
	for i, raw := range listener.Spec.ObjectOverrides {
		ok, err := targets(raw.Raw, service)
		if err == nil && ok {
			if err = size.add(raw.Raw); err == nil {
				service, err = overrideByListener(service, raw.Raw, class)
			}
		}
		if err != nil {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[%d]: %v", i, err)
		}
	}
	return service, nil
}

// overrideByListener merges one of the Listener's overrides, or returns an error if it changes what the class does not
// allow.
func overrideByListener(before *corev1ac.ServiceApplyConfiguration, patch []byte, class *listenersv1alpha1.ListenerClass) (*corev1ac.ServiceApplyConfiguration, error) {
	after, unknown, err := merge(before, patch)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("a Service does not have this field: %s", strings.Join(unknown, ", "))
	}
	if err := checkIdentity(before, after); err != nil {
		return nil, err
	}
	changed, err := changedFields(before, after)
	if err != nil {
		return nil, err
	}
	allowed := class.OverridableFields()
	changed = slices.DeleteFunc(changed, func(f string) bool { return slices.Contains(allowed, listenersv1alpha1.ServiceField(f)) })
	switch {
	case slices.Contains(changed, "spec.externalIPs"):
		return nil, errors.New("only a ListenerClass may set spec.externalIPs; remove it")
	case len(changed) > 0:
		return nil, fmt.Errorf("ListenerClass %s does not allow Listeners to override %s; remove it, or use a class that lists it in spec.listenerOverrides.allowed",
			class.Name, strings.Join(changed, ", "))
	}
	return after, nil
}

// changedFields returns the paths of the fields in which two versions of a Service differ, sorted, in the granularity
// of listenersv1alpha1.ServiceField.
func changedFields(before, after *corev1ac.ServiceApplyConfiguration) ([]string, error) {
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, fmt.Errorf("converting the Service: %w", err)
	}
	updated, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, fmt.Errorf("converting the merged Service: %w", err)
	}
	changed := differences("metadata.", old["metadata"], updated["metadata"])
	fields := differences("spec.", old["spec"], updated["spec"])
	fields.Delete("spec.ports")
	changed = changed.Union(fields)
	portID := func(p corev1ac.ServicePortApplyConfiguration) string {
		return fmt.Sprint(ptr.Deref(p.Name, ""), " ", ptr.Deref(p.Port, 0), "/", ptr.Deref(p.Protocol, corev1.ProtocolTCP))
	}
	if !slices.EqualFunc(before.Spec.Ports, after.Spec.Ports, func(a, b corev1ac.ServicePortApplyConfiguration) bool { return portID(a) == portID(b) }) {
		return slices.Sorted(maps.Keys(changed.Insert("spec.ports"))), nil
	}
	for i := range before.Spec.Ports {
		old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&before.Spec.Ports[i])
		if err != nil {
			return nil, fmt.Errorf("converting a port: %w", err)
		}
		updated, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&after.Spec.Ports[i])
		if err != nil {
			return nil, fmt.Errorf("converting a merged port: %w", err)
		}
		delete(old, "protocol") // compared with its default
		delete(updated, "protocol")
		changed = changed.Union(differences("spec.ports.", old, updated))
	}
	return slices.Sorted(maps.Keys(changed)), nil
}

// differences returns the keys, with a prefix, at which two maps differ. A value that is no map has no keys.
func differences(prefix string, before, after any) sets.Set[string] {
	old, _ := before.(map[string]any)
	updated, _ := after.(map[string]any)
	keys := sets.New[string]()
	for key := range sets.KeySet(old).Union(sets.KeySet(updated)) {
		if !reflect.DeepEqual(old[key], updated[key]) {
			keys.Insert(prefix + key)
		}
	}
	return keys
}

// UnknownOverrides returns the fields in the class's overrides that a Service does not have. They are ignored: an older
// operator must be able to serve a class that was written for a newer one.
func UnknownOverrides(class *listenersv1alpha1.ListenerClass) []string {
	empty := corev1ac.Service("", "").WithSpec(corev1ac.ServiceSpec())
	if _, unknown, err := merge(empty, class.Spec.ServiceOverrides.Raw); err == nil {
		return unknown
	}
	return nil
}

// AddsPorts reports whether the class's overrides add ports to a Service that has none.
func AddsPorts(class *listenersv1alpha1.ListenerClass) bool {
	merged, _, err := merge(corev1ac.Service("", "").WithSpec(corev1ac.ServiceSpec()), class.Spec.ServiceOverrides.Raw)
	return err == nil && len(merged.Spec.Ports) > 0
}

// targets reports whether an override of a Listener applies to its Service: apiVersion, kind, name and namespace must
// all be those of the Service (contract: the Service). An entry without one of them applies to no object, which is
// not an error, because product operators pass on lists that are written for all of their objects.
func targets(raw []byte, service *corev1ac.ServiceApplyConfiguration) (bool, error) {
	entry, err := identify(raw)
	return err == nil && entry.APIVersion == *service.APIVersion && entry.Kind == *service.Kind &&
		entry.Metadata.Name == *service.Name && entry.Metadata.Namespace == *service.Namespace, err
}

// identity is what an override of a Listener says of the object that it applies to.
type identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

func identify(raw []byte) (identity, error) {
	var entry identity
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &entry); err != nil {
		return identity{}, fmt.Errorf("decoding the object: %w", err)
	}
	return entry, nil
}

// IgnoredOverrides returns the paths of a Listener's overrides that name its Service, but no namespace, so that they
// apply to no object.
func IgnoredOverrides(listener *listenersv1alpha1.Listener) []string {
	var ignored []string
	for i, raw := range listener.Spec.ObjectOverrides {
		id, err := identify(raw.Raw)
		if err == nil && id.Kind == "Service" && id.Metadata.Name == listener.Name && id.Metadata.Namespace == "" {
			ignored = append(ignored, fmt.Sprintf("spec.objectOverrides[%d]", i))
		}
	}
	return ignored
}

// merge applies a partial Service as a strategic merge patch, but for its selector, which is replaced, and its ports,
// which are merged by number and protocol (contract: the Service). unknown are the paths of fields that a Service
// does not have.
func merge(service *corev1ac.ServiceApplyConfiguration, patch []byte) (merged *corev1ac.ServiceApplyConfiguration, unknown []string, _ error) {
	if len(patch) == 0 || isEmpty(patch) {
		return service, nil, nil
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &content); err != nil {
		return nil, nil, fmt.Errorf("decoding: %w", err)
	}
	if err := checkLists("", content); err != nil {
		return nil, nil, err
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(service)
	if err != nil {
		return nil, nil, fmt.Errorf("converting the Service: %w", err)
	}
	ports, err := takePorts(service.Spec.Ports, original, content)
	if err != nil {
		return nil, nil, err
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(original, content, corev1.Service{})
	if err != nil {
		return nil, nil, fmt.Errorf("merging: %w", err)
	}
	spec, ok := patched["spec"].(map[string]any)
	if !ok {
		return nil, nil, errors.New("spec may not be removed")
	}
	spec["ports"] = ports
	// Decoding into the apply configuration drops nulls and keeps explicit zero values.
	encoded, err := json.Marshal(patched)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the merged Service: %w", err)
	}
	merged = &corev1ac.ServiceApplyConfiguration{}
	problems, err := kjson.UnmarshalStrict(encoded, merged)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding the merged Service: %w", err)
	}
	for _, problem := range problems {
		unknown = append(unknown, problem.Error())
	}
	merged.Status = nil // owned by other controllers
	return merged, unknown, nil
}

// isEmpty reports whether overrides say nothing but that they are those of a Service, as the default of the field in
// classes does. A merge takes longer than everything else in a reconciliation.
func isEmpty(patch []byte) bool {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &content); err != nil {
		return false
	}
	for field, value := range content {
		metadata, isMap := value.(map[string]any)
		switch {
		case field == "apiVersion" && value == "v1", field == "kind" && value == "Service", field == "metadata" && isMap && len(metadata) == 0:
		default:
			return false
		}
	}
	return true
}

// takePorts removes the ports from the Service and the patch, both decoded, and returns the merged ones: a strategic
// merge patch distinguishes ports by number alone, and compares each with each other one. It also has the patch replace
// the selector, which would be merged otherwise.
func takePorts(existing []corev1ac.ServicePortApplyConfiguration, service, patch map[string]any) ([]any, error) {
	if spec, ok := service["spec"].(map[string]any); ok {
		delete(spec, "ports")
	}
	spec, _ := patch["spec"].(map[string]any)
	if selector, ok := spec["selector"].(map[string]any); ok {
		selector["$patch"] = "replace"
	}
	overrides, overridden := spec["ports"]
	delete(spec, "ports")
	switch ports := overrides.(type) {
	case []any:
		return mergePorts(existing, ports)
	case nil:
		if overridden { // by null
			return nil, nil
		}
		return mergePorts(existing, nil)
	default:
		return nil, errors.New("spec.ports is not a list")
	}
}

// portKey is what distinguishes the ports of a Service in a merge.
type portKey struct {
	number   int64
	protocol string
}

// mergePorts merges ports of an override into those of the Service, by number and protocol. Of several ports of the
// Service with the same number and protocol, the override applies to the first one.
func mergePorts(existing []corev1ac.ServicePortApplyConfiguration, overrides []any) ([]any, error) {
	merged := mergedPorts{places: map[portKey]int{}}
	for i := range existing {
		port, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&existing[i])
		if err != nil {
			return nil, fmt.Errorf("converting a port: %w", err)
		}
		key, err := keyOf(port)
		if err != nil {
			return nil, err
		}
		merged.add(key, port)
	}
	for _, override := range overrides {
		port, ok := override.(map[string]any)
		if !ok {
			return nil, errors.New("spec.ports: a port is not an object")
		}
		if err := merged.merge(port); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(merged.ports, func(port any) bool { return port == nil }), nil
}

// mergedPorts are ports of a Service, of which those that were deleted are nil, and the place of each.
type mergedPorts struct {
	ports  []any
	places map[portKey]int
}

func (m *mergedPorts) add(key portKey, port map[string]any) {
	if _, ok := m.places[key]; !ok {
		m.places[key] = len(m.ports)
	}
	m.ports = append(m.ports, port)
}

// merge merges a port of an override.
func (m *mergedPorts) merge(port map[string]any) error {
	if port["$patch"] == "replace" {
		m.ports, m.places = nil, map[portKey]int{}
		return nil
	}
	key, err := keyOf(port)
	if err != nil {
		return err
	}
	place, exists := m.places[key]
	switch directive := port["$patch"]; {
	case directive == "delete" && exists:
		m.ports[place] = nil
		delete(m.places, key)
	case directive != nil:
		return fmt.Errorf("spec.ports: the directive %.20v is not supported, or is for a port that the Service does not have", directive)
	case exists:
		maps.Copy(m.ports[place].(map[string]any), port)
	default:
		m.add(key, port)
	}
	return nil
}

// keyOf returns the key of a port, whose protocol is TCP by default.
func keyOf(port map[string]any) (portKey, error) {
	number, ok := port["port"].(int64)
	if !ok {
		return portKey{}, errors.New("spec.ports: the port number of a port is missing, or is not an integer")
	}
	switch protocol := port["protocol"].(type) {
	case nil:
		return portKey{number, string(corev1.ProtocolTCP)}, nil
	case string:
		return portKey{number, cmp.Or(protocol, string(corev1.ProtocolTCP))}, nil
	default:
		return portKey{}, fmt.Errorf("spec.ports: the protocol of port %d is not a string", number)
	}
}

// checkIdentity returns an error if the Service's apiVersion, kind, or metadata other than labels, annotations and
// finalizers differ.
func checkIdentity(before, after *corev1ac.ServiceApplyConfiguration) error {
	if !reflect.DeepEqual(before.TypeMetaApplyConfiguration, after.TypeMetaApplyConfiguration) ||
		!reflect.DeepEqual(withoutOverridable(before), withoutOverridable(after)) {
		return errors.New("apiVersion, kind and metadata of a Service cannot be overridden, except metadata.labels, metadata.annotations and metadata.finalizers")
	}
	return nil
}

// withoutOverridable returns the metadata of a Service without labels, annotations and finalizers.
func withoutOverridable(service *corev1ac.ServiceApplyConfiguration) metav1ac.ObjectMetaApplyConfiguration {
	if service.ObjectMetaApplyConfiguration == nil {
		return metav1ac.ObjectMetaApplyConfiguration{}
	}
	meta := *service.ObjectMetaApplyConfiguration
	meta.Labels, meta.Annotations, meta.Finalizers = nil, nil, nil
	return meta
}
