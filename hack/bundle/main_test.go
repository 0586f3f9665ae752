package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// minimal is the smallest stream of manifests that results in a bundle.
const minimal = `
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

// checkout returns a directory with the other files that a bundle is generated from.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"config/manifests/icon.svg":         "<svg/>",
		"config/manifests/annotations.yaml": "annotations: {" + annotationPackage + ": listener-operator, b: '2', a: '1'}",
		"scorecard/config.yaml":             "a: &a {b: c}\nd: *a\n",
	} {
		path := filepath.Join(dir, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
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
		check.Must(t, err)
	}
	return files
}

func generate(t *testing.T, dir string, o Options) map[string]string {
	t.Helper()
	check.Must(t, run(o, dir, strings.NewReader(minimal)))
	return generated(t, dir)
}

func TestOutputDirectory(t *testing.T) {
	dir, output := checkout(t), t.TempDir()
	want := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	generate(t, dir, Options{Version: "1.2.4", Image: "registry.example/a:2", Output: output})
	if diff := cmp.Diff(want, generated(t, dir)); diff != "" {
		t.Errorf("the bundle in the repository changed:\n%s", diff)
	}
	if csv := generated(t, output)[csvFile]; !strings.Contains(csv, "version: 1.2.4") {
		t.Errorf("the bundle in the output directory has another version:\n%s", csv)
	}
}

func TestBundleIsReproducible(t *testing.T) {
	dir := checkout(t)
	first := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	stale := filepath.Join(dir, "bundle/manifests/stale.yaml")
	check.Must(t, os.WriteFile(stale, nil, 0o600))
	// Version and image default to the existing bundle's, and a file that is no longer generated is removed.
	if diff := cmp.Diff(first, generate(t, dir, Options{})); diff != "" {
		t.Errorf("the second bundle differs (-first +second):\n%s", diff)
	}
}

func TestBundleContainsVersionTimeAndImage(t *testing.T) {
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

// Catalogues require other names. The next bundle has what config/ says again.
func TestAnotherPackage(t *testing.T) {
	dir := checkout(t)
	const source = "annotations: {" + annotationPackage + ": listener-operator, " + annotationChannels + ": 'candidate,stable', " + annotationDefault + ": stable}"
	check.Must(t, os.WriteFile(filepath.Join(dir, "config/manifests/annotations.yaml"), []byte(source), 0o600))
	release := Options{Version: "1.2.3", Image: "registry.example/a:1"}
	own := generate(t, dir, release)
	for name, tc := range map[string]struct {
		pkg      string
		channels []string
		want     map[string]string
	}{
		"another name": {pkg: "a-listener-operator", want: map[string]string{
			annotationPackage: "a-listener-operator", annotationChannels: "candidate,stable", annotationDefault: "stable",
		}},
		"other channels": {channels: []string{"fast-v1", "stable-v1"}, want: map[string]string{
			annotationPackage: "listener-operator", annotationChannels: "fast-v1,stable-v1", annotationDefault: "stable-v1",
		}},
		"both, with the default channel": {pkg: "a-listener-operator", channels: []string{"stable", "z"}, want: map[string]string{
			annotationPackage: "a-listener-operator", annotationChannels: "stable,z", annotationDefault: "stable",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			options := release
			options.Package, options.Channels = tc.pkg, tc.channels
			files := generate(t, dir, options)
			for annotation, value := range tc.want {
				if want := annotation + ": " + value + "\n"; !strings.Contains(files[annotationsFile], want) {
					t.Errorf("the annotations lack %q:\n%s", want, files[annotationsFile])
				}
				if want := "LABEL " + annotation + "=\"" + value + "\"\n"; !strings.Contains(files["bundle.Dockerfile"], want) {
					t.Errorf("bundle.Dockerfile lacks %q:\n%s", want, files["bundle.Dockerfile"])
				}
			}
			if want := "name: " + tc.want[annotationPackage] + ".v1.2.3\n"; !strings.Contains(files[csvFile], want) {
				t.Errorf("the ClusterServiceVersion lacks %q:\n%s", want, files[csvFile])
			}
			check.Equal(t, "the next bundle", own, generate(t, dir, Options{}))
		})
	}
}

func TestRolesThatAreBoundToNobodyArePartOfTheBundle(t *testing.T) {
	const roles = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: for-users, labels: {a: b}}
rules: [{apiGroups: [x], resources: [things], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: for-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: for-operator}
roleRef: {kind: ClusterRole, name: for-operator}
subjects: [{kind: ServiceAccount, name: operator}]
`
	dir := checkout(t)
	if err := run(Options{Version: "1.2.3", Image: "registry.example/a:1"}, dir, strings.NewReader(minimal+roles)); err != nil {
		t.Fatal(err)
	}
	files := generated(t, dir)
	if role := files["bundle/manifests/for-users.clusterrole.yaml"]; !strings.Contains(role, "a: b") || !strings.Contains(role, "- get") {
		t.Errorf("the role for users is %q", role)
	}
	if role, ok := files["bundle/manifests/for-operator.clusterrole.yaml"]; ok {
		t.Errorf("a role that OLM creates from the ClusterServiceVersion is in the bundle: %s", role)
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

func TestScorecardUsesTheImageOfTheRelease(t *testing.T) {
	dir := checkout(t)
	check.Must(t, os.WriteFile(filepath.Join(dir, "scorecard/config.yaml"), []byte("image: "+ownTests+"\n"), 0o600))
	files := generate(t, dir, Options{Version: "1.2.3", Image: "registry.example/a:1"})
	if got, want := files["bundle/tests/scorecard/config.yaml"], documentStart+header+"image: registry.example/a-scorecard:v1.2.3\n"; got != want {
		t.Errorf("the scorecard's configuration is %q, want %q", got, want)
	}
}

func TestDescriptorsComeFromTheSchema(t *testing.T) {
	m, err := objects.Read(strings.NewReader(minimal))
	check.Must(t, err)
	crd, err := single[apiextensionsv1.CustomResourceDefinition](m, "CustomResourceDefinition")
	check.Must(t, err)
	got := fields("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	want := []field{
		{path: "nodeAgent", displayName: "Node Agent"},
		{path: "nodeAgent.resources", displayName: "Resources", xDescriptors: []string{uiPrefix + "resourceRequirements"}},
		{path: "ports", displayName: "Ports"},
		{path: "ports[0].name", displayName: "Name", xDescriptors: []string{uiPrefix + "text"}},
		{path: "preset", displayName: "Preset", description: "Which classes.", xDescriptors: []string{uiPrefix + "select:all", uiPrefix + "select:none"}},
	}
	check.Equal(t, "fields", want, got, cmp.AllowUnexported(field{}))
}

func TestInvalidInputIsRejected(t *testing.T) {
	good := Options{Version: "1.2.3", Image: "registry.example/a:1"}
	for name, tc := range map[string]struct {
		options   Options
		manifests string
		want      string
	}{
		"no version":        {Options{Image: good.Image}, minimal, "semantic version"},
		"a leading v":       {Options{Version: "v1.2.3", Image: good.Image}, minimal, "semantic version"},
		"no image":          {Options{Version: good.Version}, minimal, "no registry"},
		"a package's name":  {Options{Version: good.Version, Image: good.Image, Package: "A_b"}, minimal, `package "A_b"`},
		"an empty channel":  {Options{Version: good.Version, Image: good.Image, Channels: []string{"stable", ""}}, minimal, `channel ""`},
		"an unknown field":  {good, strings.Replace(minimal, "template:", "templates:", 1), "templates"},
		"no Deployment":     {good, strings.Replace(minimal, "kind: Deployment", "kind: Other", 1), "0 objects of kind Deployment"},
		"two Deployments":   {good, minimal + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", "2 objects of kind Deployment"},
		"no example":        {good, strings.Replace(minimal, "kind: ListenerOperator\nmetadata", "kind: Other\nmetadata", 1), "finding an example"},
		"no CRD":            {good, strings.Replace(minimal, "- name: v1alpha1", "- name: v1", 1), "no CustomResourceDefinition"},
		"an unused account": {good, minimal + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n", "has no RBAC rules"},
		"a binding to no role": {good, minimal + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\nroleRef: {name: other}\n",
			"no ClusterRole"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkout(t)
			err := run(tc.options, dir, strings.NewReader(tc.manifests))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "bundle")); err == nil {
				t.Error("a bundle was written")
			}
		})
	}
}

func TestLongLinesAreFolded(t *testing.T) {
	long := strings.Repeat("word ", maxLine/5)
	content := map[string]any{
		"long":   long + "end.\n\n- " + long + "end.\nMore info: https://example.com",
		"nested": []any{map[string]any{"example": long + "end:\n\n  key: value\n"}},
		"short":  "first\nsecond\n",
	}
	data, err := yaml.Marshal(content)
	check.Must(t, err)
	folded, err := foldLongLines(data)
	check.Must(t, err)
	for line := range strings.Lines(string(folded)) {
		if len(line) > maxLine {
			t.Errorf("line is too long: %q", line)
		}
	}
	if !strings.Contains(string(folded), "short: |\n  first\n  second\n") {
		t.Errorf("short lines are not kept:\n%s", folded)
	}
	var got map[string]any
	check.Must(t, yaml.Unmarshal(folded, &got))
	check.Equal(t, "values changed", content, got)
}
