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
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Limits of what the author of a Listener writes. They are no limits of the schema, which would be an incompatible
// change of the CRD: the API server would reject updates of objects that exceed them. They are far above what is
// useful, and low enough for algorithms of libraries that compare each entry of a list with each other one.
const (
	maxListedPorts    = 1024 // in spec.ports; the class limits how many of them are exposed
	maxLabels         = 128  // of a Listener, which each of the objects that are generated for it has, too
	maxSelectorLabels = 64   // in spec.extraPodSelectorLabels
	// Overrides in spec.objectOverrides: most may be for objects of product operators, and are only read.
	maxListedOverrides = 1024
	maxOverrides       = 16       // that apply to the Service
	maxOverrideBytes   = 64 << 10 // of all that apply
	maxOverridePorts   = 1024     // in an override: the largest value of spec.maxPorts of a class
	maxOverrideEntries = 128      // of any other list in an override
	maxProblems        = 5        // invalid names in a message
)

// override merges the overrides of the class, and then those of the Listener, into the generated Service. They must not
// change its identity or its owner. The author of a Listener is less trusted than the author of a class, and may only
// change the fields that the class allows, within limits that are checked before the merge.
func override(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass,
	listener *listenersv1alpha1.Listener,
) (*corev1ac.ServiceApplyConfiguration, *Refusal) {
	byClass, _, err := merge(service, class.Spec.ServiceOverrides.Raw)
	if err == nil {
		err = checkIdentity(service, byClass)
	}
	if err != nil {
		return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.serviceOverrides of ListenerClass %s: %v",
			class.Name, err)
	}
	service = byClass
	own := identity{APIVersion: *service.APIVersion, Kind: *service.Kind,
		Metadata: objectKey{*service.Namespace, *service.Name}}
	number, bytes := 0, 0
	for i, raw := range listener.Spec.ObjectOverrides {
		target, err := identify(raw.Raw)
		if err == nil && target == own {
			number, bytes = number+1, bytes+len(raw.Raw)
			if number > maxOverrides || bytes > maxOverrideBytes {
				err = fmt.Errorf("more than %d overrides, or %d KiB, apply to the Service; remove or merge some",
					maxOverrides, maxOverrideBytes>>10)
			} else {
				service, err = overrideByListener(service, raw.Raw, class, overridable(class, listener))
			}
		}
		if err != nil {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides[%d]: %v", i, err)
		}
	}
	return service, nil
}

// overridable returns the fields of the Service that the Listener may change. Annotations tell load balancers, each in
// its own way, which clients to admit. So if clients are restricted, a class has to list annotations.
func overridable(class *listenersv1alpha1.ListenerClass,
	listener *listenersv1alpha1.Listener) []listenersv1alpha1.ServiceField {
	allowed := class.OverridableFields()
	restricted := len(class.Spec.AllowedClients)+len(listener.Spec.AllowedClients) > 0
	if lists := class.Spec.ListenerOverrides != nil && class.Spec.ListenerOverrides.Allowed != nil; restricted &&
		!lists && class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer {
		allowed = slices.DeleteFunc(allowed, func(f listenersv1alpha1.ServiceField) bool {
			return f == "metadata.annotations"
		})
	}
	return allowed
}

// overrideByListener merges one of the Listener's overrides, or returns an error if it changes what is not allowed.
func overrideByListener(
	before *corev1ac.ServiceApplyConfiguration, patch []byte, class *listenersv1alpha1.ListenerClass,
	allowed []listenersv1alpha1.ServiceField,
) (*corev1ac.ServiceApplyConfiguration, error) {
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
	changed := slices.DeleteFunc(changedFields(before, after),
		func(f string) bool { return slices.Contains(allowed, listenersv1alpha1.ServiceField(f)) })
	switch {
	case slices.Contains(changed, "spec.externalIPs"):
		return nil, errors.New("only a ListenerClass may set spec.externalIPs; remove it")
	case len(changed) > 0:
		return nil, fmt.Errorf("ListenerClass %s does not allow Listeners to override %s; remove it, or use a class "+
			"that lists it in spec.listenerOverrides.allowed", class.Name, strings.Join(changed, ", "))
	}
	return after, nil
}

// changedFields returns the listenersv1alpha1.ServiceFields in which two versions of a Service differ, sorted.
func changedFields(before, after *corev1ac.ServiceApplyConfiguration) []string {
	changed := sets.New[string]()
	compare := func(prefix string, before, after reflect.Value) {
		for i := range before.NumField() {
			if !equality.Semantic.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
				name, _, _ := strings.Cut(before.Type().Field(i).Tag.Get("json"), ",")
				changed.Insert(prefix + name)
			}
		}
	}
	compare("metadata.", reflect.ValueOf(*before.ObjectMetaApplyConfiguration),
		reflect.ValueOf(*after.ObjectMetaApplyConfiguration))
	compare("spec.", reflect.ValueOf(*before.Spec), reflect.ValueOf(*after.Spec))
	isSame := func(a, b corev1ac.ServicePortApplyConfiguration) bool {
		return ptr.Equal(a.Name, b.Name) && ptr.Equal(a.Port, b.Port) &&
			ptr.Deref(a.Protocol, corev1.ProtocolTCP) == ptr.Deref(b.Protocol, corev1.ProtocolTCP)
	}
	if slices.EqualFunc(before.Spec.Ports, after.Spec.Ports, isSame) {
		changed.Delete("spec.ports")
		for i := range before.Spec.Ports {
			compare("spec.ports.", reflect.ValueOf(before.Spec.Ports[i]), reflect.ValueOf(after.Spec.Ports[i]))
		}
		changed.Delete("spec.ports.protocol") // which has a default
	}
	return sets.List(changed)
}

// UnknownOverrides returns the fields in the class's overrides that a Service does not have. They are ignored: an older
// operator must be able to serve a class that was written for a newer one.
func UnknownOverrides(class *listenersv1alpha1.ListenerClass) []string {
	// The function Service returns the error of invalid ones.
	_, unknown, _ := merge(emptyService(), class.Spec.ServiceOverrides.Raw)
	return unknown
}

// AddsPorts reports whether the class's overrides add ports to a Service that has none.
func AddsPorts(class *listenersv1alpha1.ListenerClass) bool {
	merged, _, err := merge(emptyService(), class.Spec.ServiceOverrides.Raw)
	return err == nil && len(merged.Spec.Ports) > 0
}

func emptyService() *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service("", "").WithSpec(corev1ac.ServiceSpec())
}

// identity is the object that an override of a Listener applies to (contract: the Service). An entry that lacks a field
// applies to none, which is not an error: product operators pass on lists for all of their objects.
type identity struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   objectKey `json:"metadata"`
}

type objectKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func identify(raw []byte) (id identity, _ error) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &id); err != nil {
		return identity{}, fmt.Errorf("decoding the object: %w", err)
	}
	return id, nil
}

// IgnoredOverrides returns the paths of overrides that name the Service, but no namespace, so that they have no effect.
func IgnoredOverrides(listener *listenersv1alpha1.Listener) []string {
	var ignored []string
	for i, raw := range listener.Spec.ObjectOverrides {
		id, err := identify(raw.Raw)
		if err == nil && id.Kind == "Service" && id.Metadata == (objectKey{Name: names.Service(listener.Name)}) {
			ignored = append(ignored, fmt.Sprintf("spec.objectOverrides[%d]", i))
		}
	}
	return ignored
}

// merge applies a partial Service as a strategic merge patch, but replaces its selector, and merges ports by number and
// protocol (contract: the Service). unknown are the paths of fields that a Service does not have.
func merge(service *corev1ac.ServiceApplyConfiguration,
	patch []byte) (merged *corev1ac.ServiceApplyConfiguration, unknown []string, _ error) {
	if len(patch) == 0 {
		return service, nil, nil
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &content); err != nil {
		return nil, nil, fmt.Errorf("decoding: %w", err)
	}
	// A merge takes longer than everything else in a reconciliation.
	if maps.DeleteFunc(content, isOfAnyService); len(content) == 0 {
		return service, nil, nil
	}
	if err := checkLists("", content); err != nil {
		return nil, nil, err
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(service)
	if err != nil {
		return nil, nil, fmt.Errorf("converting the Service: %w", err)
	}
	ports, err := takePorts(original["spec"], content["spec"])
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

// isOfAnyService reports whether a field is as in the default of the overrides of classes, which changes nothing.
func isOfAnyService(field string, value any) bool {
	metadata, isMap := value.(map[string]any)
	return field == "apiVersion" && value == "v1" || field == "kind" && value == "Service" ||
		field == "metadata" && isMap && len(metadata) == 0
}

// takePorts removes the ports from the specs of the Service and of the patch, and returns the merged ones: a strategic
// merge patch distinguishes ports by number alone, and compares each with each. It has the patch replace the selector.
func takePorts(service, patch any) ([]any, error) {
	spec, _ := service.(map[string]any)
	existing, _ := spec["ports"].([]any)
	delete(spec, "ports")
	spec, _ = patch.(map[string]any)
	if selector, ok := spec["selector"].(map[string]any); ok {
		selector["$patch"] = "replace"
	}
	value, overridden := spec["ports"]
	delete(spec, "ports")
	overrides, isList := value.([]any)
	switch {
	case value == nil && overridden: // by null
		return nil, nil
	case overridden && !isList:
		return nil, errors.New("spec.ports is not a list")
	}
	return mergePorts(existing, overrides)
}

func mergePorts(existing, overrides []any) ([]any, error) {
	type portKey struct {
		number   int64
		protocol string
	}
	var merged []any // in which those that were deleted are nil
	places := map[portKey]int{}
	for _, entry := range slices.Concat(existing, overrides) {
		port, ok := entry.(map[string]any)
		if !ok {
			return nil, errors.New("spec.ports: a port is not an object")
		}
		directive := port["$patch"]
		if directive == "replace" {
			merged, places = nil, map[portKey]int{}
			continue
		}
		number, ok := port["port"].(int64)
		if !ok {
			return nil, errors.New("spec.ports: the port number of a port is missing, or is not an integer")
		}
		protocol, ok := port["protocol"].(string)
		if !ok && port["protocol"] != nil {
			return nil, fmt.Errorf("spec.ports: the protocol of port %d is not a string", number)
		}
		key := portKey{number, cmp.Or(protocol, string(corev1.ProtocolTCP))}
		place, exists := places[key]
		switch {
		case directive == "delete" && exists:
			merged[place] = nil
			delete(places, key)
		case directive != nil:
			return nil, fmt.Errorf("spec.ports: the directive %.20v is not supported, or is for a port that the "+
				"Service does not have", directive)
		case exists:
			maps.Copy(merged[place].(map[string]any), port)
		default:
			places[key] = len(merged)
			merged = append(merged, port)
		}
	}
	return slices.DeleteFunc(merged, func(port any) bool { return port == nil }), nil
}

func checkIdentity(before, after *corev1ac.ServiceApplyConfiguration) error {
	identityOf := func(service *corev1ac.ServiceApplyConfiguration) corev1ac.ServiceApplyConfiguration {
		meta := ptr.Deref(service.ObjectMetaApplyConfiguration, metav1ac.ObjectMetaApplyConfiguration{})
		meta.Labels, meta.Annotations, meta.Finalizers = nil, nil, nil
		return corev1ac.ServiceApplyConfiguration{TypeMetaApplyConfiguration: service.TypeMetaApplyConfiguration,
			ObjectMetaApplyConfiguration: &meta}
	}
	if !reflect.DeepEqual(identityOf(before), identityOf(after)) {
		return errors.New("apiVersion, kind and metadata of a Service cannot be overridden, except metadata.labels, " +
			"metadata.annotations and metadata.finalizers")
	}
	return nil
}

// checkLists returns an error if a list in an override has too many entries. path is where the value is.
func checkLists(path string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkLists(strings.TrimPrefix(path+"."+key, "."), v[key]); err != nil {
				return err
			}
		}
	case []any:
		limit := maxOverrideEntries
		if path == "spec.ports" {
			limit = maxOverridePorts
		}
		if len(v) > limit {
			return fmt.Errorf("%s has %d entries, of at most %d; remove some", path, len(v), limit)
		}
		for _, entry := range v {
			if err := checkLists(path+"[]", entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// IgnoredSettings describes the settings of a class that have no effect in combination with others, each with what to
// do instead. The API server accepts these combinations, because classes of existing installations may have them; it
// rejects those of fields that Stackable's listener operator does not have.
func IgnoredSettings(class *listenersv1alpha1.ListenerClass) []string {
	spec := &class.Spec
	nodePort, loadBalancer := spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort,
		spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer
	var ignored []string
	for _, rule := range []struct {
		applies        bool
		field, instead string
	}{
		{spec.PinnedNodePorts && !nodePort && spec.HostPort == nil, "pinnedNodePorts",
			"the addresses do not depend on a node; remove it, or use serviceType NodePort"},
		{ptr.Deref(spec.LoadBalancerClass, "") != "" && !loadBalancer, "loadBalancerClass",
			"no load balancer is used; remove it, or use serviceType LoadBalancer"},
		{!ptr.Deref(spec.LoadBalancerAllocateNodePorts, true) && !loadBalancer, "loadBalancerAllocateNodePorts",
			"no load balancer is used; remove it, or use serviceType LoadBalancer"},
		{spec.ServiceExternalTrafficPolicy != nil && !nodePort && !loadBalancer, "serviceExternalTrafficPolicy",
			"the Service receives no external traffic; remove it, or use serviceType NodePort or LoadBalancer"},
		{spec.PreferredAddressType == listenersv1alpha1.PreferredAddressTypeIP && spec.Route != nil,
			"preferredAddressType", "the addresses of Routes are host names; remove it"},
	} {
		if rule.applies {
			ignored = append(ignored, fmt.Sprintf("%s of ListenerClass %s has no effect: %s", rule.field, class.Name,
				rule.instead))
		}
	}
	return ignored
}
