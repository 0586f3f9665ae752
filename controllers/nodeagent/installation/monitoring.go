package installation

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Monitoring is not in the bundle for OLM, because an installation there fails where the cluster does not serve one of
// the kinds.

const runbooks = "https://github.com/listener-operator/listener-operator/blob/main/docs/alerts.md"

// metricsService exposes the metrics of the operator and of the node agents. Its target ports have names, each of which
// only the Pods of one of them have. On OpenShift, it gets a serving certificate, in the Secret that the operator's
// Deployment mounts.
func metricsService(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	service := corev1ac.Service(names.MetricsService, s.Namespace).WithSpec(corev1ac.ServiceSpec().
		WithSelector(map[string]string{labelName: names.Operator}).
		WithPorts(
			corev1ac.ServicePort().WithName(metricsPortName).WithProtocol(corev1.ProtocolTCP).
				WithPort(metricsPort).WithTargetPort(intstr.FromString(metricsPortName)),
			corev1ac.ServicePort().WithName(agentPortName).WithProtocol(corev1.ProtocolTCP).
				WithPort(agentPort).WithTargetPort(intstr.FromString(agentPortName))))
	if s.OpenShift {
		service.WithAnnotations(map[string]string{"service.beta.openshift.io/serving-cert-secret-name": names.MetricsService})
	}
	return service, nil
}

// serviceMonitor configures Prometheus to scrape the metrics. Except on OpenShift, the operator's certificate is
// self-signed and cannot be verified; the operator authorizes the client by its token. Prometheus must never send the
// token to node agents: everybody may read their metrics.
func serviceMonitor(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	verification := map[string]any{"insecureSkipVerify": true}
	if s.OpenShift {
		verification = map[string]any{
			"serverName": names.MetricsService + "." + s.Namespace + ".svc",
			// OpenShift creates it in each namespace.
			"ca": map[string]any{"configMap": map[string]any{"name": "openshift-service-ca.crt", "key": "service-ca.crt"}},
		}
	}
	return unstructuredObject(names.KindServiceMonitor, s.Namespace, names.Operator, map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{labelName: names.Operator, LabelManagedBy: names.Operator}},
		"endpoints": []any{
			map[string]any{ //nolint:gosec // the token is named by its path in Prometheus' own Pod
				"port": metricsPortName, "scheme": "https", "path": "/metrics",
				"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
				"tlsConfig":       verification,
			},
			map[string]any{
				"port": agentPortName, "scheme": "http", "path": "/metrics",
				"relabelings": []any{
					map[string]any{"targetLabel": "job", "replacement": names.NodeAgent},
					map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"},
				},
			},
		},
	}), nil
}

// prometheusRule has the alerts, which docs/alerts.md explains.
func prometheusRule(_ *operatorv1alpha1.ListenerOperator, s Settings) (any, error) {
	rules := make([]any, 0, len(alerts(s.Namespace)))
	for _, a := range alerts(s.Namespace) {
		rules = append(rules, map[string]any{
			"alert": a.name, "expr": a.expr, "for": a.duration,
			"labels": map[string]any{"severity": a.severity},
			"annotations": map[string]any{
				"summary": a.summary, "description": a.description, "runbook_url": runbooks + "#" + strings.ToLower(a.name),
			},
		})
	}
	return unstructuredObject(names.KindPrometheusRule, s.Namespace, names.Operator, map[string]any{
		"groups": []any{map[string]any{"name": names.Operator, "rules": rules}},
	}), nil
}

// alert is an alerting rule of Prometheus.
type alert struct{ name, expr, duration, severity, summary, description string }

func alerts(namespace string) []alert {
	return []alert{
		{
			"ListenerOperatorDown",
			fmt.Sprintf(`absent(up{job=%q, namespace=%q} == 1)`, names.MetricsService, namespace), "10m", "warning",
			"The listener operator does not respond.",
			"No replica of the listener operator has responded for ten minutes. Mounted volumes stay as they are, but Pods with new listener volumes do not " +
				"start, and changes of addresses are not written to files.",
		},
		{
			"ListenerNodeAgentsNotReady",
			fmt.Sprintf(`kube_daemonset_status_number_unavailable{namespace=%q, daemonset=%q} > 0`, namespace, names.NodeAgent), "15m", "warning",
			"Nodes have no ready node agent of the listener operator.",
			"On {{ $value }} nodes, the node agent has not been ready for 15 minutes. Pods with listener volumes neither start nor terminate there.",
		},
		{
			"ListenerMountsFail",
			fmt.Sprintf(`sum by (node, code) (rate(listener_node_agent_mount_duration_seconds_count{code!~"OK|Canceled", job=%q, namespace=%q}[10m])) > 0`,
				names.NodeAgent, namespace),
			"15m", "warning",
			"Listener volumes cannot be mounted on a node.",
			"For 15 minutes, mounts of listener volumes on node {{ $labels.node }} have failed with {{ $labels.code }}, and their Pods do not start. Events of the Pods contain the cause.",
		},
		{
			"ListenerOperatorDegraded",
			fmt.Sprintf(`max(listener_operator_condition{type="Degraded", job=%q, namespace=%q}) == 1`, names.MetricsService, namespace), "15m", "warning",
			"The listener operator is degraded.",
			"For 15 minutes, there has been a problem that the listener operator cannot resolve by itself. The condition Degraded of ListenerOperator/cluster describes it.",
		},
		{
			"ListenerClaimsWaiting",
			fmt.Sprintf(`sum by (reason) (listener_operator_waiting_claims{reason!="WaitForFirstConsumer", job=%q, namespace=%q}) > 0`, names.MetricsService, namespace),
			"15m", "warning",
			"Claims of listener volumes wait for a user or administrator.",
			"For 15 minutes, {{ $value }} claims have had no volume, because of {{ $labels.reason }}, and their Pods do not start. Events of the claims and Pods explain what is missing.",
		},
		{
			"ListenersNotReady",
			fmt.Sprintf(`sum by (class, reason) (listener_operator_listeners{ready="false", reason!~"|WaitingForPods", job=%q, namespace=%q}) > 0`,
				names.MetricsService, namespace),
			"15m", "warning",
			"Listeners have no address.",
			"For 15 minutes, {{ $value }} Listeners of class {{ $labels.class }} have had no address, because of {{ $labels.reason }}. Their conditions explain who has to act.",
		},
		{
			"ListenerVolumesLost",
			fmt.Sprintf(`sum by (node) (listener_operator_lost_volumes{job=%q, namespace=%q}) > 0`, names.MetricsService, namespace), "30m", "warning",
			"Pods cannot start, because their volumes are pinned to a node that is lost.",
			"For 30 minutes, {{ $value }} volumes have been pinned to node {{ $labels.node }}, which is lost. Their Pods start elsewhere when the volumes are released.",
		},
		{
			"ListenerPodsOutdated",
			fmt.Sprintf(`sum(listener_operator_outdated_pods{job=%q, namespace=%q}) > 0`, names.MetricsService, namespace), "1h", "warning",
			"Pods announce addresses that have changed.",
			"For an hour, there have been Pods whose addresses have changed since they started, now {{ $value }}. Their class has them restarted, but " +
				"something keeps the listener operator from evicting them, which events of the Pods explain.",
		},
		{
			"ListenerOperatorCertificateExpires",
			fmt.Sprintf(`listener_operator_metrics_certificate_expiry_timestamp_seconds{job=%q, namespace=%q} - time() < 7 * 24 * 3600`, names.MetricsService, namespace),
			"1h", "warning",
			"The serving certificate for metrics expires soon.",
			"The certificate that the listener operator serves metrics with expires within a week. Whoever issues the Secret listener-operator-metrics has to renew it.",
		},
		{
			"ListenerOperatorReconcileErrors",
			fmt.Sprintf(`sum by (controller) (rate(controller_runtime_reconcile_errors_total{job=%q, namespace=%q}[5m])) > 0`, names.MetricsService, namespace),
			"15m", "warning",
			"A controller of the listener operator keeps failing.",
			"The controller {{ $labels.controller }} has been failing for 15 minutes. Its log contains the cause.",
		},
		{
			"ListenerOperatorRepairsKeepComing",
			fmt.Sprintf(`sum by (kind, name) (increase(listener_operator_drift_repairs_total{job=%q, namespace=%q}[1h])) > 5`, names.MetricsService, namespace),
			"5m", "info",
			"An object that the listener operator installed is changed repeatedly.",
			"{{ $labels.kind }} {{ $labels.name }} has been changed by another client, and repaired, {{ $value }} times within an hour.",
		},
	}
}
