package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// small is as little as makes a bundle.
const small = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: listener-operator, annotations: {capabilities: Basic Install}}
spec:
  customresourcedefinitions:
    owned:
      - {name: listeneroperators.listener-operator.dev, kind: ListenerOperator, version: v1alpha1}
---
apiVersion: v1
kind: Namespace
metadata: {name: listener-operator}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: listener-operator}
spec:
  template:
    spec:
      containers:
        - name: operator
          image: listener-operator:latest
          env: [{name: RELATED_IMAGE_NODE_AGENT, value: listener-operator:latest}]
---
apiVersion: listener-operator.dev/v1alpha1
kind: ListenerOperator
metadata: {name: cluster}
spec: {preset: none}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: listeneroperators.listener-operator.dev}
spec:
  group: listener-operator.dev
  names: {kind: ListenerOperator, plural: listeneroperators}
  versions:
    - name: v1alpha1
      schema:
        openAPIV3Schema:
          properties:
            spec:
              properties:
                preset: {type: string, enum: [all, none], description: Which classes.}
                nodeAgent: {properties: {resources: {properties: {limits: {type: object}}}}}
                ports: {type: array, items: {properties: {name: {type: string}}}}
`

// checkout returns a directory with the files that a bundle needs beside the manifests.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"config/manifests/icon.svg":         "<svg/>",
		"config/manifests/annotations.yaml": "annotations: {b: '2', a: '1'}",
		"scorecard/config.yaml":             "a: &a {b: c}\nd: *a\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// generated returns the content of every generated file.
func generated(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, root := range []string{"bundle", "bundle.Dockerfile"} {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, dir+"/")] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func generate(t *testing.T, dir string, o Options) map[string]string {
	t.Helper()
	if err := run(o, dir, strings.NewReader(small)); err != nil {
		t.Fatal(err)
	}
	return generated(t, dir)
}

func TestBundleGoesElsewhereOnDemand(t *testing.T) {
	dir, elsewhere := checkout(t), t.TempDir()
	want := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	generate(t, dir, Options{Version: "1.2.4", Image: "registry.example/a:2", Output: elsewhere})
	if diff := cmp.Diff(want, generated(t, dir)); diff != "" {
		t.Errorf("the bundle in the checkout changed:\n%s", diff)
	}
	if csv := generated(t, elsewhere)[csvFile]; !strings.Contains(csv, "version: 1.2.4") {
		t.Errorf("the bundle elsewhere is not of the version asked for:\n%s", csv)
	}
}

func TestBundleIsTheSameWhenNothingChanged(t *testing.T) {
	dir := checkout(t)
	first := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	stale := filepath.Join(dir, "bundle/manifests/stale.yaml")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Version and image are those of the last bundle, and a file that is no longer generated goes.
	if diff := cmp.Diff(first, generate(t, dir, Options{})); diff != "" {
		t.Errorf("the second bundle differs (-first +second):\n%s", diff)
	}
}

func TestBundleNamesVersionTimeAndImageEverywhere(t *testing.T) {
	csv := generate(t, checkout(t), Options{Version: "1.2.3", Image: "registry.example/a@sha256:00", Created: "2026-01-31T12:00:00Z"})[csvFile]
	for _, want := range []string{
		"name: listener-operator.v1.2.3\n",
		"version: 1.2.3\n",
		"containerImage: registry.example/a@sha256:00\n",
		"createdAt: \"2026-01-31T12:00:00Z\"\n",
		`features.operators.openshift.io/disconnected: "true"`,
		"- image: registry.example/a@sha256:00\n    name: node-agent\n",
		"- image: registry.example/a@sha256:00\n    name: operator\n",
		"value: registry.example/a@sha256:00\n",
	} {
		if !strings.Contains(csv, want) {
			t.Errorf("the ClusterServiceVersion lacks %q:\n%s", want, csv)
		}
	}
	if strings.Contains(csv, "latest") {
		t.Errorf("an image was not replaced:\n%s", csv)
	}
}

func TestLabelsAreSortedAndAliasesResolved(t *testing.T) {
	files := generate(t, checkout(t), Options{Version: "1.2.3", Image: "registry.example/a:1"})
	if want := "LABEL a=\"1\"\nLABEL b=\"2\"\n"; !strings.Contains(files["bundle.Dockerfile"], want) {
		t.Errorf("bundle.Dockerfile lacks %q:\n%s", want, files["bundle.Dockerfile"])
	}
	if got, want := files["bundle/tests/scorecard/config.yaml"], documentStart+header+"a:\n  b: c\nd:\n  b: c\n"; got != want {
		t.Errorf("the scorecard's configuration is %q, want %q", got, want)
	}
}

func TestScorecardRunsTheTestsOfTheRelease(t *testing.T) {
	dir := checkout(t)
	if err := os.WriteFile(filepath.Join(dir, "scorecard/config.yaml"), []byte("image: "+ownTests+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	if got, want := files["bundle/tests/scorecard/config.yaml"], documentStart+header+"image: registry.example/a-scorecard:v1.2.3\n"; got != want {
		t.Errorf("the scorecard's configuration is %q, want %q", got, want)
	}
}

func TestFieldsAreDescribedBySchema(t *testing.T) {
	p, err := read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	got := fields("", p.crds[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	want := []field{
		{path: "nodeAgent", displayName: "Node Agent"},
		{path: "nodeAgent.resources", displayName: "Resources", ui: []string{uiPrefix + "resourceRequirements"}},
		{path: "ports", displayName: "Ports"},
		{path: "ports[0].name", displayName: "Name", ui: []string{uiPrefix + "text"}},
		{path: "preset", displayName: "Preset", description: "Which classes.", ui: []string{uiPrefix + "select:all", uiPrefix + "select:none"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(field{})); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestWhatMakesNoBundleIsRefused(t *testing.T) {
	good := Options{Version: "1.2.3", Image: "registry.example/a:1"}
	for name, tc := range map[string]struct {
		options   Options
		manifests string
		want      string
	}{
		"no version":        {Options{Image: good.Image}, small, "semantic version"},
		"a leading v":       {Options{Version: "v1.2.3", Image: good.Image}, small, "semantic version"},
		"no image":          {Options{Version: good.Version}, small, "no registry"},
		"an unknown field":  {good, strings.Replace(small, "template:", "templates:", 1), "templates"},
		"no Deployment":     {good, strings.Replace(small, "kind: Deployment", "kind: Other", 1), "no Deployment"},
		"two Deployments":   {good, small + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", "another one"},
		"no example":        {good, strings.Replace(small, "kind: ListenerOperator\nmetadata", "kind: Other\nmetadata", 1), "no example"},
		"no definition":     {good, strings.Replace(small, "- name: v1alpha1", "- name: v1", 1), "no CustomResourceDefinition"},
		"an unused account": {good, small + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n", "has no right"},
		"a binding to no role": {good, small + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\nroleRef: {name: other}\n",
			"names no ClusterRole"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkout(t)
			err := run(tc.options, dir, strings.NewReader(tc.manifests))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "bundle")); err == nil {
				t.Error("there is a bundle")
			}
		})
	}
}
