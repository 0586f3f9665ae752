package confinement_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// variable are the fields of the node agents' DaemonSet that the operator may set to other values than those of the
// default configuration. [] stands for any item.
var variable = []string{
	"spec.template.metadata.annotations.listener-operator.dev/service-account",
	"spec.template.spec.affinity",
	"spec.template.spec.imagePullSecrets",
	"spec.template.spec.nodeSelector.kubernetes.io/os",
	"spec.template.spec.nodeSelector.x",
	"spec.template.spec.priorityClassName",
	"spec.template.spec.tolerations[]",
	"spec.template.spec.tolerations[].effect",
	"spec.template.spec.tolerations[].key",
	"spec.template.spec.tolerations[].operator",
	"spec.template.spec.tolerations[].tolerationSeconds",
	"spec.template.spec.tolerations[].value",
	"spec.template.spec.containers[].resources.limits.memory",
	"spec.template.spec.containers[].resources.requests.cpu",
	"spec.template.spec.containers[].resources.requests.memory",
}

// TestThePolicyStatesEveryFieldOfTheAgents changes each field of the DaemonSet, one at a time: each that the types of
// this version of Kubernetes have, and each that the API server serves. So fields that do not exist today are refused.
// Objects of another kind, which accept any content, take the place of DaemonSets, because the API server validates
// DaemonSets before it evaluates policies.
func TestThePolicyStatesEveryFieldOfTheAgents(t *testing.T) {
	w := operator.NewWorld(t, apiserver.Config(t))
	confined := w.Operator()
	w.Grant(rbacv1.PolicyRule{APIGroups: []string{"test.example.com"}, Resources: []string{"copies"}, Verbs: []string{"create"}})
	i := slices.IndexFunc(installation.Components(), func(c installation.Component) bool { return c.Kind == "DaemonSet" })
	valid, err := installation.Components()[i].Desired(objects.ListenerOperator(), installation.Settings{Namespace: w.Namespace, Image: operator.Image, ServiceAccount: "uid"})
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.Create(t.Context(), valid, client.DryRunAll)).To(Succeed(), "which adds defaults")
	unstructured.RemoveNestedField(valid.Object, "spec", "template", "spec", "affinity") // any terms are accepted
	valid.Object = map[string]any{
		"apiVersion": "test.example.com/v1", "kind": "Copy", "spec": valid.Object["spec"],
		"metadata": map[string]any{"namespace": w.Namespace, "name": names.NodeAgent},
	}
	confineCopies(w, confined, valid)

	for source, fields := range map[string]*fieldSchema{
		"the types": schemaOfType(reflect.TypeFor[appsv1.DaemonSetSpec]()), "the API server": schemaOfServer(t, w.Config, "io.k8s.api.apps.v1.DaemonSetSpec"),
	} {
		t.Run("fields of "+source, func(t *testing.T) {
			var accepted []string
			changes := 0
			fields.change(valid.Object["spec"], "spec", func(path string, spec any) {
				changes++
				changed := valid.DeepCopy()
				changed.Object["spec"] = spec
				switch err := confined.Create(t.Context(), changed, client.DryRunAll); {
				case err == nil:
					accepted = append(accepted, path)
				case !strings.Contains(err.Error(), "denied request"):
					t.Errorf("%s: %v", path, err)
				}
			})
			check.Equal(t, "accepted changes", slices.Sorted(slices.Values(variable)), slices.Sorted(slices.Values(accepted)))
			t.Logf("%d changes", changes)
		})
	}
}

// confineCopies lets the API server serve copies of DaemonSets, with the policy for DaemonSets, until the test ends.
func confineCopies(w *operator.World, confined client.Client, valid *unstructured.Unstructured) {
	w.Helper()
	crd := operator.Object(w, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: copies.test.example.com}, spec: {
  group: test.example.com, scope: Namespaced, names: {plural: copies, kind: Copy}, versions: [{name: v1, served: true, storage: true,
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	all := policies(w.T)
	i := slices.IndexFunc(all, func(c confinement.Bound) bool { return c.Policy.Name == "listener-operator.daemonsets" })
	policy, binding := all[i].Policy, all[i].Binding
	policy.Name, binding.Name, binding.Spec.PolicyName = "copies", "copies", "copies"
	policy.Spec.MatchConstraints.ResourceRules[0].Rule = admissionregistrationv1.Rule{
		APIGroups: []string{"test.example.com"}, APIVersions: []string{"*"}, Resources: []string{"copies"},
	}
	createUntilTheEnd(w, crd, policy, binding)
	create := func(o client.Object) func() error {
		return func() error { return confined.Create(w.Context(), o, client.DryRunAll) }
	}
	w.Eventually(create(valid.DeepCopy())).Should(Succeed())
	refused := valid.DeepCopy()
	refused.SetName("x")
	w.Eventually(create(refused)).Should(MatchError(ContainSubstring("no DaemonSet but listener-node-agent")))
}

// createUntilTheEnd creates objects, some of which may exist, and deletes them when the test ends.
func createUntilTheEnd(w *operator.World, all ...client.Object) {
	w.Helper()
	for _, o := range all {
		w.Expect(client.IgnoreAlreadyExists(w.Create(w.Context(), o))).To(Succeed())
		w.Cleanup(func() {
			w.Expect(client.IgnoreNotFound(w.Delete(context.Background(), o))).To(Succeed()) //nolint:usetesting // the context of the test has ended
		})
	}
}

// fieldSchema is the part of a schema that says which fields there are.
type fieldSchema struct {
	Ref                  string                  `json:"$ref"`
	AllOf                []*fieldSchema          `json:"allOf"`
	Type                 string                  `json:"type"`
	Properties           map[string]*fieldSchema `json:"properties"`
	Items                *fieldSchema            `json:"items"`
	AdditionalProperties *fieldSchema            `json:"additionalProperties"`
	// valid is an example, if not any value of the type is one.
	valid any
}

// schemaOfServer returns a schema of the API apps/v1 as the API server serves it.
func schemaOfServer(t *testing.T, config *rest.Config, name string) *fieldSchema {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(config)
	check.Must(t, err)
	paths, err := c.OpenAPIV3().Paths()
	check.Must(t, err)
	raw, err := paths["apis/apps/v1"].Schema("application/json")
	check.Must(t, err)
	var document struct {
		Components struct {
			Schemas map[string]*fieldSchema `json:"schemas"`
		} `json:"components"`
	}
	check.Must(t, json.Unmarshal(raw, &document))
	var resolved func(s *fieldSchema) *fieldSchema
	resolved = func(s *fieldSchema) *fieldSchema {
		switch {
		case s == nil:
			return nil
		case len(s.AllOf) == 1:
			return resolved(s.AllOf[0])
		case s.Ref != "":
			return resolved(document.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]])
		}
		r := &fieldSchema{Type: s.Type, Items: resolved(s.Items), AdditionalProperties: resolved(s.AdditionalProperties)}
		for field, property := range s.Properties {
			if r.Properties == nil {
				r.Properties = map[string]*fieldSchema{}
			}
			r.Properties[field] = resolved(property)
		}
		return r
	}
	return resolved(document.Components.Schemas[name])
}

// schemaOfType returns the schema of a Go type.
func schemaOfType(of reflect.Type) *fieldSchema {
	if _, ok := reflect.TypeAssert[json.Unmarshaler](reflect.New(of)); ok {
		return &fieldSchema{Type: "string"}
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOfType(of.Elem())
	case reflect.Slice:
		return &fieldSchema{Type: "array", Items: schemaOfType(of.Elem())}
	case reflect.Map:
		return &fieldSchema{Type: "object", AdditionalProperties: schemaOfType(of.Elem())}
	case reflect.Bool:
		return &fieldSchema{Type: "boolean"}
	case reflect.Int32, reflect.Int64:
		return &fieldSchema{Type: "integer"}
	case reflect.Struct:
		s := &fieldSchema{Type: "object", Properties: map[string]*fieldSchema{}}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				maps.Copy(s.Properties, schemaOfType(field.Type).Properties) // is inlined
			} else if name != "-" {
				s.Properties[name] = schemaOfType(field.Type)
			}
		}
		return s
	}
	return &fieldSchema{Type: "string"}
}

// change calls a function with each version of the value that differs from it in one field, and the path of the field.
func (s *fieldSchema) change(value any, path string, do func(path string, changed any)) {
	switch v := value.(type) {
	case map[string]any:
		replaced := func(name string) func(string, any) {
			return func(path string, field any) {
				changed := maps.Clone(v)
				changed[name] = field
				do(path, changed)
			}
		}
		fields := maps.Clone(s.Properties)
		if s.AdditionalProperties != nil {
			fields = map[string]*fieldSchema{"x": s.AdditionalProperties}
			for name := range v {
				fields[name] = s.AdditionalProperties
			}
		}
		for name, field := range fields {
			if existing, ok := v[name]; ok {
				field.change(existing, path+"."+name, replaced(name))
			} else {
				replaced(name)(path+"."+name, field.example())
			}
		}
	case []any:
		for i := range v {
			s.Items.change(v[i], path+"[]", func(path string, item any) {
				changed := slices.Clone(v)
				changed[i] = item
				do(path, changed)
			})
		}
		do(path+"[]", append(slices.Clone(v), s.Items.example()))
	case bool:
		do(path, !v)
	case int64:
		do(path, v+1)
	default:
		do(path, fmt.Sprint(v)+"x")
	}
}

// example returns a value that is not empty, but has no optional fields.
func (s *fieldSchema) example() any {
	switch {
	case s.valid != nil:
		return s.valid
	case s.Type == "array":
		return []any{s.Items.example()}
	case s.AdditionalProperties != nil:
		return map[string]any{"x": s.AdditionalProperties.example()}
	case s.Type == "object":
		return map[string]any{}
	case s.Type == "boolean":
		return true
	case s.Type == "integer":
		return int64(7)
	}
	return "x"
}
