package crash

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// volatile are the fields that differ between two equal runs and that nothing refers to.
var volatile = map[string]bool{
	"resourceVersion": true, "creationTimestamp": true, "generation": true, "managedFields": true, "lastTransitionTime": true, "lastPhaseTransitionTime": true,
	"observedGeneration": true,
}

var uid = regexp.MustCompile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

// snapshot returns the state: the objects of the run, without volatile fields, and with a description in place of each
// identity that the API server has assigned. An error is part of it, because it may pass.
func (r *run) snapshot() string {
	r.t.Helper()
	objects, err := r.objects()
	if err != nil {
		return "error: " + err.Error()
	}
	identities := map[string]string{r.namespace: "<namespace>"}
	for key, content := range objects {
		assigned(key, content, identities)
		strip(content)
	}
	maps.DeleteFunc(objects, func(key string, content map[string]any) bool {
		return !r.ClusterScoped && !strings.Contains(key+encode(content), r.namespace)
	})
	text := uid.ReplaceAllString(replacer(identities).Replace(encode(objects)), "<uid of another object>")
	var described any
	if err := yaml.Unmarshal([]byte(text), &described); err != nil {
		return "error: " + err.Error()
	}
	return encode(described) // with its keys sorted again
}

// objects returns the contents of all objects by kind and name, without those in other namespaces.
func (r *run) objects() (map[string]map[string]any, error) {
	objects := map[string]map[string]any{}
	for _, kind := range r.Kinds {
		list := kind.DeepCopyObject().(client.ObjectList)
		if err := r.client.List(r.t.Context(), list); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			if object.GetNamespace() != "" && object.GetNamespace() != r.namespace {
				return nil
			}
			gvk, err := r.client.GroupVersionKindFor(o)
			if err != nil {
				return err
			}
			key := gvk.Kind + " " + strings.Trim(object.GetNamespace()+"/"+object.GetName(), "/")
			objects[key], err = runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// encode returns YAML.
func encode(content any) string {
	raw, err := yaml.Marshal(content)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(raw)
}

// replacer replaces identities, also in their descriptions, where names may contain them.
func replacer(identities map[string]string) *strings.Replacer {
	// The first pair that matches is used, so identities that begin like others come first.
	keys := slices.SortedFunc(maps.Keys(identities), func(a, b string) int { return len(b) - len(a) })
	short := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		short = append(short, key, "<…>")
	}
	inDescriptions := strings.NewReplacer(short...)
	pairs := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		pairs = append(pairs, key, inDescriptions.Replace(identities[key]))
	}
	return strings.NewReplacer(pairs...)
}

// assigned adds what the API server has assigned to an object, with a description.
func assigned(key string, content map[string]any, identities map[string]string) {
	metadata, _ := content["metadata"].(map[string]any)
	if uid, ok := metadata["uid"].(string); ok {
		identities[uid] = "<uid of " + key + ">"
		identities[strings.ReplaceAll(uid, "-", "")] = "<uid of " + key + " in a label>"
	}
	spec, _ := content["spec"].(map[string]any)
	if ip, ok := spec["clusterIP"].(string); ok && ip != "" && ip != "None" {
		identities[ip] = "<IP of " + key + ">"
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		port, _ := p.(map[string]any)
		if number, ok := port["nodePort"]; ok {
			identities[fmt.Sprint(number)] = fmt.Sprintf("<node port %v of %s>", port["name"], key)
		}
	}
}

// strip removes volatile fields.
func strip(content any) {
	switch content := content.(type) {
	case map[string]any:
		maps.DeleteFunc(content, func(key string, _ any) bool { return volatile[key] })
		for _, value := range content {
			strip(value)
		}
	case []any:
		for _, value := range content {
			strip(value)
		}
	}
}
