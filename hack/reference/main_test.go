package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestThePageIsCurrent(t *testing.T) {
	root := filepath.Join("..", "..")
	definitions, err := read(filepath.Join(root, "config", "crd", "bases"))
	check.Must(t, err)
	want, err := page(definitions)
	check.Must(t, err)
	got, err := os.ReadFile(filepath.Join(root, "docs", "api.md"))
	check.Must(t, err)
	check.Equal(t, "docs/api.md is not current; run 'make generate'", want+keySection(), string(got))
	volumes, err := os.ReadFile(filepath.Join(root, "docs", "volumes.md"))
	check.Must(t, err)
	check.Equal(t, "docs/volumes.md is not current; run 'make generate'", fill(string(volumes)), string(volumes))
	for _, place := range places {
		if !strings.Contains(string(volumes), "<!-- generated: "+place.String()+" -->\n| "+place.Field) {
			t.Errorf("docs/volumes.md has no table for the %s", place)
		}
	}
}

const definition = `
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, shortNames: [th, thing]}
  versions:
    - name: v1
      additionalPrinterColumns: [{name: Age}, {name: Size, priority: 1}]
      schema:
        openAPIV3Schema:
          description: Thing is a thing.
          properties:
            spec:
              description: ThingSpec describes a thing.
              required: [mode]
              properties:
                mode: {type: string, enum: [A, B], description: mode is A | B.}
                count: {type: integer, minimum: 1, maximum: 9, description: count is a <number>.}
                list:
                  type: array
                  maxItems: 3
                  description: list is a list.
                  items:
                    type: object
                    x-kubernetes-validations: [{rule: "true", message: a must be b}, {rule: "true", message: a must be b}]
                    properties:
                      name: {type: string, maxLength: 63, description: name is a name.}
                names:
                  type: object
                  additionalProperties: {type: string}
                  description: names are names.
                affinity: {type: object, description: affinity is that of Pods., properties: {inner: {type: string}}}
                raw: {type: object, x-kubernetes-preserve-unknown-fields: true, description: raw is anything.}
`

func TestPageHasEachFieldWithItsLimitsAndRules(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	check.Must(t, yaml.Unmarshal([]byte(definition), crd))
	got, err := page([]*apiextensionsv1.CustomResourceDefinition{crd})
	check.Must(t, err)
	_, got, _ = strings.Cut(got, "|---|---|---|---|\n")
	want := `| [Thing](#thing) | ` + "`example.com/v1` | Namespaced | `th`, `thing`" + ` |

## Thing

Thing is a thing.

### Thing: spec

ThingSpec describes a thing.

| field | type | meaning |
|---|---|---|
` + "| `affinity` | [Affinity](https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/) | affinity is that of Pods. |\n" +
		"| `count` | integer, at least 1, at most 9 | count is a &lt;number>. |\n" +
		"| `list` | list of object, at most 3 items | list is a list. |\n" +
		"| `list[].name` | string, at most 63 characters | name is a name. |\n" +
		"| `mode` | one of `A`, `B`, required | mode is A \\| B. |\n" +
		"| `names` | map of names to string | names are names. |\n" +
		"| `raw` | object with any fields | raw is anything. |\n" + `
The API server rejects an object, with one of these messages, if a rule does not hold:

- ` + "`list[]`: a must be b\n\n`kubectl get` shows AGE, SIZE (with `-o wide`).\n"
	check.Equal(t, "page", want, got)
}

func TestAFieldWithoutADescriptionIsAnError(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	check.Must(t, yaml.Unmarshal([]byte(strings.Replace(definition, ", description: name is a name.", "", 1)), crd))
	if _, err := page([]*apiextensionsv1.CustomResourceDefinition{crd}); err == nil || !strings.Contains(err.Error(), "list[].name has no description") {
		t.Errorf("error %v", err)
	}
}
