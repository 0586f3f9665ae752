package plugin

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

// installation is what the checks found of the operator.
type installation struct {
	// namespace is the operator's, or empty if it was not found.
	namespace string
	// served reports whether all definitions exist, so that the objects of these kinds can be read.
	served bool
	// config is nil if it does not exist or cannot be read.
	config *operatorv1alpha1.ListenerOperator
	// daemonSet is nil if it does not exist or cannot be read.
	daemonSet *appsv1.DaemonSet
}

const (
	remedyInstall       = "Install the operator: docs/install.md"
	remedyConfiguration = "Follow the message. The log of the operator has more: kubectl logs --namespace %s deployment/" + names.Operator
)

// definitions checks the CustomResourceDefinitions.
func (d *doctor) definitions(ctx context.Context) {
	d.served = true
	for _, definition := range []struct{ resource, group, version string }{
		{"listeners", listenersv1alpha1.GroupVersion.Group, listenersv1alpha1.GroupVersion.Version},
		{"listenerclasses", listenersv1alpha1.GroupVersion.Group, listenersv1alpha1.GroupVersion.Version},
		{"podlisteners", listenersv1alpha1.GroupVersion.Group, listenersv1alpha1.GroupVersion.Version},
		{"listeneroperators", operatorv1alpha1.GroupVersion.Group, operatorv1alpha1.GroupVersion.Version},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		f := finding{Kind: "CustomResourceDefinition", Name: definition.resource + "." + definition.group}
		f = definitionFinding(f, crd, d.get(ctx, types.NamespacedName{Name: f.Name}, crd), definition.version)
		d.served = d.served && f.State != stateFailed
		d.add(f)
	}
}

func definitionFinding(f finding, crd *apiextensionsv1.CustomResourceDefinition, found presence, version string) finding {
	serves := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served }
	established := func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}
	switch {
	case found == forbidden:
		return f.unreadable()
	case found == missing:
		return f.failed("", "does not exist", remedyInstall)
	case !slices.ContainsFunc(crd.Spec.Versions, serves):
		return f.failed("", "does not serve version "+version, "Apply the definitions of the operator's release again.")
	case !slices.ContainsFunc(crd.Status.Conditions, established):
		return f.failed("", "is not established", "See why: kubectl describe crd "+f.Name)
	default:
		return f.ok("serves %s", version)
	}
}

// named returns the options to list the objects of a name in all namespaces.
func named(name string) client.ListOption { return client.MatchingFields{"metadata.name": name} }

// operator checks the operator's Deployment.
func (d *doctor) operator(ctx context.Context) {
	var deployments appsv1.DeploymentList
	f := finding{Kind: "Deployment", Name: names.Operator}
	if d.followAll(ctx, f, &deployments, named(names.Operator)) == forbidden {
		return
	}
	if len(deployments.Items) == 0 {
		d.add(f.failed("", "does not exist in any namespace", remedyInstall))
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		f.Namespace, d.namespace = deployment.Namespace, deployment.Namespace
		if deployment.Status.AvailableReplicas == 0 {
			d.add(f.failed("", "has no available Pod: nothing is provisioned or repaired",
				fmt.Sprintf("See why: kubectl describe --namespace %s deployment/%s", f.Namespace, f.Name)))
			continue
		}
		d.add(f.ok("%d Pod is available", deployment.Status.AvailableReplicas))
	}
	if len(deployments.Items) > 1 {
		d.add(f.failed("", fmt.Sprintf("exists in %d namespaces, and the operators contradict each other", len(deployments.Items)), "Remove all but one."))
	}
}

// configuration checks ListenerOperator/cluster.
func (d *doctor) configuration(ctx context.Context) {
	if !d.served {
		return
	}
	config := &operatorv1alpha1.ListenerOperator{}
	f := finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	switch d.follow(ctx, f, config) {
	case missing:
		d.add(f.failed("", "does not exist, so nothing is installed", "Create it: config/samples/configuration/listeneroperator.yaml has the defaults."))
	case present:
		d.config = config
		d.add(d.configurationFinding(f, config))
	}
}

func (d *doctor) configurationFinding(f finding, config *operatorv1alpha1.ListenerOperator) finding {
	remedy := fmt.Sprintf(remedyConfiguration, d.namespace)
	for _, wrong := range []struct {
		condition string
		status    metav1.ConditionStatus
	}{
		{operatorv1alpha1.ConditionDegraded, metav1.ConditionTrue}, {operatorv1alpha1.ConditionAvailable, metav1.ConditionFalse},
	} {
		if c := meta.FindStatusCondition(config.Status.Conditions, wrong.condition); c != nil && c.Status == wrong.status {
			if c.Reason == operatorv1alpha1.ReasonOtherOperatorRunning {
				remedy = "See what would change, and the steps: kubectl listener migrate --dry-run"
			}
			return f.failed(c.Reason, c.Message, remedy)
		}
	}
	progressing := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	switch {
	case len(config.Status.Conditions) == 0 || config.Status.ObservedGeneration < config.Generation:
		return f.failed("", "the operator has not looked at it since it was changed", remedyOperator)
	case config.Spec.ManagementState == operatorv1alpha1.Unmanaged:
		return f.warning(operatorv1alpha1.ReasonUnmanaged, "managementState is Unmanaged: nothing is repaired")
	case progressing != nil && progressing.Status == metav1.ConditionTrue:
		return f.warning(progressing.Reason, progressing.Message)
	default:
		return f.ok("available, version %s", config.Status.Version)
	}
}

// components checks the objects that the operator installs and without which volumes cannot be used.
func (d *doctor) components(ctx context.Context) {
	if d.config == nil || d.namespace == "" {
		return
	}
	for _, c := range components.Components() {
		if !c.Extra {
			d.component(ctx, c)
		}
	}
}

// component checks one object that the operator installs, if the cluster serves its kind.
func (d *doctor) component(ctx context.Context, c components.Component) {
	key, observed := c.Key(d.namespace), c.Empty()
	f := finding{Kind: c.Kind, Namespace: key.Namespace, Name: key.Name}
	found := d.get(ctx, key, observed.(client.Object))
	if found == missing && !c.Optional.Empty() && !d.serves(ctx, c) {
		return
	}
	f, err := d.componentFinding(f, c, observed, found)
	d.err = cmp.Or(d.err, err)
	d.add(f)
	if agents, ok := observed.(*appsv1.DaemonSet); ok && found == present {
		d.daemonSet = agents
	}
}

// serves reports whether the cluster serves the kind of an optional component.
func (d *doctor) serves(ctx context.Context, c components.Component) bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(c.Optional)
	return d.list(ctx, list, client.Limit(1)) == present
}

func (d *doctor) componentFinding(f finding, c components.Component, observed components.Object, found presence) (finding, error) {
	switch found {
	case forbidden:
		return f.unreadable(), nil
	case missing:
		return f.failed("", "does not exist", "The operator installs it. See why it has not: kubectl describe listeneroperator cluster"), nil
	}
	if foreign := c.ForeignMessage(d.config, observed); foreign != "" {
		return f.failed(operatorv1alpha1.ReasonForeignObject, foreign, "Remove what belongs to the other installation."), nil
	}
	if !c.Adopt { // the others depend on more than the configuration
		return f.ok("is installed"), nil
	}
	desired, err := c.Desired(d.config, components.Settings{Namespace: d.namespace})
	if err != nil {
		return f, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(observed)
	if err != nil {
		return f, fmt.Errorf("decoding %s: %w", f.object(), err)
	}
	desired.Object["metadata"] = nil
	delete(desired.Object, "apiVersion")
	delete(desired.Object, "kind")
	if field := difference("", desired.Object, content); field != "" {
		return f.failed("", "differs from what the operator installs, in "+field[1:], "The operator repairs it. See why it has not: kubectl describe listeneroperator cluster"), nil
	}
	return f.ok("is installed"), nil
}

// difference returns the path of a field of desired that observed does not have, or "". Null matches everything.
func difference(path string, desired, observed any) string {
	if fields, ok := desired.(map[string]any); ok {
		existing, _ := observed.(map[string]any)
		for name, value := range fields {
			if different := difference(path+"."+name, value, existing[name]); different != "" {
				return different
			}
		}
		return ""
	}
	if list, ok := desired.([]any); ok {
		existing, _ := observed.([]any)
		if len(existing) != len(list) || slices.ContainsFunc(list, func(v any) bool { return !slices.Contains(existing, v) }) {
			return path
		}
		return ""
	}
	if desired == nil || reflect.DeepEqual(desired, observed) {
		return ""
	}
	return path
}
