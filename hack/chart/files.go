package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/archive"
)

// Sources of the chart's files, from the repository's root.
const (
	source    = "config/chart"
	dashboard = "config/dashboard/grafana-dashboard.json"
	injection = "config/injection/policy.yaml"
	license   = "LICENSE"
)

// defaultImage is the image in config/, which the chart's default replaces.
const defaultImage = "image: listener-operator:latest\n"

// static returns the files that are not generated from manifests.
func static(o Options) ([]archive.File, error) {
	files, err := archive.Below(source, "")
	if err != nil {
		return nil, err
	}
	for name, original := range map[string]string{path.Base(dashboard): dashboard, license: license, "injection.yaml": injection} {
		content, err := os.ReadFile(original)
		if err != nil {
			return nil, fmt.Errorf("reading a file of the chart: %w", err)
		}
		files = append(files, archive.File{Name: name, Content: content})
	}
	for i, f := range files {
		switch f.Name {
		case "Chart.yaml":
			files[i].Content = fmt.Appendf(f.Content, "version: %s\nappVersion: %q\n", o.Version, o.Version)
		case "values.yaml":
			before, after, found := strings.Cut(string(f.Content), defaultImage)
			if !found {
				return nil, fmt.Errorf("%s/values.yaml lacks the line %q", source, strings.TrimSpace(defaultImage))
			}
			files[i].Content = []byte(before + "image: " + o.Image + "\n" + after)
		}
	}
	return files, nil
}

// compareNames orders files for the archive.
func compareNames(a, b string) int {
	first := func(name string) int {
		return slices.Index([]string{chart + "/values.yaml", chart + "/Chart.yaml"}, name)
	}
	return cmp.Or(cmp.Compare(first(b), first(a)), cmp.Compare(a, b))
}

// valuesSchema returns the JSON schema of the values. listenerOperator has the schema of the CRD.
func valuesSchema(manifests []*unstructured.Unstructured) (archive.File, error) {
	raw, err := os.ReadFile(source + "/values.yaml")
	if err != nil {
		return archive.File{}, fmt.Errorf("reading the values: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(raw, &values); err != nil {
		return archive.File{}, fmt.Errorf("parsing the values: %w", err)
	}
	schema := schemaOf(values)
	properties, _, _ := unstructured.NestedMap(schema, "properties")
	properties["replicas"] = map[string]any{"type": "integer", "minimum": 0}
	properties["logLevel"] = map[string]any{"enum": []any{"info", "debug"}}
	// Helm adds this one to the values of a chart that is a dependency of another one.
	properties["global"] = map[string]any{"type": "object"}
	if properties["listenerOperator"], err = specSchema(manifests); err != nil {
		return archive.File{}, err
	}
	schema["properties"] = properties
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	content, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return archive.File{}, fmt.Errorf("encoding the schema of the values: %w", err)
	}
	return archive.File{Name: "values.schema.json", Content: append(content, '\n')}, nil
}

// open are the values whose type Kubernetes defines, or that have keys of the user's choice.
var open = []string{"resources", "nodeSelector", "affinity", "labels", "annotations"}

// schemaOf returns the schema of a value that has the fields of its default.
func schemaOf(value any) map[string]any {
	switch v := value.(type) {
	case map[string]any:
		properties := map[string]any{}
		for name, inner := range v {
			if properties[name] = schemaOf(inner); slices.Contains(open, name) {
				properties[name] = map[string]any{"type": "object"}
			}
		}
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	case []any:
		return map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	case bool:
		return map[string]any{"type": "boolean"}
	default:
		return map[string]any{"type": "string"}
	}
}

// specSchema returns the schema of the spec of ListenerOperator/cluster, which allows no other fields.
func specSchema(manifests []*unstructured.Unstructured) (any, error) {
	for _, u := range manifests {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", u.GetName(), err)
		}
		if crd.Spec.Names.Kind != "ListenerOperator" {
			continue
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		raw, err := json.Marshal(spec)
		if err != nil {
			return nil, fmt.Errorf("encoding the schema of %s: %w", u.GetName(), err)
		}
		var schema any
		if err := json.Unmarshal(raw, &schema); err != nil {
			return nil, fmt.Errorf("decoding the schema of %s: %w", u.GetName(), err)
		}
		return closed(schema), nil
	}
	return nil, errors.New("the manifests lack the CRD of ListenerOperators")
}

// closed returns a structural schema of the API server as one of JSON schema draft 7 that rejects unknown fields.
func closed(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, inner := range s {
			if !strings.HasPrefix(name, "x-kubernetes-") {
				out[name] = closed(inner)
			}
		}
		if s["x-kubernetes-int-or-string"] == true {
			delete(out, "pattern") // of strings only
		}
		if _, ok := s["properties"].(map[string]any); ok && s["type"] == "object" {
			out["additionalProperties"] = false
		}
		return out
	case []any:
		out := make([]any, len(s))
		for i, inner := range s {
			out[i] = closed(inner)
		}
		return out
	default:
		return schema
	}
}
