package main

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/archive"
)

// labels are what every object of the chart has (https://helm.sh/docs/chart_best_practices/labels).
var labels = map[string]string{
	"helm.sh/chart":                `{{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}`,
	"app.kubernetes.io/instance":   `{{ .Release.Name }}`,
	"app.kubernetes.io/version":    `{{ .Chart.AppVersion | replace "+" "_" }}`,
	"app.kubernetes.io/managed-by": `{{ .Release.Service }}`,
}

// render returns a template for each object, except for the Namespace, which belongs to the user of the chart.
func render(manifests []*unstructured.Unstructured) ([]archive.File, error) {
	var files []archive.File
	images := 0
	for _, u := range manifests {
		if u.GetKind() == "Namespace" {
			continue
		}
		crd := u.GetKind() == "CustomResourceDefinition"
		object := u.DeepCopy()
		escape(object.Object)
		images += parameterize(object.Object)
		object.SetLabels(merged(object.GetLabels(), labels))
		if crd {
			// Deleting one deletes all its objects, and the addresses of Listeners with them.
			object.SetAnnotations(merged(object.GetAnnotations(), map[string]string{"helm.sh/resource-policy": "keep"}))
		}
		if u.GetKind() == "Deployment" {
			if err := parameterizeDeployment(object); err != nil {
				return nil, err
			}
		}
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		content := marker.ReplaceAllStringFunc(string(raw), expand)
		if crd { // helm upgrade --reuse-values leaves out groups that an earlier chart did not have
			content = "{{- if ne (toString (.Values.crds).enabled) \"false\" }}\n" + content + "{{- end }}\n"
		}
		files = append(files, archive.File{
			Name: fmt.Sprintf("templates/%s-%s.yaml", strings.ToLower(u.GetKind()), u.GetName()), Content: []byte(content),
		})
	}
	// The operator, its node agents, and its permission to run these: see config/default.
	if images != 3 {
		return nil, fmt.Errorf("the manifests name the operator's image %d times, want 3", images)
	}
	return files, nil
}

// escape makes Helm print braces in strings as they are.
func escape(content any) {
	edit(content, func(_, value string) string { return strings.ReplaceAll(value, "{{", `{{ "{{" }}`) })
}

// parameterize replaces the namespace and the image in an object, and returns how often it found the image.
func parameterize(content any) (images int) {
	edit(content, func(key, value string) string {
		switch {
		case key == "namespace" && value == chart:
			return "{{ .Release.Namespace }}"
		case value == strings.TrimSpace(strings.TrimPrefix(defaultImage, "image:")):
			images++
			return "{{ .Values.image }}"
		}
		return value
	})
	return images
}

// edit replaces all strings in the content of an object. Those in lists have the key of the list.
func edit(content any, replace func(key, value string) string) {
	var walk func(key string, value any) any
	walk = func(key string, value any) any {
		switch v := value.(type) {
		case string:
			return replace(key, v)
		case map[string]any:
			for inner := range v {
				v[inner] = walk(inner, v[inner])
			}
		case []any:
			for i := range v {
				v[i] = walk(key, v[i])
			}
		}
		return value
	}
	walk("", content)
}

func merged(sources ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range sources {
		maps.Copy(all, m)
	}
	return all
}

// marker is a line whose value is replaced by an expression of Helm. Its groups are the indentation, the field, and the
// value in .Values.
var marker = regexp.MustCompile(`(?m)^( *)(?:(\w+): |- )'?@@([\w.]+)@@'?\n`)

// expand replaces a marker.
func expand(line string) string {
	groups := marker.FindStringSubmatch(line)
	indent, field, value := groups[1], groups[2], groups[3]
	switch {
	case value == "listenerOperator":
		return indent + "{{- with .Values.listenerOperator }}\n" +
			indent + "- name: LISTENEROPERATOR_SPEC\n" +
			indent + "  value: {{ toJson . | quote }}\n" +
			indent + "{{- end }}\n"
	case value == "replicas":
		return indent + field + ": {{ .Values.replicas }}\n"
	case field == "": // further items of a list
		return fmt.Sprintf("%s{{- with .Values.%s }}\n%s{{- toYaml . | nindent %d }}\n%s{{- end }}\n", indent, value, indent, len(indent), indent)
	default:
		return fmt.Sprintf("%s{{- with .Values.%s }}\n%s%s:\n%s  {{- toYaml . | nindent %d }}\n%s{{- end }}\n",
			indent, value, indent, field, indent, len(indent)+2, indent)
	}
}

// parameterizeDeployment replaces what values.yaml has. The defaults are the manifest's.
func parameterizeDeployment(deployment *unstructured.Unstructured) error {
	pod := []string{"spec", "template", "spec"}
	containers, _, err := unstructured.NestedSlice(deployment.Object, append(pod, "containers")...)
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("deployment %s has %d containers, want one: %w", deployment.GetName(), len(containers), err)
	}
	container, _ := containers[0].(map[string]any)
	args, _ := container["args"].([]any)
	env, _ := container["env"].([]any)
	container["args"] = append(args, "--log-level={{ .Values.logLevel }}")
	container["env"] = append(env, "@@listenerOperator@@", "@@env@@")
	container["resources"] = "@@resources@@"
	fields := map[string]any{ //nolint:gosec // imagePullSecrets has names
		"containers": containers, "priorityClassName": "{{ .Values.priorityClassName }}",
		"imagePullSecrets": "@@imagePullSecrets@@", "nodeSelector": "@@nodeSelector@@", "tolerations": "@@tolerations@@", "affinity": "@@affinity@@",
	}
	for field, value := range fields {
		if err := unstructured.SetNestedField(deployment.Object, value, append(pod, field)...); err != nil {
			return fmt.Errorf("setting %s in Deployment %s: %w", field, deployment.GetName(), err)
		}
	}
	if err := unstructured.SetNestedField(deployment.Object, "@@replicas@@", "spec", "replicas"); err != nil {
		return fmt.Errorf("setting the replicas of Deployment %s: %w", deployment.GetName(), err)
	}
	return nil
}
