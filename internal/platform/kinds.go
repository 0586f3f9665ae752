package platform

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listener-operator/listener-operator/internal/names"
)

// OptionalKind is a kind that some clusters serve, or a kind of a backend.
type OptionalKind struct {
	schema.GroupVersionKind
	// OtherVersions are other versions of the kind, the preferred one first, which are used if the cluster does not
	// serve that of GroupVersionKind. The fields that the operator uses are the same in all of them.
	OtherVersions []string
	// Resource is the plural name of the kind in API paths. Resource and group form the name of the
	// CustomResourceDefinition that may define the kind.
	Resource string
	// Aggregated states that on some platforms an aggregated API server serves the group version.
	Aggregated bool
	// BuiltIn states that Kubernetes itself serves the kind, on every cluster. No object is watched for it.
	BuiltIn bool
}

// kinds returns the optional kinds that the operator uses, apart from those of the backends that expose Listeners. The
// operator's role lists the CustomResourceDefinitions and APIServices of all of them: see config/rbac/operator.yaml.
func kinds() []OptionalKind {
	return []OptionalKind{
		{GroupVersionKind: names.KindSecurityContextConstraints, Resource: "securitycontextconstraints"},
		{GroupVersionKind: names.KindClusterVersion, Resource: "clusterversions"},
		{GroupVersionKind: names.KindAPIServer, Resource: "apiservers"},
		{GroupVersionKind: names.KindConsoleYAMLSample, Resource: "consoleyamlsamples"},
		{GroupVersionKind: names.KindConsoleQuickStart, Resource: "consolequickstarts"},
		{GroupVersionKind: names.KindServiceMonitor, Resource: "servicemonitors"},
		{GroupVersionKind: names.KindPrometheusRule, Resource: "prometheusrules"},
		{GroupVersionKind: names.KindOperatorCondition, Resource: "operatorconditions"},
	}
}
