package walk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	components "github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

type Installation struct {
	// Served states that all definitions exist, so that the objects of these kinds can be read.
	Served bool
	// Stopped states that the operator does not run or lacks permissions, so that no status is up to date.
	Stopped bool
	// namespace is the operator's, or empty if it was not found.
	namespace string
	// config and daemonSet are nil if they do not exist or cannot be read.
	config    *operatorv1alpha1.ListenerOperator
	daemonSet *appsv1.DaemonSet
}

const (
	remedyInstall = "Install the operator: docs/install.md"
	seeWhyNot     = "See why it has not: kubectl describe listeneroperator cluster"
)

// ExamineInstallation follows the definitions, the operator with its permissions and its configuration, and what it
// installs.
func (w *Walk) ExamineInstallation(ctx context.Context) *Installation {
	i := &Installation{}
	w.definitions(ctx, i)
	w.deployments(ctx, i)
	if i.namespace != "" && !w.permissions(ctx, i, names.Operator, operatorPermissions) {
		i.Stopped = true // it may not write what it finds
	}
	if i.Served {
		w.configuration(ctx, i)
		w.injection(ctx, i.config != nil && i.config.Spec.Injection == operatorv1alpha1.InjectionEnabled)
	}
	if i.namespace == "" {
		return i
	}
	ofAgents := agentPermissions
	for _, c := range components.Components() {
		if i.config != nil && !c.Extra && w.component(ctx, i, c) &&
			c.Kind == names.KindSecurityContextConstraints.Kind {
			ofAgents = append(ofAgents, sccPermission)
		}
	}
	w.permissions(ctx, i, names.NodeAgent, ofAgents)
	return i
}

func (w *Walk) definitions(ctx context.Context, i *Installation) {
	i.Served = true
	for _, definition := range []schema.GroupVersionResource{
		listenersv1alpha1.GroupVersion.WithResource("listeners"),
		listenersv1alpha1.GroupVersion.WithResource("listenerclasses"),
		listenersv1alpha1.GroupVersion.WithResource("podlisteners"),
		operatorv1alpha1.GroupVersion.WithResource("listeneroperators"),
	} {
		f := w.definition(ctx, check.Finding{Kind: "CustomResourceDefinition",
			Name: definition.GroupResource().String()}, definition.Version)
		i.Served = i.Served && f.State != check.Failed
		w.Add(f)
	}
}

func (w *Walk) definition(ctx context.Context, f check.Finding, version string) check.Finding {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	switch found := w.Get(ctx, types.NamespacedName{Name: f.Name}, crd); {
	case found == check.Forbidden:
		return f.Unreadable()
	case found == check.Missing:
		return f.Failed("", "does not exist", remedyInstall)
	case !apihelpers.HasServedCRDVersion(crd, version):
		return f.Failed("", "does not serve version "+version, "Apply the definitions of the operator's release again.")
	case !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established):
		return f.Failed("", "is not established", "See why: kubectl describe crd "+f.Name)
	}
	return f.OK("serves %s", version)
}

func (w *Walk) deployments(ctx context.Context, i *Installation) {
	var deployments appsv1.DeploymentList
	f := check.Finding{Kind: "Deployment", Name: names.Operator}
	if w.ReadAll(ctx, f, &deployments, client.MatchingFields{"metadata.name": names.Operator}) == check.Forbidden {
		return
	}
	if len(deployments.Items) == 0 {
		w.Add(f.Failed("", "does not exist in any namespace", remedyInstall))
	}
	for deployment := range check.Each(deployments.Items) {
		f.Namespace, i.namespace = deployment.Namespace, deployment.Namespace
		why, remedy := w.idle(ctx, deployment)
		if i.Stopped = why != ""; i.Stopped {
			w.Add(f.Failed("", why+": nothing is provisioned or repaired", remedy))
		} else {
			w.Add(w.update(ctx, f, deployment))
		}
	}
	if len(deployments.Items) > 1 {
		w.Add(f.Failed("", fmt.Sprintf("exists in %d namespaces, and the operators contradict each other",
			len(deployments.Items)), "Remove all but one."))
	}
}

// renewalOverdue is how long the lease of an operator that works may have expired, by the clock of the command.
const renewalOverdue = time.Minute

// idle returns why an operator does nothing, and what to do, or "".
func (w *Walk) idle(ctx context.Context, deployment *appsv1.Deployment) (why, remedy string) {
	namespace := deployment.Namespace
	logs := fmt.Sprintf("See why: %s, and if its Pod was started, kubectl logs --namespace %s deployment/%s",
		describe("deployment", deployment), namespace, deployment.Name)
	switch {
	case ptr.Deref(deployment.Spec.Replicas, 1) == 0:
		return "is scaled to 0 replicas",
			fmt.Sprintf("Scale it up: kubectl scale --namespace %s deployment/%s --replicas 1", namespace,
				deployment.Name)
	case deployment.Status.AvailableReplicas == 0:
		return "has no available Pod", logs
	}
	var lease coordinationv1.Lease
	w.Get(ctx, client.ObjectKeyFromObject(deployment), &lease) // if it cannot be read, it counts as renewed
	renewed := ptr.Deref(lease.Spec.RenewTime, metav1.NewMicroTime(w.Now()))
	expired := w.Now().Sub(renewed.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second))
	if expired < renewalOverdue {
		return "", ""
	}
	return "has available Pods, but none that works: the lease of the leader expired " +
		duration.HumanDuration(expired) + " ago", logs
}

// update returns whether all Pods of an operator that works are available, and otherwise why its update hangs.
func (w *Walk) update(ctx context.Context, f check.Finding, deployment *appsv1.Deployment) check.Finding {
	status := deployment.Status
	recent := slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && w.Young(c.LastUpdateTime.Time)
	})
	var pods corev1.PodList
	if recent || status.UnavailableReplicas == 0 ||
		w.List(ctx, &pods, client.InNamespace(deployment.Namespace),
			client.MatchingLabels(deployment.Spec.Selector.MatchLabels)) != check.Present {
		return f.OK("%d Pod is available", status.AvailableReplicas)
	}
	other, remedy := "another one is not created", "See why: "+describe("deployment", deployment)
	for pod := range check.Each(pods.Items) {
		if !claim.PodReady(pod) && pod.DeletionTimestamp == nil {
			why := w.podWithEvents(ctx, pod)
			other, remedy = fmt.Sprintf("Pod %s, which should replace it or run beside it, is not ready: %s", pod.Name,
				why.Text()), why.Remedy
		}
	}
	return f.Failed("", fmt.Sprintf("%d Pod is available, and %s", status.AvailableReplicas, other), remedy)
}

// operator reports that the operator does not run, from which whatever is wrong with an address may follow.
func (w *Walk) operator(ctx context.Context) {
	var deployments appsv1.DeploymentList
	w.List(ctx, &deployments, client.MatchingFields{"metadata.name": names.Operator})
	for deployment := range check.Each(deployments.Items) {
		why, remedy := w.idle(ctx, deployment)
		if why == "" {
			return
		}
		f := check.Finding{Kind: "Deployment", Namespace: deployment.Namespace, Name: deployment.Name}
		if slices.ContainsFunc(w.Findings, func(f check.Finding) bool {
			return f.State == check.Failed && !f.IsAside()
		}) {
			w.Findings = slices.Insert(w.Findings, 0, f.Failed("", why+", so nothing follows changes, and what is "+
				"said about other objects may be out of date", remedy))
		} else {
			w.Add(f.Warning("", why+", so nothing follows changes"))
		}
		w.instead(remedyStopped(deployment.Namespace))
	}
}

func remedyStopped(namespace string) string {
	return fmt.Sprintf("The operator does not work, so it does nothing about this. See why: kubectl listener doctor, "+
		"and kubectl describe deployment %s --namespace %s", names.Operator, namespace)
}

func (w *Walk) instead(remedy string) {
	for f := range check.Each(w.Findings) {
		if f.Actor == reasons.Operator {
			f.Remedy, f.Actor = remedy, reasons.Administrator
		}
	}
}

// ForAdministrators replaces the advice to wait for the operator, which is for users.
func (w *Walk) ForAdministrators(i *Installation) {
	remedy := fmt.Sprintf("See the log of the operator: kubectl logs --namespace %s deployment/%s",
		cmp.Or(i.namespace, "NAMESPACE"), names.Operator)
	if i.Stopped {
		remedy = remedyStopped(i.namespace)
	}
	w.instead(remedy)
}

func (w *Walk) configuration(ctx context.Context, i *Installation) {
	config := &operatorv1alpha1.ListenerOperator{}
	f := check.Finding{Kind: "ListenerOperator", Name: operatorv1alpha1.ListenerOperatorName}
	remedy := "Create it: config/samples/configuration/listeneroperator.yaml has the defaults."
	if i.Stopped {
		remedy = "The operator creates it when it runs for the first time."
	}
	if w.Require(ctx, config, f.Failed("", "does not exist, so nothing is installed", remedy).Symptom()) {
		i.config = config
		w.Add(i.configurationFinding(f))
	}
}

func (i *Installation) configurationFinding(f check.Finding) check.Finding {
	conditions, namespace := i.config.Status.Conditions, []string{"{namespace}", i.namespace}
	degraded := check.Condition(conditions, operatorv1alpha1.ConditionDegraded)
	available := check.Condition(conditions, operatorv1alpha1.ConditionAvailable)
	progressing := check.Condition(conditions, operatorv1alpha1.ConditionProgressing)
	switch {
	case degraded.Status == metav1.ConditionTrue:
		return f.FailedBy(degraded.Reason, degraded.Message, namespace...)
	case available.Status == metav1.ConditionFalse:
		return f.FailedBy(available.Reason, available.Message, namespace...)
	case len(conditions) == 0 || i.config.Status.ObservedGeneration < i.config.Generation:
		return f.LeftToOperator("", "the operator has not looked at it since it was changed")
	case i.config.Spec.ManagementState == operatorv1alpha1.Unmanaged:
		return f.Warning(operatorv1alpha1.ReasonUnmanaged, "managementState is Unmanaged: nothing is repaired")
	case progressing.Status == metav1.ConditionTrue:
		return f.Warning(progressing.Reason, progressing.Message)
	case degraded.Reason == operatorv1alpha1.ReasonOtherClusterDomain:
		return f.Warning(degraded.Reason, degraded.Message)
	case i.Stopped:
		return f.Warning("", fmt.Sprintf("was available, version %s, when the operator last worked",
			i.config.Status.Version))
	}
	return f.OK("available, version %s", i.config.Status.Version)
}

// component follows an object that the operator installs. It returns whether the cluster serves the kind.
func (w *Walk) component(ctx context.Context, i *Installation, c components.Component) bool {
	key, observed := c.Key(i.namespace), c.Empty()
	_, served := Served(w.Client, &exposure.Kind{GroupVersionKind: c.Optional})
	f := check.Finding{Kind: c.Kind, Namespace: key.Namespace, Name: key.Name}
	switch found := w.Read(ctx, f, observed.(client.Object)); {
	case found == check.Present:
		if daemonSet, ok := observed.(*appsv1.DaemonSet); ok {
			i.daemonSet = daemonSet
		}
		w.Add(w.installed(f, i, c, observed))
	case found == check.Missing && !c.Optional.Empty() && !served:
		return false
	case found == check.Missing:
		w.Add(f.Failed("", "does not exist", "The operator installs it. "+seeWhyNot))
	}
	return true
}

func (w *Walk) installed(f check.Finding, i *Installation, c components.Component,
	observed components.Object) check.Finding {
	if foreign := c.ForeignMessage(i.config, observed); foreign != "" {
		return f.FailedBy(operatorv1alpha1.ReasonForeignObject, foreign)
	}
	if !c.Adopt { // the others depend on more than the configuration
		return f.OK("is installed")
	}
	desired, err := c.Desired(i.config, components.Settings{Namespace: i.namespace})
	content, decodeErr := runtime.DefaultUnstructuredConverter.ToUnstructured(observed)
	if err := cmp.Or(err, decodeErr); err != nil {
		w.Err = cmp.Or(w.Err, fmt.Errorf("comparing %s: %w", f.Object(), err))
		return f
	}
	desired.Object["metadata"] = nil
	delete(desired.Object, "apiVersion")
	delete(desired.Object, "kind")
	if field := difference("", desired.Object, content); field != "" {
		return f.Failed("", "differs from what the operator installs, in "+field[1:], "The operator repairs it. "+
			seeWhyNot)
	}
	return f.OK("is installed")
}

// difference returns the path of a field of desired that observed does not have, or "". Null matches everything. Lists
// are sets, and a field that a cluster does not have, or leaves out, is false.
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
		if len(existing) == len(desired) && !slices.ContainsFunc(desired,
			func(v any) bool { return !slices.Contains(existing, v) }) {
			return ""
		}
	default:
		if reflect.DeepEqual(desired, observed) || observed == nil && desired == false {
			return ""
		}
	}
	return path
}

// operatorPermissions and agentPermissions are the permissions without which no volume works: of each rule in
// config/rbac that concerns all clusters, the one that is needed first.
var (
	apiGroup            = listenersv1alpha1.GroupVersion.Group
	operatorPermissions = []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: apiGroup, Resource: "listenerclasses"},
		{Verb: "create", Group: apiGroup, Resource: "listeners"},
		{Verb: "patch", Group: apiGroup, Resource: "listeners", Subresource: "status"},
		{Verb: "create", Group: apiGroup, Resource: "podlisteners"},
		{Verb: "create", Resource: "services"},
		{Verb: "create", Resource: "persistentvolumes"},
		{Verb: "watch", Resource: "persistentvolumeclaims"},
		{Verb: "patch", Resource: "pods"},
		{Verb: "watch", Resource: "nodes"},
		{Verb: "watch", Resource: "namespaces"},
	}
	agentPermissions = []authorizationv1.ResourceAttributes{{Verb: "watch", Group: apiGroup, Resource: "podlisteners"}}

	// sccPermission is the permission of node agents to run on OpenShift.
	sccPermission = authorizationv1.ResourceAttributes{
		Verb: "use", Group: names.KindSecurityContextConstraints.Group, Resource: "securitycontextconstraints",
		Name: names.NodeAgent,
	}
)

// permissions returns whether a ServiceAccount has what it needs, as far as the user may know.
func (w *Walk) permissions(ctx context.Context, i *Installation, account string,
	needed []authorizationv1.ResourceAttributes) bool {
	f := check.Finding{Kind: "ServiceAccount", Namespace: i.namespace, Name: account}
	var denied []string
	for _, attributes := range needed {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: fmt.Sprintf("system:serviceaccount:%s:%s", i.namespace, account),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + i.namespace,
				"system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		if w.Readable(f, w.Request("reviewing a permission", func() error {
			return w.Client.Create(ctx, review)
		})) == check.Forbidden {
			return true
		}
		if !review.Status.Allowed {
			resource, _ := strings.CutSuffix(attributes.Resource+"/"+attributes.Subresource, "/")
			text := attributes.Verb + " " + schema.GroupResource{Group: attributes.Group, Resource: resource}.String() +
				" " + attributes.Name
			denied = append(denied, strings.TrimSpace(text))
		}
	}
	if len(denied) > 0 {
		w.Add(f.Failed("Forbidden", "may not "+strings.Join(denied, ", "), "Apply the roles and bindings of the "+
			"operator's release again."))
		return false
	}
	w.Add(f.OK("has the permissions that it needs"))
	return true
}

// Authorities follows whether the operator can sign certificates, from what it says and has issued. It reads no Secret.
func (w *Walk) Authorities(ctx context.Context, i *Installation) {
	f := check.Finding{Kind: "PodCertificateRequest"}
	var all certificatesv1.PodCertificateRequestList
	if w.ReadAll(ctx, f, &all) != check.Present {
		return
	}
	var issued []time.Time
	for request := range check.Each(all.Items) {
		if conditions := request.Status.Conditions; request.Spec.SignerName == names.Signer && len(conditions) > 0 &&
			conditions[0].Type == certificatesv1.PodCertificateRequestConditionTypeIssued {
			issued = append(issued, conditions[0].LastTransitionTime.Time)
		}
	}
	if len(issued) > 0 {
		w.Add(f.OK("%d were granted lately", len(issued)))
	}
	if i.config == nil {
		return
	}
	damage := w.LastEvent(ctx, i.config, func(e *corev1.Event) bool {
		return e.Reason == operatorv1alpha1.ReasonCertificateAuthorityDamaged
	})
	if damage != nil && !slices.ContainsFunc(issued, check.EventTime(damage).Before) { // it has issued nothing since
		w.Add(check.Finding{Kind: "Secret", Namespace: i.namespace,
			Name: names.CertificateAuthoritySecret}.FailedBy(damage.Reason, damage.Message))
	}
}

// SlowRequests follows what the operator says about namespaces whose objects occupy a controller for long.
func (w *Walk) SlowRequests(ctx context.Context) {
	var events corev1.EventList // those of objects without a namespace
	w.ReadAll(ctx, check.Finding{Kind: "Event"}, &events, client.InNamespace(metav1.NamespaceDefault))
	last := map[string]*corev1.Event{}
	for e := range check.Each(events.Items) {
		namespace := e.InvolvedObject.Name
		if e.Reason == operatorv1alpha1.ReasonSlowRequest && e.ReportingController == names.EventReporter &&
			e.InvolvedObject.Kind == "Namespace" &&
			(last[namespace] == nil || check.EventTime(e).After(check.EventTime(last[namespace]))) {
			last[namespace] = e
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		w.Add(check.Finding{Kind: "Namespace", Name: name}.Warning(operatorv1alpha1.ReasonSlowRequest,
			last[name].Message))
	}
}
