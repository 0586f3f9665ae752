package installation

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

const namespace = "somewhere"

func testSettings() Settings {
	return Settings{Namespace: namespace, Image: "listener-operator:test", ServiceAccount: "made-first"}
}

// newConfig returns ListenerOperator/cluster with the API server's defaults.
func newConfig() *operatorv1alpha1.ListenerOperator { return objects.ListenerOperator() }

// parsed decodes YAML.
func parsed[T any](manifest string) (decoded T) {
	if err := yaml.UnmarshalStrict([]byte(manifest), &decoded); err != nil {
		panic(err)
	}
	return decoded
}

func configured() *operatorv1alpha1.ListenerOperator {
	config := newConfig()
	config.Spec.NodeAgent = parsed[operatorv1alpha1.NodeAgentSpec](`
nodeSelector: {pool: apps}
tolerations: [{key: dedicated, operator: Equal, value: apps, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: virtual, operator: DoesNotExist}]}]}}}
resources: {requests: {memory: 16Mi}, limits: {memory: 64Mi}}
priorityClassName: agents
kubeletDir: /data/kubelet
logLevel: debug`)
	return config
}

// subscribed returns the operator's Pods as OLM creates them for a Subscription with all settings, and for a bundle
// whose images need pull secrets.
func subscribed() corev1.PodSpec {
	return parsed[corev1.PodSpec](`
imagePullSecrets: [{name: mirror}, {name: second-mirror}]
nodeSelector: {node-role.kubernetes.io/infra: ""}
tolerations: [{key: node-role.kubernetes.io/infra, operator: Exists}]
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: operator}}}]}
containers:
- {name: sidecar, image: sidecar, env: [{name: HTTP_PROXY, value: "http://of-the-sidecar"}]}
- name: operator
  image: operator
  env:
  - {name: OPERATOR_NAMESPACE, value: somewhere}
  - {name: NO_PROXY, value: ".cluster.local,10.0.0.0/8"}
  - {name: HTTPS_PROXY, value: "http://proxy.example:3128"}
  - {name: GODEBUG, value: http2debug=1}
  resources: {requests: {memory: 4Gi}}`)
}

// componentOf returns the only component of a kind.
func componentOf(t *testing.T, kind string) Component {
	t.Helper()
	i := slices.IndexFunc(Components(), func(c Component) bool { return c.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no component of kind %s", kind)
	}
	return Components()[i]
}

// desired returns the only component of a kind.
func desired(t *testing.T, kind string, config *operatorv1alpha1.ListenerOperator, s Settings) *unstructured.Unstructured {
	t.Helper()
	object, err := componentOf(t, kind).Desired(config, s)
	check.Must(t, err)
	return object
}

func TestGolden(t *testing.T) {
	for _, c := range Components() {
		name := strings.ToLower(c.Kind)
		if slices.ContainsFunc(Components(), func(other Component) bool { return other.Kind == c.Kind && other.Name != c.Name }) {
			name += "-" + c.Name
		}
		t.Run(name, func(t *testing.T) {
			object, err := c.Desired(newConfig(), testSettings())
			check.Must(t, err)
			golden.Compare(t, name, object)
		})
	}
	// On OpenShift, an annotation requests a certificate, which Prometheus verifies. A Subscription has settings for
	// the operator's own Pods.
	openShift, inherited, likeOperator := testSettings(), testSettings(), newConfig()
	openShift.ServiceCA, inherited.OperatorPod = true, subscribed()
	likeOperator.Spec.NodeAgent.Placement = operatorv1alpha1.PlacementLikeOperator
	for name, tc := range map[string]struct {
		kind     string
		config   *operatorv1alpha1.ListenerOperator
		settings Settings
	}{
		"daemonset-configured":     {"DaemonSet", configured(), testSettings()},
		"daemonset-subscribed":     {"DaemonSet", newConfig(), inherited},
		"daemonset-like-operator":  {"DaemonSet", likeOperator, inherited},
		"service-openshift":        {"Service", newConfig(), openShift},
		"servicemonitor-openshift": {"ServiceMonitor", newConfig(), openShift},
	} {
		t.Run(name, func(t *testing.T) { golden.Compare(t, name, desired(t, tc.kind, tc.config, tc.settings)) })
	}
}

func TestCSIDriverHasTheFieldOfLaterKubernetesOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		configured *bool
		guards     bool
		want       any
	}{
		"not served":                 {},
		"not served, and configured": {configured: ptr.To(false)},
		"served":                     {guards: true, want: true},
		"served, and configured":     {configured: ptr.To(false), guards: true, want: false},
	} {
		config, s := newConfig(), testSettings()
		config.Spec.NodeAgent.PreventPodSchedulingIfMissing, s.GuardsScheduling = tc.configured, tc.guards
		check.Equal(t, name+": the field", tc.want, desired(t, "CSIDriver", config, s).Object["spec"].(map[string]any)["preventPodSchedulingIfMissing"])
	}
}

// TestDaemonSetWithoutDefaults has a configuration that is older than the defaults of its fields.
func TestDaemonSetWithoutDefaults(t *testing.T) {
	bare := newConfig()
	bare.Spec = operatorv1alpha1.ListenerOperatorSpec{}
	check.Equal(t, "without defaults", desired(t, "DaemonSet", newConfig(), testSettings()), desired(t, "DaemonSet", bare, testSettings()))
}

func TestForeignMessage(t *testing.T) {
	controlledBy := func(kind, name string, uid types.UID) func(client.Object) {
		return func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}})
		}
	}
	const agents, class = "DaemonSet", "StorageClass"
	for name, tc := range map[string]struct {
		component string
		change    func(client.Object)
		want      string
	}{
		"a component of the configuration":            {component: agents, change: controlledBy("ListenerOperator", "cluster", newConfig().UID)},
		"an orphan with the label of managed objects": {component: agents, change: func(o client.Object) { o.SetLabels(map[string]string{names.LabelManagedBy: "listener-operator"}) }},
		"another DaemonSet of this name":              {component: agents, want: "DaemonSet listener-node-agent exists and does not belong to this operator; delete or rename it"},
		"a StorageClass without owners":               {component: class},
		"a StorageClass with an owner that is no controller": {component: class, change: func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "ClusterRole", Name: "deployer", UID: "other"}})
		}},
		"a StorageClass with another controller": {component: class, change: controlledBy("Deployer", "d", "other"), want: "StorageClass listeners.stackable.tech belongs to Deployer d; remove that installation first"},
		"a component of an earlier configuration": {
			component: agents, change: controlledBy("ListenerOperator", "cluster", "earlier"),
			want: "DaemonSet listener-node-agent belongs to an earlier ListenerOperator cluster; waiting for the garbage collector to delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := componentOf(t, tc.component)
			object := c.Empty()
			object.SetName(c.Name)
			if tc.change != nil {
				tc.change(object)
			}
			check.Equal(t, "message", tc.want, c.ForeignMessage(newConfig(), object))
		})
	}
}

func TestProxyVariablesThatReferToOthersAreNotInherited(t *testing.T) {
	for name, variable := range map[string]string{
		"another object":   `{name: HTTPS_PROXY, valueFrom: {secretKeyRef: {name: proxy, key: url}}}`,
		"another variable": `{name: HTTPS_PROXY, value: "http://$(HOST):3128"}`,
	} {
		s := testSettings()
		s.OperatorPod = parsed[corev1.PodSpec](`containers: [{name: operator, env: [` + variable + `]}]`)
		_, err := componentOf(t, "DaemonSet").Desired(newConfig(), s)
		if err == nil || !strings.Contains(err.Error(), "environment variable HTTPS_PROXY of Deployment listener-operator refers to another object or variable") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestEachAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../../docs/alerts.md")
	check.Must(t, err)
	var known []string
	groups, _, err := unstructured.NestedSlice(desired(t, "PrometheusRule", newConfig(), testSettings()).Object, "spec", "groups")
	if err != nil || len(groups) != 1 {
		t.Fatalf("groups %v (%v), want one", groups, err)
	}
	for _, rule := range groups[0].(map[string]any)["rules"].([]any) {
		name := rule.(map[string]any)["alert"].(string)
		known = append(known, name)
		if !strings.Contains(string(page), "\n## "+name+"\n") {
			t.Errorf("docs/alerts.md has no section %s", name)
		}
		link, _, _ := unstructured.NestedString(rule.(map[string]any), "annotations", "runbook_url")
		if !strings.HasSuffix(link, "docs/alerts.md#"+strings.ToLower(name)) {
			t.Errorf("the runbook of %s is %q", name, link)
		}
	}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## Listener"); ok && !slices.Contains(known, "Listener"+strings.TrimSpace(name)) {
			t.Errorf("docs/alerts.md explains %s, which does not exist", strings.TrimSpace(line))
		}
	}
}
