package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/hack/archive"
	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// `make validate-chart` checks with Helm what the chart installs.

// manifests returns those that the chart is generated from. The working directory becomes the repository's root.
func manifests(t *testing.T) string {
	t.Helper()
	t.Chdir("../..")
	out, err := command.Run(t.Context(), "go", "tool", "-modfile=hack/tools/dev/go.mod", "kustomize", "build", "config/default")
	check.Must(t, err)
	return string(out)
}

// generate returns the archive of the chart, and its files.
func generate(t *testing.T, manifests string) (packed []byte, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	if err := run(Options{Version: "1.2.3", Image: "registry.example/a@sha256:0", Output: dir}, strings.NewReader(manifests)); err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile(filepath.Join(dir, "listener-operator-1.2.3.tgz"))
	check.Must(t, err)
	unpacked, err := archive.Unpack(packed)
	check.Must(t, err)
	files = map[string]string{}
	for _, f := range unpacked {
		files[strings.TrimPrefix(f.Name, "listener-operator/")] = string(f.Content)
	}
	if unpacked[0].Name != "listener-operator/Chart.yaml" {
		t.Errorf("the first file is %s", unpacked[0].Name)
	}
	return packed, files
}

func TestTheChartHasTheVersionAndImageOfTheRelease(t *testing.T) {
	input := manifests(t)
	first, files := generate(t, input)
	second, _ := generate(t, input)
	if !bytes.Equal(first, second) {
		t.Error("the same input results in another archive")
	}
	if !strings.HasSuffix(files["Chart.yaml"], "version: 1.2.3\nappVersion: \"1.2.3\"\n") {
		t.Errorf("Chart.yaml:\n%s", files["Chart.yaml"])
	}
	if !strings.Contains(files["values.yaml"], "\nimage: registry.example/a@sha256:0\n") {
		t.Errorf("values.yaml:\n%s", files["values.yaml"])
	}
	for name, content := range files {
		if strings.HasPrefix(name, "templates/") && strings.Contains(content, "listener-operator:latest") || strings.Contains(content, "@@") {
			t.Errorf("%s has a part that was not replaced:\n%s", name, content)
		}
	}
}

// Descriptions of fields may contain braces.
func TestBracesInManifestsAreNoTemplates(t *testing.T) {
	input := strings.Replace(manifests(t), "description: ListenerOperator configures", "description: '{{ x }}'\n        title: ListenerOperator configures", 1)
	_, files := generate(t, input)
	const crd = "templates/customresourcedefinition-listeneroperators.listener-operator.dev.yaml"
	if !strings.Contains(files[crd], `{{ "{{" }} x }}`) {
		t.Errorf("%s does not escape braces", crd)
	}
}

func TestManifestsWithAnotherUseOfTheImageAreRejected(t *testing.T) {
	input := manifests(t) + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec: {containers: [{name: other, image: 'listener-operator:latest'}]}\n"
	err := run(Options{Version: "1.2.3", Image: "a", Output: t.TempDir()}, strings.NewReader(input))
	if err == nil || !strings.Contains(err.Error(), "4 times") {
		t.Errorf("error %v", err)
	}
}

func TestOptionsAreRequired(t *testing.T) {
	for want, o := range map[string]Options{"semantic version": {Version: "v1", Image: "a"}, "-image": {Version: "1.2.3"}} {
		if err := run(o, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
