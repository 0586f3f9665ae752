// Package installation has the objects that the operator installs, as they are desired: the DaemonSet of node agents
// and what it needs, the admission policies that protect PodListeners and limit the volumes of Pods, and monitoring.
//
// It is pure: objects depend on ListenerOperator/cluster and on Settings alone, not on a clock or the environment.
package installation

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/config/samples"
	"github.com/listener-operator/listener-operator/internal/names"
)

// NodeAgentLabels returns the labels of all components. They also select the agents' Pods, and so cannot change.
func NodeAgentLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": names.Operator, "app.kubernetes.io/component": "node-agent"}
}

type Settings struct {
	Namespace string
	Image     string
	// ServiceAccount is the uid of the agents' ServiceAccount, empty if there is none.
	ServiceAccount types.UID
	// GuardsScheduling is whether the cluster has CSIDriver.spec.preventPodSchedulingIfMissing.
	GuardsScheduling bool
	// ServiceCA is whether the operator's namespace has the ConfigMap ServiceCA.
	ServiceCA   bool
	OperatorPod corev1.PodSpec
	// Agents is how many agents there are during a rollout, and AgentsDown how many of them cannot be replaced.
	Agents, AgentsDown int
	// Placement overrides where the configuration places agents, unless it is nil.
	Placement *Placement
}

type Object interface {
	metav1.Object
	runtime.Object
}

type Component struct {
	Kind       string
	Name       string
	Namespaced bool
	// Adopt is set if the name belongs to the CSI driver, so that an object without a controller is one that an earlier
	// installation left, and is taken over (contract: takeover).
	Adopt bool
	// Optional is the kind of a component that is only installed where the cluster serves it, or empty.
	Optional schema.GroupVersionKind
	Extra    bool

	example Object
}

// Components returns what is installed, in the order of dependencies: agents only run where a policy protects what they
// read, and claims are only provisioned where agents run. Monitoring, and what OpenShift's console shows, are not in
// the bundle for OLM, because an installation there fails where the cluster does not serve one of the kinds.
func Components() []Component {
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	return []Component{
		{Kind: "ValidatingAdmissionPolicy", Name: names.PodListenersPolicy, example: policy},
		{Kind: "ValidatingAdmissionPolicyBinding", Name: names.PodListenersPolicy, example: binding},
		{Kind: "CSIDriver", Name: names.Driver, Adopt: true, example: &storagev1.CSIDriver{}},
		optional(names.KindSecurityContextConstraints, Component{Name: names.NodeAgent}),
		{Kind: "DaemonSet", Name: names.NodeAgent, Namespaced: true, example: &appsv1.DaemonSet{}},
		{Kind: "StorageClass", Name: names.Driver, Adopt: true, example: &storagev1.StorageClass{}},
		{Kind: "ValidatingAdmissionPolicy", Name: names.PodsPolicy, Extra: true, example: policy},
		{Kind: "ValidatingAdmissionPolicyBinding", Name: names.PodsPolicy, Extra: true, example: binding},
		{Kind: "NetworkPolicy", Name: names.Operator, Namespaced: true, Extra: true,
			example: &networkingv1.NetworkPolicy{}},
		{Kind: "NetworkPolicy", Name: names.NodeAgent, Namespaced: true, Extra: true,
			example: &networkingv1.NetworkPolicy{}},
		{Kind: "Service", Name: names.MetricsService, Namespaced: true, Extra: true, example: &corev1.Service{}},
		optional(names.KindServiceMonitor, Component{Name: names.Operator, Namespaced: true, Extra: true}),
		optional(names.KindPrometheusRule, Component{Name: names.Operator, Namespaced: true, Extra: true}),
		optional(names.KindConsoleQuickStart, Component{Name: names.Operator, Extra: true}),
		optional(names.KindConsoleYAMLSample, Component{Name: names.Operator + "-listenerclass", Extra: true}),
		optional(names.KindConsoleYAMLSample, Component{Name: names.Operator + "-listener", Extra: true}),
		optional(names.KindConsoleYAMLSample, Component{Name: names.Operator + "-statefulset", Extra: true}),
	}
}

func optional(kind schema.GroupVersionKind, c Component) Component {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	c.Kind, c.Optional, c.example = kind.Kind, kind, object
	return c
}

func (c Component) Empty() Object { return c.example.DeepCopyObject().(Object) }

func (c Component) Key(namespace string) types.NamespacedName {
	if !c.Namespaced {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: c.Name}
}

func (c Component) Desired(config *operatorv1alpha1.ListenerOperator, s Settings) (*unstructured.Unstructured, error) {
	object, err := c.render(config, s)
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", c.Kind, c.Name, err)
	}
	object.SetNamespace(c.Key(s.Namespace).Namespace)
	labels := NodeAgentLabels()
	labels[names.LabelManagedBy] = names.Operator
	maps.Copy(labels, object.GetLabels())
	object.SetLabels(labels)
	// It does not block the configuration's deletion: on OpenShift that takes permission to update the configuration's
	// finalizers, and delays the first start until the admission plugin has discovered the kind.
	owner := metav1.NewControllerRef(config, operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"))
	owner.BlockOwnerDeletion = nil
	object.SetOwnerReferences([]metav1.OwnerReference{*owner})
	return object, nil
}

// ForeignMessage returns why the observed object must not be modified, or "" if it may.
func (c Component) ForeignMessage(config *operatorv1alpha1.ListenerOperator, observed metav1.Object) string {
	controller := metav1.GetControllerOf(observed)
	switch {
	case controller == nil && (c.Adopt || observed.GetLabels()[names.LabelManagedBy] == names.Operator):
		return ""
	case controller == nil:
		return fmt.Sprintf("%s %s exists and does not belong to this operator; delete or rename it", c.Kind, c.Name)
	case controller.UID == config.UID:
		return ""
	case controller.Kind == "ListenerOperator" && controller.Name == config.Name:
		return fmt.Sprintf("%s %s belongs to an earlier ListenerOperator %s; waiting for the garbage collector to "+
			"delete it", c.Kind, c.Name, config.Name)
	}
	return fmt.Sprintf("%s %s belongs to %s %s; remove that installation first", c.Kind, c.Name, controller.Kind,
		controller.Name)
}

// Immutable reports whether the object of a component is a StorageClass, as Stackable's, that cannot be updated to the
// desired one, so that it has to be deleted and created again.
func Immutable(observed Object) bool {
	class, ok := observed.(*storagev1.StorageClass)
	return ok && class.Provisioner == names.Driver && (len(class.Parameters) > 0 ||
		ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete) != corev1.PersistentVolumeReclaimDelete ||
		ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate)
}

// manifests are the manifests of the components, by kind and name. A placeholder, such as ${namespace}, becomes a value
// in JSON, which is YAML. A line whose value is null is left out. Package text/template would do more, and make the
// program a fifth larger, because it keeps all methods of all types.
//
//go:embed manifests
var manifests embed.FS

var placeholder = regexp.MustCompile(`\$\{\w+\}`)

func (c Component) render(config *operatorv1alpha1.ListenerOperator, s Settings) (*unstructured.Unstructured, error) {
	manifest, err := manifests.ReadFile("manifests/" + strings.ToLower(c.Kind) + "-" + c.Name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	values := commonValues(config, s)
	if c.Kind == "DaemonSet" {
		own, err := daemonSetValues(config, s)
		if err != nil {
			return nil, err
		}
		maps.Copy(values, own)
	}
	var completed strings.Builder
	for line := range strings.Lines(string(manifest)) {
		null := false
		line = placeholder.ReplaceAllStringFunc(line, func(p string) string {
			value, known := values[p[2:len(p)-1]]
			raw, encodingErr := json.Marshal(value)
			if !known {
				encodingErr = fmt.Errorf("there is no value for %s", p)
			}
			err = errors.Join(err, encodingErr)
			null = null || string(raw) == "null"
			return string(raw)
		})
		if !null {
			completed.WriteString(line)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("completing the manifest: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(completed.String()), &object.Object); err != nil {
		return nil, fmt.Errorf("decoding the manifest: %w", err)
	}
	return object, nil
}

// ServiceCA is a ConfigMap of each namespace of OpenShift and MicroShift, with the authority of serving certificates.
const ServiceCA = "openshift-service-ca.crt"

// LabelMonitored is the label of namespaces that the Prometheus of OpenShift itself monitors, if it is "true".
const LabelMonitored = "openshift.io/cluster-monitoring"

func commonValues(config *operatorv1alpha1.ListenerOperator, s Settings) map[string]any {
	values := map[string]any{
		"namespace": s.Namespace, "operatorUser": fmt.Sprintf("system:serviceaccount:%s:%s", s.Namespace,
			names.Operator),
		"maxVolumes":    listenersv1alpha1.MaxVolumes,
		"listenerClass": samples.ListenerClass(), "listener": samples.Listener(), "statefulSet": samples.StatefulSet(),
		// The operator's certificate is self-signed.
		"insecureSkipVerify": true, "serverName": nil, "ca": nil, "metricsAnnotations": nil,
		"preventPodSchedulingIfMissing": nil,
	}
	if s.GuardsScheduling {
		values["preventPodSchedulingIfMissing"] = ptr.Deref(config.Spec.NodeAgent.PreventPodSchedulingIfMissing, true)
	}
	if s.ServiceCA {
		values["insecureSkipVerify"], values["serverName"] = nil, names.MetricsService+"."+s.Namespace+".svc"
		values["ca"] = map[string]any{"configMap": map[string]any{"name": ServiceCA, "key": "service-ca.crt"}}
		// OpenShift creates a serving certificate, in the Secret that the operator's Deployment mounts.
		values["metricsAnnotations"] =
			map[string]any{"service.beta.openshift.io/serving-cert-secret-name": names.MetricsService}
	}
	return values
}
