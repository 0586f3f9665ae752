package migrate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// What Helm and the Operator Lifecycle Manager (OLM) write on the objects that they install.
const (
	annotationHelmRelease   = "meta.helm.sh/release-name"
	annotationHelmNamespace = "meta.helm.sh/release-namespace"
	// annotationHelmPolicy is "keep" on objects that an uninstallation leaves.
	annotationHelmPolicy = "helm.sh/resource-policy"
	// olmPackage is the name of the package of Stackable's listener operator in catalogues.
	olmPackage = "stackable-listener-operator"
	// labelOLM begins the label that OLM sets on what belongs to a package. It ends with the namespace.
	labelOLM = "operators.coreos.com/" + olmPackage + "."
)

var groupVersionOLM = schema.GroupVersion{Group: "operators.coreos.com", Version: "v1alpha1"}

// other is what there is of Stackable's listener operator.
type other struct {
	stackable.Installation
	// releases are the Helm releases that its workloads belong to.
	releases []types.NamespacedName
	// subscriptions and versions are its objects in OLM.
	subscriptions, versions []types.NamespacedName
	// preset and clusterDomain are its settings, or empty if they are unknown. Each has a default.
	preset, clusterDomain string
	// agents is the Pod template of its node driver, or empty if it is unknown.
	agents corev1.PodSpec
}

// runs reports whether the operator runs.
func (o *other) runs() bool { return len(o.Workloads) > 0 }

// observeOther finds the other operator by its Pods, and how it was installed.
func (m *migration) observeOther(ctx context.Context) {
	var pods corev1.PodList
	m.FollowAll(ctx, check.Finding{Kind: "Pod"}, &pods)
	m.Readable(check.Finding{Kind: "SubjectAccessReview"}, m.Request("looking for Stackable's listener operator", func() (err error) {
		m.other.Installation, err = stackable.Among(ctx, m.Client, pods.Items, time.Now())
		return err
	}))
	for _, w := range m.other.Workloads {
		m.observeWorkload(ctx, w)
	}
	m.observeOLM(ctx)
	if !m.other.runs() {
		m.Add(check.Finding{Kind: "Deployment"}.OK("Stackable's listener operator does not run"))
	}
}

// observeWorkload reads a Deployment or a DaemonSet of the other operator.
func (m *migration) observeWorkload(ctx context.Context, w stackable.Workload) {
	f := check.Finding{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
	var o client.Object
	var template *corev1.PodSpec
	switch w.Kind {
	case "Deployment":
		deployment := &appsv1.Deployment{}
		o, template = deployment, &deployment.Spec.Template.Spec
	case "DaemonSet":
		daemonSet := &appsv1.DaemonSet{}
		o, template = daemonSet, &daemonSet.Spec.Template.Spec
	default:
		m.Add(f.Warning("", "runs Stackable's listener operator"))
		return
	}
	if m.Follow(ctx, f, o) == check.Forbidden {
		return
	}
	if w.Kind == "DaemonSet" {
		m.other.agents = *template
	}
	var image string
	for _, c := range template.Containers {
		image = cmp.Or(image, ", image "+c.Image)
		for _, v := range c.Env {
			switch v.Name { // contract: takeover
			case "LISTENER_CLASS_PRESET":
				m.other.preset = v.Value
			case "KUBERNETES_CLUSTER_DOMAIN":
				m.other.clusterDomain = v.Value
			}
		}
	}
	installed := "not by Helm"
	if release := o.GetAnnotations()[annotationHelmRelease]; release != "" {
		key := types.NamespacedName{Namespace: o.GetAnnotations()[annotationHelmNamespace], Name: release}
		if !slices.Contains(m.other.releases, key) {
			m.other.releases = append(m.other.releases, key)
		}
		installed = "with the Helm release " + key.String()
	}
	m.Add(f.OK("runs Stackable's listener operator%s, installed %s", image, installed))
}

// observeOLM finds the Subscription and the ClusterServiceVersion of the other operator, if the cluster serves them.
func (m *migration) observeOLM(ctx context.Context) {
	subscriptions := &unstructured.UnstructuredList{}
	subscriptions.SetGroupVersionKind(groupVersionOLM.WithKind("SubscriptionList"))
	m.FollowAll(ctx, check.Finding{Kind: "Subscription"}, subscriptions)
	for i := range subscriptions.Items {
		s := &subscriptions.Items[i]
		if name, _, _ := unstructured.NestedString(s.Object, "spec", "name"); name != olmPackage {
			continue
		}
		m.other.subscriptions = append(m.other.subscriptions, client.ObjectKeyFromObject(s))
		m.Add(check.Finding{Kind: "Subscription", Namespace: s.GetNamespace(), Name: s.GetName()}.OK("installs Stackable's listener operator"))
	}
	versions := &metav1.PartialObjectMetadataList{}
	versions.SetGroupVersionKind(groupVersionOLM.WithKind("ClusterServiceVersionList"))
	m.FollowAll(ctx, check.Finding{Kind: "ClusterServiceVersion"}, versions)
	for i := range versions.Items {
		v := &versions.Items[i]
		_, copied := v.Labels["olm.copiedFrom"]
		labels := slices.Collect(maps.Keys(v.Labels))
		if copied || !slices.ContainsFunc(labels, func(key string) bool { return strings.HasPrefix(key, labelOLM) }) {
			continue
		}
		m.other.versions = append(m.other.versions, client.ObjectKeyFromObject(v))
		m.Add(check.Finding{Kind: "ClusterServiceVersion", Namespace: v.Namespace, Name: v.Name}.OK("creates Stackable's listener operator again when it is deleted"))
	}
}

// observeOwn finds this operator.
func (m *migration) observeOwn(ctx context.Context) {
	var deployments appsv1.DeploymentList
	m.List(ctx, &deployments, client.MatchingFields{"metadata.name": names.Operator})
	m.installed = len(deployments.Items) > 0
	text := "is this operator"
	if m.other.runs() {
		text += ", which waits for the end of the other one"
	}
	for i := range deployments.Items {
		m.Add(check.Finding{Kind: "Deployment", Namespace: deployments.Items[i].Namespace, Name: names.Operator}.OK("%s", text))
	}
	config := &operatorv1alpha1.ListenerOperator{}
	if m.Get(ctx, types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}, config) == check.Present {
		m.config = config
	}
}

// placement returns which settings of the other operator restrict the nodes that its agents run on, for a message.
func (o *other) placement() string {
	var set []string
	if len(o.agents.NodeSelector) > 0 {
		set = append(set, "nodeSelector "+labels.FormatLabels(o.agents.NodeSelector))
	}
	if o.agents.Affinity != nil {
		set = append(set, "affinity")
	}
	return strings.Join(set, ", ")
}
