package nodeagent

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/samples"
	"github.com/listener-operator/listener-operator/internal/names"
)

// What is convenient to have beside the node component, and what nothing else needs: metrics to be found, alerts, and
// help in OpenShift's console. It is not in the bundle for OLM, because an installation there fails where one of the
// kinds is not served.

const (
	// metricsPort and healthPort are where the operator serves, by its Deployment in config/manager.
	metricsPort = 8443
	healthPort  = 8081
	runbooks    = "https://github.com/listener-operator/listener-operator/blob/main/docs/alerts.md"
)

func operatorLabels() map[string]string {
	return map[string]string{labelName: names.Operator, labelComponent: componentOperator}
}

// operatorNetworkPolicy lets in what asks for metrics, which the operator answers to those who may read them, and the
// kubelet's probes. It does not limit what the operator may reach: the port of the API server, or of a proxy before it,
// differs from cluster to cluster, and an operator that is cut off from it could not even put the policy right.
func operatorNetworkPolicy(_ *operatorv1alpha1.ListenerOperator, s settings) (any, error) {
	return ingressOnly(names.Operator, s.namespace, operatorLabels(), metricsPort, healthPort), nil
}

// agentNetworkPolicy lets in the kubelet's probes, which is all that the agents listen for on the network.
func agentNetworkPolicy(_ *operatorv1alpha1.ListenerOperator, s settings) (any, error) {
	return ingressOnly(names.NodeAgent, s.namespace, nodeAgentLabels(), probesPort), nil
}

func ingressOnly(name, namespace string, pods map[string]string, ports ...int32) *networkingv1ac.NetworkPolicyApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyIngressRule()
	for _, port := range ports {
		rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(port)))
	}
	return networkingv1ac.NetworkPolicy(name, namespace).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(pods)).
		WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithIngress(rule))
}

// metricsService is where the metrics are found. On OpenShift, it gets a certificate, in the Secret that the operator's
// Deployment mounts.
func metricsService(_ *operatorv1alpha1.ListenerOperator, s settings) (any, error) {
	service := corev1ac.Service(names.MetricsService, s.namespace).WithSpec(corev1ac.ServiceSpec().
		WithSelector(operatorLabels()).
		WithPorts(corev1ac.ServicePort().WithName("metrics").WithProtocol(corev1.ProtocolTCP).
			WithPort(metricsPort).WithTargetPort(intstr.FromInt32(metricsPort))))
	if s.openShift {
		service.WithAnnotations(map[string]string{"service.beta.openshift.io/serving-cert-secret-name": names.MetricsService})
	}
	return service, nil
}

// serviceMonitor has the Prometheus operator scrape the metrics. Elsewhere than on OpenShift, the operator's
// certificate is its own, which nobody can verify; that the metrics are read by one who may is checked with the token.
func serviceMonitor(_ *operatorv1alpha1.ListenerOperator, s settings) (any, error) {
	verification := map[string]any{"insecureSkipVerify": true}
	if s.openShift {
		verification = map[string]any{
			"serverName": names.MetricsService + "." + s.namespace + ".svc",
			// In each namespace.
			"ca": map[string]any{"configMap": map[string]any{"name": "openshift-service-ca.crt", "key": "service-ca.crt"}},
		}
	}
	return unstructuredObject(names.KindServiceMonitor, s.namespace, names.Operator, map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{labelName: names.Operator, labelManagedBy: names.Operator}},
		"endpoints": []any{map[string]any{ //nolint:gosec // the token is named by its path in Prometheus' own Pod
			"port": "metrics", "scheme": "https", "path": "/metrics",
			"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
			"tlsConfig":       verification,
		}},
	}), nil
}

// prometheusRule has the alerts, each of which docs/alerts.md explains.
func prometheusRule(_ *operatorv1alpha1.ListenerOperator, s settings) (any, error) {
	rules := make([]any, 0, len(alerts(s.namespace)))
	for _, a := range alerts(s.namespace) {
		rules = append(rules, map[string]any{
			"alert": a.name, "expr": a.when, "for": a.lasting,
			"labels": map[string]any{"severity": a.severity},
			"annotations": map[string]any{
				"summary": a.summary, "description": a.description, "runbook_url": runbooks + "#" + strings.ToLower(a.name),
			},
		})
	}
	return unstructuredObject(names.KindPrometheusRule, s.namespace, names.Operator, map[string]any{
		"groups": []any{map[string]any{"name": names.Operator, "rules": rules}},
	}), nil
}

// yamlSample offers an example where a user creates an object of its kind in OpenShift's console.
func yamlSample(name, apiVersion, kind, title, description, yaml string) component {
	return optionalComponent(names.KindConsoleYAMLSample, component{name: name, extra: true, desired: func(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
		return unstructuredObject(names.KindConsoleYAMLSample, "", name, map[string]any{
			"targetResource": map[string]any{"apiVersion": apiVersion, "kind": kind},
			"title":          title, "description": description, "yaml": yaml,
		}), nil
	}})
}

// quickStart guides through the first volume, in OpenShift's console.
func quickStart(*operatorv1alpha1.ListenerOperator, settings) (any, error) {
	task := func(title, description, check, help string) map[string]any {
		return map[string]any{
			"title": title, "description": description,
			"review": map[string]any{"instructions": check, "failedTaskHelp": help},
		}
	}
	return unstructuredObject(names.KindConsoleQuickStart, "", names.Operator, map[string]any{
		"displayName":     "Give Pods an address outside of the cluster",
		"durationMinutes": int64(10),
		"description":     "Let each replica of a StatefulSet know the address at which clients outside of the cluster reach it.",
		"introduction": "The listener operator gives Pods stable addresses that clients outside of the cluster can use, and tells each Pod its own, " +
			"as files in a volume.",
		"tasks": []any{
			task("Look at the operator", "Open **ListenerOperator** `cluster`, which the operator made by itself, and its conditions.",
				"Is the condition **Available** true?", "The condition **Degraded** says what is wrong and who has to act."),
			task("Choose a class", "A **ListenerClass** is the policy of the cluster's administrators. Three exist from the start: `cluster-internal`, "+
				"`external-unstable` and `external-stable`. To make another one, create a ListenerClass from the sample.",
				"Is there a class that suits you?", "Ask an administrator of the cluster, who alone may create classes."),
			task("Create a StatefulSet", "Create a **StatefulSet** from the sample *Pods with an address each*, in a project of your own. Its claims "+
				"name the class in the annotation `listeners.stackable.tech/listener-class`.",
				"Are all three Pods running?", "Look at the events of the claims and Pods, which say what is missing."),
			task("Read the address", "In the terminal of a Pod, run `cat /listener/default-address/address /listener/default-address/ports/http`.",
				"Does a client outside of the cluster get an answer at that address and port?",
				"Look at the **Listener** of the Pod's claim: its condition Ready says what it waits for."),
		},
		"conclusion": "Each Pod knows its address, and keeps it. All fields and files are explained in the documentation.",
	}), nil
}

func unstructuredObject(kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// yamlSamples are the examples of config/samples that users start from.
func yamlSamples() []component {
	return []component{
		yamlSample("listener-operator-listenerclass", "listeners.stackable.tech/v1alpha1", "ListenerClass", "A class for Pods that keep their node",
			"Each Pod stays on the node that it is first scheduled to, at a port that stays the same.", samples.ListenerClass()),
		yamlSample("listener-operator-listener", "listeners.stackable.tech/v1alpha1", "Listener", "An address that several Pods share",
			"Any of its addresses leads to any of the Pods that mount it by name.", samples.Listener()),
		yamlSample("listener-operator-statefulset", "apps/v1", "StatefulSet", "Pods with an address each",
			"Each Pod reads its own outside address from a volume, and in a second volume the one that they share.", samples.StatefulSet()),
	}
}

// alert is a rule of Prometheus.
type alert struct{ name, when, lasting, severity, summary, description string }

func alerts(namespace string) []alert {
	return []alert{
		{
			"ListenerOperatorDown",
			fmt.Sprintf(`absent(up{job=%q, namespace=%q} == 1)`, names.MetricsService, namespace), "10m", "warning",
			"The listener operator does not answer.",
			"No replica of the listener operator has answered for ten minutes. Mounted volumes stay as they are, but Pods with new listener volumes do not " +
				"start, and changes of addresses do not reach the files.",
		},
		{
			"ListenerNodeAgentsNotReady",
			fmt.Sprintf(`kube_daemonset_status_number_unavailable{namespace=%q, daemonset=%q} > 0`, namespace, names.NodeAgent), "15m", "warning",
			"Nodes have no node agent of the listener operator that is ready.",
			"On {{ $value }} nodes, the node agent has not been ready for a quarter of an hour. Pods with listener volumes neither start nor end there.",
		},
		{
			"ListenerOperatorReconcileErrors",
			fmt.Sprintf(`sum by (controller) (rate(controller_runtime_reconcile_errors_total{job=%q, namespace=%q}[5m])) > 0`, names.MetricsService, namespace),
			"15m", "warning",
			"A controller of the listener operator keeps failing.",
			"The controller {{ $labels.controller }} has been failing for a quarter of an hour. Its log says why.",
		},
		{
			"ListenerOperatorRepairsKeepComing",
			fmt.Sprintf(`sum by (kind, name) (increase(listener_operator_drift_repairs_total{job=%q, namespace=%q}[1h])) > 5`, names.MetricsService, namespace),
			"5m", "info",
			"Something keeps changing what the listener operator installed.",
			"{{ $labels.kind }} {{ $labels.name }} has been changed by somebody else and put right again {{ $value }} times within an hour.",
		},
	}
}
