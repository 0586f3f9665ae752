package platform

import "k8s.io/apimachinery/pkg/runtime/schema"

// OptionalKind is a kind that some clusters serve.
type OptionalKind struct {
	schema.GroupVersionKind
	// Resource is the plural name of the kind in API paths. Resource and group form the name of the
	// CustomResourceDefinition that may define the kind.
	Resource string
	// Aggregated states that on some platforms an aggregated API server serves the group version.
	Aggregated bool
}

// kinds returns the optional kinds that the operator uses, apart from those of the backends that expose Listeners. The
// operator's role lists the CustomResourceDefinitions and APIServices of all of them: see config/rbac/operator.yaml.
func kinds() []OptionalKind {
	return []OptionalKind{
		{GroupVersionKind: schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}, Resource: "securitycontextconstraints"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}, Resource: "clusterversions"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "APIServer"}, Resource: "apiservers"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleYAMLSample"}, Resource: "consoleyamlsamples"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleQuickStart"}, Resource: "consolequickstarts"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}, Resource: "servicemonitors"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}, Resource: "prometheusrules"},
		{GroupVersionKind: schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}, Resource: "operatorconditions"},
	}
}
