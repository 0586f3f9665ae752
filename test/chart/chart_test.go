package chart

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/pages"
)

const image = "registry.example/listener-operator:1.2.3"

// helm is a chart and the program.
type helm struct {
	*testing.T
	program, chart string
}

func newHelm(t *testing.T) helm {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Skip("HELM does not name the program helm; `make validate-chart` sets it")
	}
	chart, err := Generate(t.Context(), t.TempDir(), "1.2.3", image, nil)
	check.Must(t, err)
	return helm{t, program, chart}
}

// run runs helm, and returns its output and its error.
func (h helm) run(args ...string) (stdout, stderr string, err error) {
	h.Helper()
	home := h.TempDir()
	cmd := exec.CommandContext(h.Context(), h.program, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "KUBECONFIG=")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// template returns the objects of the chart by kind and name.
func (h helm) template(namespace string, args ...string) map[string]*unstructured.Unstructured {
	h.Helper()
	out, problems, err := h.run(append([]string{"template", "some-release", h.chart, "--namespace", namespace}, args...)...)
	if err != nil {
		h.Fatal(err, problems)
	}
	return parse(h.T, out)
}

func parse(t *testing.T, stream string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096); ; {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		check.Must(t, err)
		if u.Object != nil {
			all[u.GetKind()+" "+u.GetName()] = u
		}
	}
}

func TestHelmLintsTheChart(t *testing.T) {
	h := newHelm(t)
	for _, args := range [][]string{nil, {"--set", "dashboard.enabled=true,listenerOperator.preset=none,replicas=2"}} {
		if out, problems, err := h.run(append([]string{"lint", "--strict", h.chart}, args...)...); err != nil {
			t.Errorf("helm lint %q: %v: %s%s", args, err, out, problems)
		}
	}
}

// With its default values, the chart installs the objects that `make deploy` applies. Only the Namespace is not in it,
// and labels and the annotation that keeps CRDs differ.
func TestDefaultsInstallTheManifests(t *testing.T) {
	h := newHelm(t)
	got := h.template("listener-operator")
	raw, err := run(t.Context(), nil, "hack/manifests.sh", image)
	check.Must(t, err)
	want := parse(t, string(raw))
	delete(want, "Namespace listener-operator")
	for _, objects := range []map[string]*unstructured.Unstructured{got, want} {
		for _, u := range objects {
			labels := u.GetLabels()
			maps.DeleteFunc(labels, func(name, _ string) bool {
				return slices.Contains([]string{
					"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
				}, name)
			})
			u.SetLabels(labels)
		}
	}
	for name, u := range got {
		if !strings.HasPrefix(name, "CustomResourceDefinition ") {
			continue
		}
		annotations := u.GetAnnotations()
		if annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is deleted with the release", name)
		}
		delete(annotations, "helm.sh/resource-policy")
		u.SetAnnotations(annotations)
	}
	deployment := want["Deployment listener-operator"]
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	container, _ := containers[0].(map[string]any)
	args, _ := container["args"].([]any)
	container["args"] = append(args, "--log-level=info") // the default of the program
	check.Must(t, unstructured.SetNestedSlice(deployment.Object, containers, "spec", "template", "spec", "containers"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-manifests +chart):\n%s", diff)
	}
}

func TestObjectsAreInTheNamespaceOfTheRelease(t *testing.T) {
	objects := newHelm(t).template("elsewhere")
	for name, u := range objects {
		namespaced := slices.Contains([]string{"Deployment", "Role", "RoleBinding", "ServiceAccount"}, u.GetKind())
		if want := map[bool]string{true: "elsewhere"}[namespaced]; u.GetNamespace() != want {
			t.Errorf("%s is in namespace %q, want %q", name, u.GetNamespace(), want)
		}
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		for _, s := range subjects {
			if s, _ := s.(map[string]any); s["namespace"] != "elsewhere" {
				t.Errorf("%s has the subject %v", name, s)
			}
		}
	}
	if len(objects) < 15 {
		t.Errorf("the chart has %d objects", len(objects))
	}
}

func TestValuesReachTheDeployment(t *testing.T) {
	h := newHelm(t)
	const values = `
image: mirror.example/listener-operator@sha256:0000000000000000000000000000000000000000000000000000000000000000
imagePullSecrets: [{name: mirror}]
replicas: 2
logLevel: debug
resources: {limits: {memory: 1Gi}}
priorityClassName: important
nodeSelector: {infra: "true"}
tolerations: [{key: infra, operator: Exists}]
affinity: null
env: [{name: HTTPS_PROXY, value: "http://proxy.example"}]
listenerOperator: {preset: none, clusterDomain: it's.example}
`
	file := filepath.Join(t.TempDir(), "values.yaml")
	check.Must(t, os.WriteFile(file, []byte(values), 0o600))
	// The API server decides about the name of a domain.
	objects := h.template("elsewhere", "--values", file, "--skip-schema-validation")
	var deployment appsv1.Deployment
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects["Deployment listener-operator"].Object, &deployment, true))
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
	}
	const digest = "mirror.example/listener-operator@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	got := map[string]any{
		"image": container.Image, "agents": env["RELATED_IMAGE_NODE_AGENT"], "replicas": *deployment.Spec.Replicas, "memory": container.Resources.Limits.Memory().String(),
		"log level": slices.Contains(container.Args, "--log-level=debug"), "secrets": pod.ImagePullSecrets, "priority": pod.PriorityClassName,
		"selector": pod.NodeSelector, "tolerations": pod.Tolerations, "affinity": pod.Affinity == nil, "proxy": env["HTTPS_PROXY"], "spec": env["LISTENEROPERATOR_SPEC"],
	}
	want := map[string]any{
		"image": digest, "agents": digest, "replicas": int32(2), "memory": "1Gi",
		"log level": true, "secrets": []corev1.LocalObjectReference{{Name: "mirror"}}, "priority": "important",
		"selector": map[string]string{"infra": "true"}, "tolerations": []corev1.Toleration{{Key: "infra", Operator: corev1.TolerationOpExists}},
		"affinity": true, "proxy": "http://proxy.example", "spec": `{"clusterDomain":"it's.example","preset":"none"}`,
	}
	check.Equal(t, "settings", want, got)
	// Only this image may run as node agent.
	rules, _, _ := unstructured.NestedSlice(objects["ClusterRole listener-operator-node-agent-image"].Object, "rules")
	if rule, _ := rules[0].(map[string]any); !cmp.Equal(rule["resourceNames"], []any{digest}) {
		t.Errorf("the rule for images is %v", rules)
	}
}

func TestInvalidValuesAreRejected(t *testing.T) {
	h := newHelm(t)
	for _, value := range []string{
		"replica=2", "replicas=-1", "logLevel=loud", "image.tag=1", "crds.install=true", "listenerOperator.presett=none", "listenerOperator.preset=some",
		"listenerOperator.nodeAgent.kubeletdir=/var",
	} {
		name, _, _ := strings.Cut(value, "=")
		parts := strings.Split(name, ".")
		if _, problems, err := h.run("template", h.chart, "--set", value); err == nil || !strings.Contains(problems, parts[len(parts)-1]) && !strings.Contains(problems, parts[0]) {
			t.Errorf("--set %s: error %v: %s", value, err, problems)
		}
	}
	for _, value := range []string{"listenerOperator.preset=stable-nodes", "listenerOperator.nodeAgent.resources.limits.memory=1Gi", "global.anything=1"} {
		if _, problems, err := h.run("template", h.chart, "--set", value); err != nil {
			t.Errorf("--set %s: %s", value, problems)
		}
	}
}

// With helm upgrade --reuse-values, the values are those of the earlier chart.
func TestGroupsThatAnEarlierChartDidNotHaveAreDefaults(t *testing.T) {
	h := newHelm(t)
	want := h.template("elsewhere")
	for _, absent := range []string{"crds=null", "injection=null", "dashboard=null", "listenerOperator=null", "crds.enabled=null"} {
		if diff := cmp.Diff(want, h.template("elsewhere", "--set", absent)); diff != "" {
			t.Errorf("%s (-default +absent):\n%s", absent, diff)
		}
	}
	dashboard := h.template("elsewhere", "--set", "dashboard.enabled=true")
	if diff := cmp.Diff(dashboard, h.template("elsewhere", "--set", "dashboard.enabled=true,dashboard.labels=null,dashboard.annotations=null")); diff != "" {
		t.Errorf("the dashboard (-default +absent):\n%s", diff)
	}
}

func TestCRDsCanBeLeftOut(t *testing.T) {
	for name := range newHelm(t).template("elsewhere", "--set", "crds.enabled=false") {
		if strings.HasPrefix(name, "CustomResourceDefinition ") {
			t.Errorf("the chart has %s", name)
		}
	}
}

func TestTheDashboardIsInAConfigMapForTheSidecar(t *testing.T) {
	objects := newHelm(t).template("elsewhere", "--set", "dashboard.enabled=true,dashboard.annotations.grafana_folder=Operators")
	u := objects["ConfigMap listener-operator-dashboard"]
	if u == nil {
		t.Fatal("the chart has no ConfigMap")
	}
	raw, err := yaml.Marshal(u.Object)
	check.Must(t, err)
	var config corev1.ConfigMap
	check.Must(t, yaml.UnmarshalStrict(raw, &config))
	want, err := os.ReadFile("../../config/dashboard/grafana-dashboard.json")
	check.Must(t, err)
	if config.Labels["grafana_dashboard"] != "1" || config.Annotations["grafana_folder"] != "Operators" || config.Namespace != "elsewhere" {
		t.Errorf("metadata %+v", config.ObjectMeta)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(config.Data["listener-operator.json"])); diff != "" {
		t.Errorf("dashboard (-file +chart):\n%s", diff)
	}
}

func TestThePolicyForAnnotatedPodsIsTheReleasedOne(t *testing.T) {
	raw, err := os.ReadFile("../../config/injection/policy.yaml")
	check.Must(t, err)
	want, got := parse(t, string(raw)), newHelm(t).template("elsewhere", "--set", "injection.enabled=true")
	if len(want) != 4 {
		t.Errorf("the file has %d objects", len(want))
	}
	for name, u := range want {
		if diff := cmp.Diff(u, got[name]); diff != "" {
			t.Errorf("%s (-file +chart):\n%s", name, diff)
		}
	}
}

// With --help, helm only parses a command and its flags.
func TestHelmKnowsTheCommandsOfPages(t *testing.T) {
	h := newHelm(t)
	checked := 0
	for _, c := range pages.Commands(t) {
		if c.Args[0] != "helm" {
			continue
		}
		checked++
		out, problems, err := h.run(append(slices.Clone(c.Args[1:]), "--help")...)
		if err != nil || !strings.Contains(out, "\n  helm "+c.Args[1]+" ") {
			t.Errorf("%s:%d: %s: %v\n%s", c.Page, c.Line, c, err, problems)
		}
	}
	if checked < 3 {
		t.Errorf("only %d commands of helm were found", checked)
	}
}
