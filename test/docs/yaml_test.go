package docs

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/test/pages"
)

// unserved are kinds that the API server of the test does not serve: those of files that programs read, and those of
// other projects, whose definitions this repository does not have.
var unserved = map[string]bool{
	"Application": true, "ImageSetConfiguration": true, "Kustomization": true, "ZookeeperCluster": true,
}

// wholes are objects that a fragment on a page may be a part of, each with the path of the part. An element of a list
// is that with the number 0.
var wholes = []struct{ object, path string }{
	{"{apiVersion: listeners.stackable.tech/v1alpha1, kind: ListenerClass, spec: {serviceType: ClusterIP}}", ""},
	{"{apiVersion: listeners.stackable.tech/v1alpha1, kind: ListenerClass, spec: {serviceType: ClusterIP}}", "spec"},
	{statefulSet, ""},
	{statefulSet, "spec"},
	{statefulSet, "spec.template.spec"},
	{statefulSet, "spec.template.spec.containers.0"},
	{"{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1}}}}", ""},
	{"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {}}}", "spec"},
	{"{apiVersion: operators.coreos.com/v1alpha1, kind: CatalogSource, spec: {sourceType: grpc}}", ""},
}

const statefulSet = `{apiVersion: apps/v1, kind: StatefulSet, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}},
	spec: {containers: [{name: a, image: a}]}}}}`

// It accepts whole objects, and fragments as a part of one. Unknown fields are errors.
func TestTheAPIServerAcceptsTheYAMLOfPages(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	crds.Install(t, c, crds.All()...)
	check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "listener-operator"}}))
	for _, b := range pages.Blocks(t, "yaml") {
		for document := range strings.SplitSeq(b.Text, "\n---\n") {
			object := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
				t.Errorf("%s:%d: %v", b.Page, b.Line, err)
				continue
			}
			if object["kind"] == nil {
				acceptFragment(t, c, namespace, b, object)
				continue
			}
			if err := accept(t, c, namespace, object); err != nil {
				t.Errorf("%s:%d: %v", b.Page, b.Line, err)
			}
		}
	}
}

// accept returns the error of the API server for an object, which it does not store.
func accept(t *testing.T, c client.Client, namespace string, object map[string]any) error {
	t.Helper()
	o := &unstructured.Unstructured{Object: object}
	if unserved[o.GetKind()] {
		return nil
	}
	namespaced, err := c.IsObjectNamespaced(o)
	if err != nil {
		return err
	}
	if namespaced {
		o.SetNamespace(namespace)
	}
	o.SetName("documented-" + strings.ToLower(o.GetKind())) // one of the same name may exist
	if o.GetKind() == "ListenerOperator" {
		o.SetName("cluster")
	}
	return c.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// acceptFragment fails the test if no object has the fragment as a part.
func acceptFragment(t *testing.T, c client.Client, namespace string, b pages.Block, fragment map[string]any) {
	t.Helper()
	var problems []string
	for _, whole := range wholes {
		object := map[string]any{}
		check.Must(t, yaml.Unmarshal([]byte(whole.object), &object))
		part := object
		for name := range strings.SplitSeq(whole.path, ".") {
			if name != "" {
				part = child(part, name)
			}
		}
		merge(part, fragment)
		err := accept(t, c, namespace, object)
		if err == nil {
			return
		}
		problems = append(problems, err.Error())
	}
	t.Errorf("%s:%d: no object accepts the fragment:\n%s", b.Page, b.Line, strings.Join(problems, "\n"))
}

// child returns a field of an object, or its first element if the field is a list, whose next name is 0.
func child(object map[string]any, name string) map[string]any {
	if name == "0" {
		return object
	}
	if list, ok := object[name].([]any); ok {
		return list[0].(map[string]any)
	}
	return object[name].(map[string]any)
}

// merge sets the fields of a fragment.
func merge(object, fragment map[string]any) {
	for name, value := range fragment {
		inner, isObject := value.(map[string]any)
		if existing, ok := object[name].(map[string]any); ok && isObject {
			merge(existing, inner)
			continue
		}
		raw, _ := json.Marshal(value) // a copy, as a fragment is tried several times
		var copied any
		_ = json.Unmarshal(raw, &copied)
		object[name] = copied
	}
}

// key is an annotation or label of this project, in text.
var key = regexp.MustCompile(`\b(?:listeners\.stackable\.tech|listener-operator\.dev)/[a-z][a-z0-9_.-]*[a-z0-9]\b`)

// The API server accepts annotations and labels that nobody reads.
func TestKeysOnPagesExist(t *testing.T) {
	known := ""
	for _, path := range []string{
		"../internal/names/names.go", "../controllers/nodeagent/installation/manifests/daemonset-listener-node-agent.yaml",
		"../api/operator/v1alpha1/listeneroperator_types.go", "../controllers/crdprotection/policy.yaml",
	} {
		known += read(t, path)
	}
	checked := 0
	for _, path := range textFiles(t) {
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		for _, k := range key.FindAllString(read(t, path), -1) {
			if checked++; !strings.HasSuffix(k, "/v1alpha1") && !strings.Contains(known, `"`+k+`"`) && !strings.Contains(known, "'"+k+"'") && !strings.Contains(known, k+":") {
				t.Errorf("%s: the code does not have %s", path, k)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d keys were found", checked)
	}
}
