package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// Readers copy the examples, so the API server must accept each of them.
func TestExamplesInDocsAreValid(t *testing.T) {
	c := apiserver.Client(t)
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if err := c.Create(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, page := range []string{"openshift-routes.md", "ingress.md"} {
		manual, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Split(string(manual), "```yaml\n")[1:]
		if len(found) == 0 {
			t.Errorf("docs/%s has no example", page)
		}
		examples = append(examples, found...)
	}
	for _, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(example), &o.Object); err != nil {
			t.Fatalf("parsing an example: %v\n%s", err, example)
		}
		if err := c.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}
