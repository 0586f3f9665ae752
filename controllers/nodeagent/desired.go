package nodeagent

import (
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Labels of all that is installed. Those of nodeAgentLabels also select the agents' Pods, and so are fixed for ever.
const (
	labelName      = "app.kubernetes.io/name"
	labelComponent = "app.kubernetes.io/component"
	labelManagedBy = "app.kubernetes.io/managed-by"
	componentAgent = "node-agent"
	// componentOperator is also the name of the container in the operator's Pods.
	componentOperator = "operator"
)

func nodeAgentLabels() map[string]string {
	return map[string]string{labelName: names.Operator, labelComponent: componentAgent}
}

// settings are what the installed objects depend on besides the configuration.
type settings struct {
	namespace string
	image     string
	// account is the uid of the agents' ServiceAccount, empty if there is none.
	account types.UID
	// openShift says that the cluster is one of OpenShift.
	openShift bool
	// operator is what the operator's own Pods are.
	operator corev1.PodSpec
	// keep is where agents run in place of where the configuration wants them, or nil.
	keep *placement
}

// component is one of the objects that make up the node component.
type component struct {
	kind       string
	name       string
	namespaced bool
	// ours says that the name belongs to the CSI driver, so that an object without a controller is one that an earlier
	// installation left, and is taken over (contract 1.7).
	ours bool
	// optional is the kind of a component that is only installed where the cluster serves it, or empty.
	optional schema.GroupVersionKind
	// extra says that volumes can be used without it.
	extra bool
	// empty returns an object of the kind to read into.
	empty func() client.Object
	// desired returns an apply configuration without owner and labels.
	desired func(*operatorv1alpha1.ListenerOperator, settings) (any, error)
}

// components are what is installed, in the order in which one needs the other: agents run only confined, and claims are
// only provisioned where there are agents.
func components() []component {
	return append([]component{
		{
			kind: "ValidatingAdmissionPolicy", name: names.NodeAgent, desired: admissionPolicy,
			empty: func() client.Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} },
		},
		{
			kind: "ValidatingAdmissionPolicyBinding", name: names.NodeAgent, desired: admissionPolicyBinding,
			empty: func() client.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{} },
		},
		{
			kind: "CSIDriver", name: names.Driver, ours: true, desired: csiDriver,
			empty: func() client.Object { return &storagev1.CSIDriver{} },
		},
		optionalComponent(names.KindSecurityContextConstraints, component{name: names.NodeAgent, desired: securityContextConstraints}),
		agentsComponent(),
		{
			kind: "StorageClass", name: names.Driver, ours: true, desired: storageClass,
			empty: func() client.Object { return &storagev1.StorageClass{} },
		},
		{
			kind: "NetworkPolicy", name: names.Operator, namespaced: true, extra: true, desired: operatorNetworkPolicy,
			empty: func() client.Object { return &networkingv1.NetworkPolicy{} },
		},
		{
			kind: "NetworkPolicy", name: names.NodeAgent, namespaced: true, extra: true, desired: agentNetworkPolicy,
			empty: func() client.Object { return &networkingv1.NetworkPolicy{} },
		},
		{
			kind: "Service", name: names.MetricsService, namespaced: true, extra: true, desired: metricsService,
			empty: func() client.Object { return &corev1.Service{} },
		},
		optionalComponent(names.KindServiceMonitor, component{name: names.Operator, namespaced: true, extra: true, desired: serviceMonitor}),
		optionalComponent(names.KindPrometheusRule, component{name: names.Operator, namespaced: true, extra: true, desired: prometheusRule}),
		optionalComponent(names.KindConsoleQuickStart, component{name: names.Operator, extra: true, desired: quickStart}),
	}, yamlSamples()...)
}

// agentsComponent is the DaemonSet of node agents.
func agentsComponent() component {
	return component{
		kind: "DaemonSet", name: names.NodeAgent, namespaced: true, desired: daemonSet,
		empty: func() client.Object { return &appsv1.DaemonSet{} },
	}
}

// optionalComponent completes a component that is only installed where the cluster serves its kind.
func optionalComponent(kind schema.GroupVersionKind, c component) component {
	c.kind, c.optional = kind.Kind, kind
	c.empty = func() client.Object {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		return object
	}
	return c
}

// key returns where the component is, given the operator's namespace.
func (c component) key(namespace string) types.NamespacedName {
	if !c.namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: c.name}
}

// object returns the component as it is to be applied, owned by the configuration.
func (c component) object(config *operatorv1alpha1.ListenerOperator, s settings) (*unstructured.Unstructured, error) {
	desired, err := c.desired(config, s)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.kind, c.name, err)
	}
	object, err := apply.Unstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.kind, c.name, err)
	}
	labels := nodeAgentLabels()
	labels[labelManagedBy] = names.Operator
	object.SetLabels(labels)
	// It does not block the configuration's deletion: on OpenShift that takes a right over the configuration's
	// finalizers, and keeps the first start waiting until the admission plugin has learnt of the kind.
	owner := metav1.NewControllerRef(config, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))
	owner.BlockOwnerDeletion = nil
	object.SetOwnerReferences([]metav1.OwnerReference{*owner})
	return object, nil
}

// foreign returns why the observed object must not be written to, or "".
func (c component) foreign(config *operatorv1alpha1.ListenerOperator, observed client.Object) string {
	controller := metav1.GetControllerOf(observed)
	switch {
	case controller == nil && (c.ours || observed.GetLabels()[labelManagedBy] == names.Operator):
		return ""
	case controller == nil:
		return fmt.Sprintf("%s %s exists, and is not this operator's; delete or rename it", c.kind, c.name)
	case controller.UID == config.UID:
		return ""
	case controller.Kind == "ListenerOperator" && controller.Name == config.Name:
		return fmt.Sprintf("%s %s belongs to an earlier ListenerOperator %s, and waits for the garbage collector", c.kind, c.name, config.Name)
	default:
		return fmt.Sprintf("%s %s belongs to %s %s; remove that installation first", c.kind, c.name, controller.Kind, controller.Name)
	}
}

// converted turns a part of the configuration into the apply configuration of the same fields.
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
