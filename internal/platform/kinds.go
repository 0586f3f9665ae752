package platform

import "k8s.io/apimachinery/pkg/runtime/schema"

// optional is a kind that some clusters serve.
type optional struct {
	kind schema.GroupVersionKind
	// plural is the kind's name in paths. With the group, it names the CustomResourceDefinition that may define it.
	plural string
	// aggregated says that on some platforms an API server of its own serves the group version.
	aggregated bool
}

// kinds are those that the operator makes use of. Its role names each of their definitions: see
// config/rbac/operator.yaml.
func kinds() []optional {
	return []optional{
		{kind: schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}, plural: "routes", aggregated: true},
		{kind: schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}, plural: "securitycontextconstraints"},
		{kind: schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}, plural: "clusterversions"},
		{kind: schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "APIServer"}, plural: "apiservers"},
		{kind: schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleYAMLSample"}, plural: "consoleyamlsamples"},
		{kind: schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: "ConsoleQuickStart"}, plural: "consolequickstarts"},
		{kind: schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}, plural: "servicemonitors"},
		{kind: schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}, plural: "prometheusrules"},
		{kind: schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}, plural: "operatorconditions"},
	}
}
