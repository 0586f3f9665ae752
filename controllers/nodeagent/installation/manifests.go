package installation

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/config/samples"
)

//go:embed manifests
var manifests embed.FS

// templates are the manifests of the components, by kind and name. Values that users choose are written as JSON, which
// is YAML.
var templates = template.Must(template.New("").Delims("[[", "]]").Funcs(template.FuncMap{
	"json": func(value any) (string, error) {
		raw, err := json.Marshal(value)
		return string(raw), err
	},
	"listenerClass": samples.ListenerClass, "listener": samples.Listener, "statefulSet": samples.StatefulSet,
}).ParseFS(manifests, "manifests/*.yaml"))

// render returns the object of the manifest.
func (c Component) render(config *operatorv1alpha1.ListenerOperator, s Settings) (object *unstructured.Unstructured, err error) {
	var values any = s
	if c.values != nil {
		if values, err = c.values(config, s); err != nil {
			return nil, err
		}
	}
	var rendered bytes.Buffer
	if err := templates.ExecuteTemplate(&rendered, strings.ToLower(c.Kind)+"-"+c.Name+".yaml", values); err != nil {
		return nil, fmt.Errorf("completing the manifest: %w", err)
	}
	raw, err := yaml.YAMLToJSON(rendered.Bytes())
	if err != nil {
		return nil, fmt.Errorf("decoding the manifest: %w", err)
	}
	object = &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding the manifest: %w", err)
	}
	return object, nil
}
