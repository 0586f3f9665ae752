package gather

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// groupOLM is the API group of the first generation of the Operator Lifecycle Manager (OLM).
const groupOLM = "operators.coreos.com"

const (
	// labelCopied is the label of a ClusterServiceVersion that OLM has copied to another namespace.
	labelCopied = "olm.copiedFrom"
	// labelExtension is the label with the name of the ClusterExtension that an object belongs to.
	labelExtension = "olm.operatorframework.io/owner-name"
)

// packageName is the name of the operator's package in its own catalogues. Others may have another one.
const packageName = names.Operator

// olmLists returns what both generations of OLM have about operators, also if they could not install one.
func (g *gatherer) olmLists() []list {
	original, _ := labels.NewRequirement(labelCopied, selection.DoesNotExist, nil) // it is valid
	return []list{
		{
			GroupVersionKind: schema.GroupVersionKind{Group: groupOLM, Version: "v1alpha1", Kind: "ClusterServiceVersion"}, keep: g.clusterServiceVersion,
			options: []client.ListOption{client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*original)}},
		},
		{GroupVersionKind: schema.GroupVersionKind{Group: groupOLM, Version: "v1alpha1", Kind: "Subscription"}, keep: g.subscription},
		{GroupVersionKind: schema.GroupVersionKind{Group: groupOLM, Version: "v1alpha1", Kind: "InstallPlan"}, keep: g.isOwned},
		{GroupVersionKind: schema.GroupVersionKind{Group: groupOLM, Version: "v1", Kind: "OperatorGroup"}, keep: g.operatorGroup},
		{GroupVersionKind: schema.GroupVersionKind{Group: "olm.operatorframework.io", Version: "v1", Kind: "ClusterExtension"}, keep: g.clusterExtension},
	}
}

// clusterServiceVersion reports whether a ClusterServiceVersion is a version of the operator: whether it owns the
// definition of the configuration. It remembers those that are.
func (g *gatherer) clusterServiceVersion(o *unstructured.Unstructured) bool {
	configuration := operatorv1alpha1.GroupVersion.WithResource("listeneroperators").GroupResource().String()
	owned, _, _ := unstructured.NestedSlice(o.Object, "spec", "customresourcedefinitions", "owned")
	if !slices.ContainsFunc(owned, func(crd any) bool {
		description, _ := crd.(map[string]any)
		return description["name"] == configuration
	}) {
		return false
	}
	g.versions.Insert(client.ObjectKeyFromObject(o))
	return true
}

// subscription reports whether a Subscription is to the operator: to its package, or to any that has led to a version
// of it.
func (g *gatherer) subscription(o *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "name")
	of := name == packageName
	for _, field := range []string{"currentCSV", "installedCSV"} {
		version, _, _ := unstructured.NestedString(o.Object, "status", field)
		of = of || g.versions.Has(types.NamespacedName{Namespace: o.GetNamespace(), Name: version})
	}
	if of {
		g.subscribed.Insert(o.GetNamespace())
	}
	return of
}

// isOwned reports whether an object has an owner that was gathered, as the InstallPlan of a Subscription has.
func (g *gatherer) isOwned(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return g.uids.Has(owner.UID) })
}

// operatorGroup reports whether an OperatorGroup is in the namespace of an operator, or of a Subscription to one.
func (g *gatherer) operatorGroup(o *unstructured.Unstructured) bool {
	return g.operators.Has(o.GetNamespace()) || g.subscribed.Has(o.GetNamespace())
}

// clusterExtension reports whether a ClusterExtension has installed an operator, or is to.
func (g *gatherer) clusterExtension(o *unstructured.Unstructured) bool {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "source", "catalog", "packageName")
	return name == packageName || g.extensions.Has(o.GetName())
}
