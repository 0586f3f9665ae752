// Package installation has the objects that the operator installs, as they are desired: the DaemonSet of node agents
// and what it needs, the admission policies that protect PodListeners and confine the operator, and monitoring.
// Components is the table of them.
//
// It is pure: an object depends on ListenerOperator/cluster and on Settings alone. It must never import a client, a
// clock or the environment.
package installation

import (
	"encoding/json"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Labels of all components. Those of NodeAgentLabels also select the agents' Pods, and so cannot change.
const (
	// LabelManagedBy has the value names.Operator.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	componentAgent = "node-agent"
	// componentOperator is also the name of the container in the operator's Pods.
	componentOperator = "operator"
)

// NodeAgentLabels returns the labels of the agents' Pods, and of all components.
func NodeAgentLabels() map[string]string {
	return map[string]string{labelName: names.Operator, labelComponent: componentAgent}
}

// OperatorLabels returns the labels of the operator's Pods.
func OperatorLabels() map[string]string {
	return map[string]string{labelName: names.Operator, labelComponent: componentOperator}
}

// Settings are what components depend on besides the configuration.
type Settings struct {
	// Namespace is the operator's, and that of the node agents.
	Namespace string
	// Image is the image of the node agents.
	Image string
	// ServiceAccount is the uid of the agents' ServiceAccount, empty if there is none.
	ServiceAccount types.UID
	// OpenShift reports whether the cluster is an OpenShift cluster.
	OpenShift bool
	// OperatorPod is the template of the operator's own Pods.
	OperatorPod corev1.PodSpec
	// Placement overrides where the configuration places agents, unless it is nil.
	Placement *Placement
}

// Object is an object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Component is one of the objects that the operator installs.
type Component struct {
	Kind       string
	Name       string
	Namespaced bool
	// Adopt is set if the name belongs to the CSI driver, so that an object without a controller is one that an earlier
	// installation left, and is taken over (contract: takeover).
	Adopt bool
	// Optional is the kind of a component that is only installed where the cluster serves it, or empty.
	Optional schema.GroupVersionKind
	// Extra is set if volumes can be used without the component.
	Extra bool
	// Immutable reports whether an observed object differs from the desired one in immutable fields, so that it has to
	// be deleted and created again. Nil means that it never does.
	Immutable func(observed Object) bool
	// Kept are the paths of fields that other clients may set.
	Kept [][]string
	// Empty returns an object of the kind to read into.
	Empty func() Object

	// build returns an apply configuration without owner and labels.
	build func(*operatorv1alpha1.ListenerOperator, Settings) (any, error)
}

// Components returns what is installed, in the order of dependencies: agents only run where a policy protects what they
// read, and claims are only provisioned where agents run.
func Components() []Component {
	return append([]Component{
		{
			Kind: "ValidatingAdmissionPolicy", Name: names.PodListenersPolicy, build: podListenersPolicy,
			Empty: func() Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} },
		},
		{
			Kind: "ValidatingAdmissionPolicyBinding", Name: names.PodListenersPolicy, build: podListenersPolicyBinding,
			Empty: func() Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{} },
		},
		{
			Kind: "CSIDriver", Name: names.Driver, Adopt: true, build: csiDriver,
			Empty: func() Object { return &storagev1.CSIDriver{} },
		},
		optional(names.KindSecurityContextConstraints, Component{Name: names.NodeAgent, build: securityContextConstraints}),
		{
			Kind: "DaemonSet", Name: names.NodeAgent, Namespaced: true, build: daemonSet, Kept: [][]string{annotationRestartedAt},
			Empty: func() Object { return &appsv1.DaemonSet{} },
		},
		{
			Kind: "StorageClass", Name: names.Driver, Adopt: true, build: storageClass, Immutable: storageClassImmutable,
			Empty: func() Object { return &storagev1.StorageClass{} },
		},
		{
			Kind: "NetworkPolicy", Name: names.Operator, Namespaced: true, Extra: true, build: operatorNetworkPolicy,
			Empty: func() Object { return &networkingv1.NetworkPolicy{} },
		},
		{
			Kind: "NetworkPolicy", Name: names.NodeAgent, Namespaced: true, Extra: true, build: nodeAgentNetworkPolicy,
			Empty: func() Object { return &networkingv1.NetworkPolicy{} },
		},
		{
			Kind: "Service", Name: names.MetricsService, Namespaced: true, Extra: true, build: metricsService,
			Empty: func() Object { return &corev1.Service{} },
		},
		optional(names.KindServiceMonitor, Component{Name: names.Operator, Namespaced: true, Extra: true, build: serviceMonitor}),
		optional(names.KindPrometheusRule, Component{Name: names.Operator, Namespaced: true, Extra: true, build: prometheusRule}),
		optional(names.KindConsoleQuickStart, Component{Name: names.Operator, Extra: true, build: quickStart}),
	}, yamlSamples()...)
}

// optional completes a component that is only installed where the cluster serves its kind.
func optional(kind schema.GroupVersionKind, c Component) Component {
	c.Kind, c.Optional = kind.Kind, kind
	c.Empty = func() Object {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		return object
	}
	return c
}

// Key returns the namespaced name of the component, given the operator's namespace.
func (c Component) Key(namespace string) types.NamespacedName {
	if !c.Namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: c.Name}
}

// Desired returns the component as it is to be applied, owned by the configuration.
func (c Component) Desired(config *operatorv1alpha1.ListenerOperator, s Settings) (*unstructured.Unstructured, error) {
	desired, err := c.build(config, s)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.Kind, c.Name, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.Kind, c.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	labels := NodeAgentLabels()
	labels[LabelManagedBy] = names.Operator
	object.SetLabels(labels)
	// It does not block the configuration's deletion: on OpenShift that takes permission to update the configuration's
	// finalizers, and delays the first start until the admission plugin has discovered the kind.
	owner := metav1.NewControllerRef(config, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))
	owner.BlockOwnerDeletion = nil
	object.SetOwnerReferences([]metav1.OwnerReference{*owner})
	return object, nil
}

// KeepFrom returns the desired content of the component, completed by the fields of the observed object that other
// clients may set.
func (c Component) KeepFrom(observed *unstructured.Unstructured, desired map[string]any) (map[string]any, error) {
	kept := runtime.DeepCopyJSON(desired)
	for _, path := range c.Kept {
		value, ok, err := unstructured.NestedFieldCopy(observed.Object, path...)
		if err != nil {
			return nil, fmt.Errorf("reading %s of %s %s: %w", strings.Join(path, "."), c.Kind, c.Name, err)
		}
		if !ok {
			continue
		}
		if err := unstructured.SetNestedField(kept, value, path...); err != nil {
			return nil, fmt.Errorf("setting %s of %s %s: %w", strings.Join(path, "."), c.Kind, c.Name, err)
		}
	}
	return kept, nil
}

// ForeignMessage returns why the observed object must not be modified, or "" if it may.
func (c Component) ForeignMessage(config *operatorv1alpha1.ListenerOperator, observed metav1.Object) string {
	controller := metav1.GetControllerOf(observed)
	switch {
	case controller == nil && (c.Adopt || observed.GetLabels()[LabelManagedBy] == names.Operator):
		return ""
	case controller == nil:
		return fmt.Sprintf("%s %s exists and does not belong to this operator; delete or rename it", c.Kind, c.Name)
	case controller.UID == config.UID:
		return ""
	case controller.Kind == "ListenerOperator" && controller.Name == config.Name:
		return fmt.Sprintf("%s %s belongs to an earlier ListenerOperator %s; waiting for the garbage collector to delete it", c.Kind, c.Name, config.Name)
	default:
		return fmt.Sprintf("%s %s belongs to %s %s; remove that installation first", c.Kind, c.Name, controller.Kind, controller.Name)
	}
}

// converted returns the apply configuration with the same fields as a part of the configuration.
func converted[T any](in any) (*T, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", in, err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", in, err)
	}
	return out, nil
}

// unstructuredObject returns an object of a kind for which there is no apply configuration.
func unstructuredObject(kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
