package doctor

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
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
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
		f := check.Finding{Kind: "CustomResourceDefinition", Name: definition.resource + "." + definition.group}
		f = definitionFinding(f, crd, d.Get(ctx, types.NamespacedName{Name: f.Name}, crd), definition.version)
		d.served = d.served && f.State != check.Failed
		d.Add(f)
	}
}

func definitionFinding(f check.Finding, crd *apiextensionsv1.CustomResourceDefinition, found check.Presence, version string) check.Finding {
	serves := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served }
	established := func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}
	switch {
	case found == check.Forbidden:
		return f.Unreadable()
	case found == check.Missing:
		return f.Failed("", "does not exist", remedyInstall)
	case !slices.ContainsFunc(crd.Spec.Versions, serves):
		return f.Failed("", "does not serve version "+version, "Apply the definitions of the operator's release again.")
	case !slices.ContainsFunc(crd.Status.Conditions, established):
		return f.Failed("", "is not established", "See why: kubectl describe crd "+f.Name)
	default:
		return f.OK("serves %s", version)
	}
}

// operator checks the operator's Deployment.
func (d *doctor) operator(ctx context.Context) {
	var deployments appsv1.DeploymentList
	f := check.Finding{Kind: "Deployment", Name: names.Operator}
	if d.FollowAll(ctx, f, &deployments, check.Named(names.Operator)) == check.Forbidden {
		return
	}
	if len(deployments.Items) == 0 {
		d.Add(f.Failed("", "does not exist in any namespace", remedyInstall))
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		f.Namespace, d.namespace = deployment.Namespace, deployment.Namespace
		if deployment.Status.AvailableReplicas == 0 {
			d.Add(f.Failed("", "has no available Pod: nothing is provisioned or repaired",
				fmt.Sprintf("See why: kubectl describe --namespace %s deployment/%s", f.Namespace, f.Name)))
			continue
		}
		d.Add(f.OK("%d Pod is available", deployment.Status.AvailableReplicas))
	}
	if len(deployments.Items) > 1 {
		d.Add(f.Failed("", fmt.Sprintf("exists in %d namespaces, and the operators contradict each other", len(deployments.Items)), "Remove all but one."))
	}
}

// configuration checks ListenerOperator/cluster.
func (d *doctor) configuration(ctx context.Context) {
	if !d.served {
		return
	}
	config := &operatorv1alpha1.ListenerOperator{}
	f := check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	switch d.Follow(ctx, f, config) {
	case check.Missing:
		d.Add(f.Failed("", "does not exist, so nothing is installed", "Create it: config/samples/configuration/listeneroperator.yaml has the defaults."))
	case check.Present:
		d.config = config
		d.Add(d.configurationFinding(f, config))
	}
}

func (d *doctor) configurationFinding(f check.Finding, config *operatorv1alpha1.ListenerOperator) check.Finding {
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
			return f.Failed(c.Reason, c.Message, remedy)
		}
	}
	progressing := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	switch {
	case len(config.Status.Conditions) == 0 || config.Status.ObservedGeneration < config.Generation:
		return f.Failed("", "the operator has not looked at it since it was changed", check.RemedyOperator)
	case config.Spec.ManagementState == operatorv1alpha1.Unmanaged:
		return f.Warning(operatorv1alpha1.ReasonUnmanaged, "managementState is Unmanaged: nothing is repaired")
	case progressing != nil && progressing.Status == metav1.ConditionTrue:
		return f.Warning(progressing.Reason, progressing.Message)
	default:
		return f.OK("available, version %s", config.Status.Version)
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
	f := check.Finding{Kind: c.Kind, Namespace: key.Namespace, Name: key.Name}
	found := d.Get(ctx, key, observed.(client.Object))
	if found == check.Missing && !c.Optional.Empty() && !d.serves(ctx, c) {
		return
	}
	f, err := d.componentFinding(f, c, observed, found)
	d.Err = cmp.Or(d.Err, err)
	d.Add(f)
	if agents, ok := observed.(*appsv1.DaemonSet); ok && found == check.Present {
		d.daemonSet = agents
	}
}

// serves reports whether the cluster serves the kind of an optional component.
func (d *doctor) serves(ctx context.Context, c components.Component) bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(c.Optional)
	return d.List(ctx, list, client.Limit(1)) == check.Present
}

func (d *doctor) componentFinding(f check.Finding, c components.Component, observed components.Object, found check.Presence) (check.Finding, error) {
	switch found {
	case check.Forbidden:
		return f.Unreadable(), nil
	case check.Missing:
		return f.Failed("", "does not exist", "The operator installs it. See why it has not: kubectl describe listeneroperator cluster"), nil
	}
	if foreign := c.ForeignMessage(d.config, observed); foreign != "" {
		return f.Failed(operatorv1alpha1.ReasonForeignObject, foreign, "Remove what belongs to the other installation."), nil
	}
	if !c.Adopt { // the others depend on more than the configuration
		return f.OK("is installed"), nil
	}
	desired, err := c.Desired(d.config, components.Settings{Namespace: d.namespace})
	if err != nil {
		return f, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(observed)
	if err != nil {
		return f, fmt.Errorf("decoding %s: %w", f.Object(), err)
	}
	desired.Object["metadata"] = nil
	delete(desired.Object, "apiVersion")
	delete(desired.Object, "kind")
	if field := difference("", desired.Object, content); field != "" {
		return f.Failed("", "differs from what the operator installs, in "+field[1:], "The operator repairs it. See why it has not: kubectl describe listeneroperator cluster"), nil
	}
	return f.OK("is installed"), nil
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
