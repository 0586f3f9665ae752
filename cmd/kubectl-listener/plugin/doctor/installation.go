package doctor

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
)

const (
	remedyInstall = "Install the operator: docs/install.md"
	seeWhyNot     = "See why it has not: kubectl describe listeneroperator cluster"
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
	if d.FollowAll(ctx, f, &deployments, client.MatchingFields{"metadata.name": names.Operator}) == check.Forbidden {
		return
	}
	if len(deployments.Items) == 0 {
		d.Add(f.Failed("", "does not exist in any namespace", remedyInstall))
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		f.Namespace, d.namespace = deployment.Namespace, deployment.Namespace
		d.stopped = deployment.Status.AvailableReplicas == 0
		if ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
			d.stopped = true
			d.Add(f.Failed("", "is scaled to 0 replicas: nothing is provisioned or repaired",
				fmt.Sprintf("Scale it up: kubectl scale --namespace %s deployment/%s --replicas 1", f.Namespace, f.Name)))
			continue
		}
		if d.stopped {
			d.Add(f.Failed("", "has no available Pod: nothing is provisioned or repaired",
				fmt.Sprintf("See why: kubectl describe --namespace %s deployment/%s, and if its Pod was started, kubectl logs --namespace %s deployment/%s",
					f.Namespace, f.Name, f.Namespace, f.Name)))
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
	remedy := "Create it: config/samples/configuration/listeneroperator.yaml has the defaults."
	if d.stopped {
		remedy = "The operator creates it when it runs for the first time."
	}
	if d.Require(ctx, config, f.Failed("", "does not exist, so nothing is installed", remedy).Because()) {
		d.config = config
		d.Add(d.configurationFinding(f, config))
	}
}

func (d *doctor) configurationFinding(f check.Finding, config *operatorv1alpha1.ListenerOperator) check.Finding {
	remedy := "Follow the message. The log of the operator has more: kubectl logs --namespace " + d.namespace + " deployment/" + names.Operator
	degraded := check.Condition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	available := check.Condition(config.Status.Conditions, operatorv1alpha1.ConditionAvailable)
	progressing := check.Condition(config.Status.Conditions, operatorv1alpha1.ConditionProgressing)
	switch {
	case degraded.Status == metav1.ConditionTrue && degraded.Reason == operatorv1alpha1.ReasonOtherOperatorRunning:
		return f.Failed(degraded.Reason, degraded.Message, "See what would change, and the steps: kubectl listener migrate --dry-run")
	case degraded.Status == metav1.ConditionTrue:
		return f.Failed(degraded.Reason, degraded.Message, remedy)
	case available.Status == metav1.ConditionFalse:
		return f.Failed(available.Reason, available.Message, remedy)
	case len(config.Status.Conditions) == 0 || config.Status.ObservedGeneration < config.Generation:
		return f.Failed("", "the operator has not looked at it since it was changed", check.RemedyOperator)
	case config.Spec.ManagementState == operatorv1alpha1.Unmanaged:
		return f.Warning(operatorv1alpha1.ReasonUnmanaged, "managementState is Unmanaged: nothing is repaired")
	case progressing.Status == metav1.ConditionTrue:
		return f.Warning(progressing.Reason, progressing.Message)
	case degraded.Reason == operatorv1alpha1.ReasonOtherClusterDomain:
		return f.Warning(degraded.Reason, degraded.Message)
	case d.stopped:
		return f.Warning("", fmt.Sprintf("was available, version %s, when the operator ran", config.Status.Version))
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

// listeners is the API group of Listeners.
var listeners = listenersv1alpha1.GroupVersion.Group

// operatorPermissions and agentPermissions are the permissions without which no volume works: of each rule in
// config/rbac that concerns all clusters, the one that is needed first.
var (
	operatorPermissions = []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: listeners, Resource: "listenerclasses"},
		{Verb: "create", Group: listeners, Resource: "listeners"},
		{Verb: "patch", Group: listeners, Resource: "listeners", Subresource: "status"},
		{Verb: "create", Group: listeners, Resource: "podlisteners"},
		{Verb: "create", Resource: "services"},
		{Verb: "create", Resource: "persistentvolumes"},
		{Verb: "watch", Resource: "persistentvolumeclaims"},
		{Verb: "patch", Resource: "pods"},
		{Verb: "watch", Resource: "nodes"},
		{Verb: "watch", Resource: "namespaces"},
	}
	agentPermissions = []authorizationv1.ResourceAttributes{{Verb: "watch", Group: listeners, Resource: "podlisteners"}}

	// sccPermission is the permission of node agents to run on OpenShift.
	sccPermission = authorizationv1.ResourceAttributes{
		Verb: "use", Group: names.KindSecurityContextConstraints.Group, Resource: "securitycontextconstraints", Name: names.NodeAgent,
	}
)

// permissions checks the permissions of operator and node agents.
func (d *doctor) permissions(ctx context.Context) {
	if d.namespace == "" {
		return
	}
	ofAgents := agentPermissions
	if slices.ContainsFunc(d.Findings, func(f check.Finding) bool { return f.Kind == names.KindSecurityContextConstraints.Kind }) {
		ofAgents = append(ofAgents, sccPermission)
	}
	d.account(ctx, names.Operator, operatorPermissions)
	d.account(ctx, names.NodeAgent, ofAgents)
}

// account checks the permissions that a ServiceAccount needs.
func (d *doctor) account(ctx context.Context, name string, needed []authorizationv1.ResourceAttributes) {
	f := check.Finding{Kind: "ServiceAccount", Namespace: d.namespace, Name: name}
	var denied []string
	for _, attributes := range needed {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, name),
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		if d.Request("reviewing a permission", func() error { return d.Client.Create(ctx, review) }) == check.Forbidden {
			d.Add(f.Unreadable())
			return
		}
		if !review.Status.Allowed {
			resource, _ := strings.CutSuffix(attributes.Resource+"/"+attributes.Subresource, "/")
			text := attributes.Verb + " " + schema.GroupResource{Group: attributes.Group, Resource: resource}.String() + " " + attributes.Name
			denied = append(denied, strings.TrimSpace(text))
		}
	}
	if len(denied) > 0 {
		d.Add(f.Failed("Forbidden", "may not "+strings.Join(denied, ", "), "Apply the roles and bindings of the operator's release again."))
		return
	}
	d.Add(f.OK("has the permissions that it needs"))
}
