package installation

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/samples"
	"github.com/listener-operator/listener-operator/internal/names"
)

// manifests are the manifests of the components, by kind and name. A placeholder, such as ${namespace}, becomes a value
// in JSON, which is YAML. A line whose value is null is left out. Package text/template would do more, and make the
// program a fifth larger, because it keeps all methods of all types.
//
//go:embed manifests
var manifests embed.FS

var placeholder = regexp.MustCompile(`\$\{\w+\}`)

func (c Component) render(config *operatorv1alpha1.ListenerOperator, s Settings) (*unstructured.Unstructured, error) {
	manifest, err := manifests.ReadFile("manifests/" + strings.ToLower(c.Kind) + "-" + c.Name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	values := commonValues(config, s)
	if c.Kind == "DaemonSet" {
		own, err := daemonSetValues(config, s)
		if err != nil {
			return nil, err
		}
		maps.Copy(values, own)
	}
	var completed strings.Builder
	for line := range strings.Lines(string(manifest)) {
		null := false
		line = placeholder.ReplaceAllStringFunc(line, func(p string) string {
			value, known := values[p[2:len(p)-1]]
			raw, encodingErr := json.Marshal(value)
			if !known {
				encodingErr = fmt.Errorf("there is no value for %s", p)
			}
			err = errors.Join(err, encodingErr)
			null = null || string(raw) == "null"
			return string(raw)
		})
		if !null {
			completed.WriteString(line)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("completing the manifest: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(completed.String()), &object.Object); err != nil {
		return nil, fmt.Errorf("decoding the manifest: %w", err)
	}
	return object, nil
}

// ServiceCA is a ConfigMap of each namespace of OpenShift and MicroShift, with the authority of serving certificates.
const ServiceCA = "openshift-service-ca.crt"

// LabelMonitored is the label of namespaces that the Prometheus of OpenShift itself monitors, if it is "true".
const LabelMonitored = "openshift.io/cluster-monitoring"

func commonValues(config *operatorv1alpha1.ListenerOperator, s Settings) map[string]any {
	values := map[string]any{
		"namespace": s.Namespace, "operatorUser": fmt.Sprintf("system:serviceaccount:%s:%s", s.Namespace, names.Operator),
		"listenerClass": samples.ListenerClass(), "listener": samples.Listener(), "statefulSet": samples.StatefulSet(),
		// The operator's certificate is self-signed.
		"insecureSkipVerify": true, "serverName": nil, "ca": nil, "metricsAnnotations": nil,
		"preventPodSchedulingIfMissing": nil,
	}
	if s.GuardsScheduling {
		values["preventPodSchedulingIfMissing"] = ptr.Deref(config.Spec.NodeAgent.PreventPodSchedulingIfMissing, true)
	}
	if s.ServiceCA {
		values["insecureSkipVerify"], values["serverName"] = nil, names.MetricsService+"."+s.Namespace+".svc"
		values["ca"] = map[string]any{"configMap": map[string]any{"name": ServiceCA, "key": "service-ca.crt"}}
		// OpenShift creates a serving certificate, in the Secret that the operator's Deployment mounts.
		values["metricsAnnotations"] = map[string]any{"service.beta.openshift.io/serving-cert-secret-name": names.MetricsService}
	}
	return values
}
