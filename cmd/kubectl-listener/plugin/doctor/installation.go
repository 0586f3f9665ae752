package doctor

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

const (
	remedyInstall       = "Install the operator: docs/install.md"
	seeWhyNot           = "See why it has not: kubectl describe listeneroperator cluster"
	remedyConfiguration = "Follow the message. The log of the operator has more: kubectl logs --namespace %s deployment/" + names.Operator
)

// definitions checks the CustomResourceDefinitions.
func (d *doctor) definitions(ctx context.Context) {
	d.served = true
	for _, definition := range []schema.GroupVersionResource{
		listenersv1alpha1.GroupVersion.WithResource("listeners"), listenersv1alpha1.GroupVersion.WithResource("listenerclasses"),
		listenersv1alpha1.GroupVersion.WithResource("podlisteners"), operatorv1alpha1.GroupVersion.WithResource("listeneroperators"),
	} {
		f := d.definition(ctx, check.Finding{Kind: "CustomResourceDefinition", Name: definition.GroupResource().String()}, definition.Version)
		d.served = d.served && f.State != check.Failed
		d.Add(f)
	}
}

func (d *doctor) definition(ctx context.Context, f check.Finding, version string) check.Finding {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	switch found := d.Get(ctx, types.NamespacedName{Name: f.Name}, crd); {
	case found == check.Forbidden:
		return f.Unreadable()
	case found == check.Missing:
		return f.Failed("", "does not exist", remedyInstall)
	case !apihelpers.HasServedCRDVersion(crd, version):
		return f.Failed("", "does not serve version "+version, "Apply the definitions of the operator's release again.")
	case !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established):
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
	switch found := d.Get(ctx, key, observed.(client.Object)); {
	case found == check.Forbidden:
		d.Add(f.Unreadable())
	case found == check.Present:
		if agents, ok := observed.(*appsv1.DaemonSet); ok {
			d.daemonSet = agents
		}
		d.Add(d.installed(f, c, observed))
	case c.Optional.Empty() || d.serves(c.Optional):
		d.Add(f.Failed("", "does not exist", "The operator installs it. "+seeWhyNot))
	}
}

// installed returns whether an object is what the operator installs.
func (d *doctor) installed(f check.Finding, c components.Component, observed components.Object) check.Finding {
	if foreign := c.ForeignMessage(d.config, observed); foreign != "" {
		return f.Failed(operatorv1alpha1.ReasonForeignObject, foreign, "Remove what belongs to the other installation.")
	}
	if !c.Adopt { // the others depend on more than the configuration
		return f.OK("is installed")
	}
	desired, err := c.Desired(d.config, components.Settings{Namespace: d.namespace})
	content, decodeErr := runtime.DefaultUnstructuredConverter.ToUnstructured(observed)
	if err := cmp.Or(err, decodeErr); err != nil {
		d.Err = cmp.Or(d.Err, fmt.Errorf("comparing %s: %w", f.Object(), err))
		return f
	}
	desired.Object["metadata"] = nil
	delete(desired.Object, "apiVersion")
	delete(desired.Object, "kind")
	if field := difference("", desired.Object, content); field != "" {
		return f.Failed("", "differs from what the operator installs, in "+field[1:], "The operator repairs it. "+seeWhyNot)
	}
	return f.OK("is installed")
}

// difference returns the path of a field of desired that observed does not have, or "". Null matches everything.
func difference(path string, desired, observed any) string {
	switch desired := desired.(type) {
	case nil:
		return ""
	case map[string]any:
		existing, _ := observed.(map[string]any)
		for name, value := range desired {
			if different := difference(path+"."+name, value, existing[name]); different != "" {
				return different
			}
		}
		return ""
	case []any:
		existing, _ := observed.([]any)
		if len(existing) == len(desired) && !slices.ContainsFunc(desired, func(v any) bool { return !slices.Contains(existing, v) }) {
			return ""
		}
	default:
		if reflect.DeepEqual(desired, observed) {
			return ""
		}
	}
	return path
}
