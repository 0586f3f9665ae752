package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// empty is a template without a release.
const empty = `
schema: olm.template.basic
entries:
  - {schema: olm.package, name: listener-operator, defaultChannel: stable}
`

// published is a template with two releases. Only the first is in the channel stable.
const published = empty + `
  - schema: olm.channel
    package: listener-operator
    name: candidate
    entries:
      - {name: listener-operator.v0.1.0}
      - {name: listener-operator.v0.2.0, replaces: listener-operator.v0.1.0, skipRange: '>=0.1.0 <0.2.0'}
  - schema: olm.channel
    package: listener-operator
    name: stable
    entries:
      - {name: listener-operator.v0.1.0}
  - {schema: olm.bundle, image: 'registry.example/listener-operator-bundle:v0.1.0'}
  - {schema: olm.bundle, image: 'registry.example/listener-operator-bundle:v0.2.0'}
  - schema: olm.deprecations
    package: listener-operator
    entries:
      - {reference: {schema: olm.bundle, name: listener-operator.v0.1.0}, message: update}
`

// bundleOf returns the directory of a bundle of a package and version.
func bundleOf(t *testing.T, pkg, version, channels string) string {
	t.Helper()
	return files(t, map[string]string{
		"manifests/csv.yaml": fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: listener-operator.v%[1]s
  annotations: {containerImage: 'registry.example:5000/listener-operator:%[1]s'}
spec:
  version: %[1]s
  description: Gives addresses.
  icon: [{base64data: PHN2Zy8+, mediatype: image/svg+xml}]
`, version),
		"metadata/annotations.yaml": fmt.Sprintf(`
annotations:
  operators.operatorframework.io.bundle.package.v1: %s
  operators.operatorframework.io.bundle.channels.v1: %q
`, pkg, channels),
	})
}

// modifiedBundle returns the directory of a bundle with a replacement in its manifest.
func modifiedBundle(t *testing.T, before, after string) string {
	t.Helper()
	dir := bundleOf(t, "listener-operator", "0.3.0", "stable")
	path := filepath.Join(dir, "manifests", "csv.yaml")
	content, err := os.ReadFile(path)
	check.Must(t, err)
	check.Must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(content), before, after)), 0o600))
	return dir
}

// files returns a directory with the files.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		path := filepath.Join(dir, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

// renderArguments is a Renderer whose output is its arguments.
func renderArguments(_ context.Context, source, image string) ([]byte, error) {
	if image != "" {
		source = "a directory"
	}
	return fmt.Appendf(nil, "---\nschema: olm.bundle\nimage: %q\nsource: %q\n", image, source), nil
}

// options returns the options for a template and bundles.
func options(t *testing.T, template string, bundles ...Source) Options {
	t.Helper()
	return Options{
		Template: filepath.Join(files(t, map[string]string{"template.yaml": template}), "template.yaml"),
		Bundles:  bundles,
		Output:   filepath.Join(t.TempDir(), "catalog"),
	}
}

// read returns the content of an output file.
func read(t *testing.T, o Options, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(o.Output, name))
	check.Must(t, err)
	return string(data)
}

// documents parses a stream of YAML.
func documents(t *testing.T, stream string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for document := range strings.SplitSeq(strings.TrimPrefix(stream, "---\n"), "---\n") {
		var fields map[string]any
		check.Must(t, yaml.UnmarshalStrict([]byte(document), &fields))
		all = append(all, fields)
	}
	return all
}

func TestGeneratedCatalogue(t *testing.T) {
	bundle := Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "candidate,fast,stable")}
	for name, tc := range map[string]struct {
		template string
		channels []string
	}{
		"first-release-starts-its-channels":           {template: empty},
		"next-release-replaces-the-last-of-a-channel": {template: published},
		"release-enters-only-the-channels-given":      {template: published, channels: []string{"candidate"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, tc.template, bundle)
			o.Channels = tc.channels
			check.Must(t, run(t.Context(), o, renderArguments))
			golden.Compare(t, name, documents(t, read(t, o, "configs/listener-operator/catalog.yaml")))
		})
	}
}

func TestLocalBundleIsRenderedWhenTheTemplateListsIt(t *testing.T) {
	first := options(t, published, Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "stable"), Image: "registry.example/bundle@sha256:1"})
	check.Must(t, run(t.Context(), first, renderArguments))
	second := options(t, read(t, first, "template.yaml"), first.Bundles...)
	check.Must(t, run(t.Context(), second, renderArguments))
	if template := read(t, first, "template.yaml"); !strings.Contains(template, "registry.example/bundle@sha256:1") {
		t.Errorf("the template does not contain the given image:\n%s", template)
	}
	for _, file := range []string{"template.yaml", "configs/listener-operator/catalog.yaml"} {
		if diff := cmp.Diff(read(t, first, file), read(t, second, file)); diff != "" {
			t.Errorf("%s differs (-first +second):\n%s", file, diff)
		}
	}
}

func TestNewReleaseReplacesTheHighestVersion(t *testing.T) {
	template := strings.NewReplacer("v0.1.0", "v0.10.0", "v0.2.0", "v0.9.0").Replace(published)
	o := options(t, template, Source{Dir: bundleOf(t, "listener-operator", "0.11.0", "candidate")})
	check.Must(t, run(t.Context(), o, renderArguments))
	for _, document := range documents(t, read(t, o, "configs/listener-operator/catalog.yaml")) {
		if document["schema"] != schemaChannel || document["name"] != "candidate" {
			continue
		}
		entries := document["entries"].([]any)
		want := entry{"name": "listener-operator.v0.11.0", "replaces": "listener-operator.v0.10.0", "skipRange": ">=0.9.0 <0.11.0"}
		check.Equal(t, "new release", want, entries[len(entries)-1])
	}
}

func TestInvalidInputIsRejected(t *testing.T) {
	good := Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "stable")}
	for name, tc := range map[string]struct {
		template string
		bundle   Source
		want     string
	}{
		"an older release":   {published, Source{Dir: bundleOf(t, "listener-operator", "0.1.5", "candidate")}, "listener-operator.v0.2.0 exists and is not older"},
		"the same release":   {published, Source{Dir: bundleOf(t, "listener-operator", "0.2.0+again", "candidate")}, "listener-operator.v0.2.0 exists and is not older"},
		"an unknown field":   {empty + "\nmore: true\n", good, "more"},
		"a broken icon":      {empty, Source{Dir: modifiedBundle(t, "PHN2Zy8+", "no-base64")}, "decoding the icon"},
		"no CSV":             {empty, Source{Dir: modifiedBundle(t, "ClusterServiceVersion", "ConfigMap")}, "unable to find a csv"},
		"another package":    {empty, Source{Dir: bundleOf(t, "other", "0.3.0", "stable")}, `"other"`},
		"no channel":         {empty, Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "")}, "no channel"},
		"an unexpected name": {strings.ReplaceAll(published, "operator.v0.1.0", "operator-1"), good, "is not like"},
		"another schema":     {strings.Replace(empty, "basic", "semver", 1), good, "olm.template.semver"},
		"no package":         {strings.Replace(empty, "olm.package", "olm.other", 1), good, "no olm.package"},
		"no template":        {"entries: 1", good, "parsing"},
		"no bundle":          {empty, Source{Dir: t.TempDir()}, "reading the bundle"},
		"no directory":       {empty, Source{Dir: "does-not-exist"}, "does-not-exist"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, tc.template, tc.bundle)
			err := run(t.Context(), o, renderArguments)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if _, err := os.Stat(o.Output); err == nil {
				t.Error("a catalogue was written")
			}
		})
	}
}

func TestPreviousCatalogueIsReplaced(t *testing.T) {
	o := options(t, empty)
	stale := filepath.Join(o.Output, configs, "stale.yaml")
	check.Must(t, os.MkdirAll(filepath.Dir(stale), 0o700))
	check.Must(t, os.WriteFile(stale, nil, 0o600))
	check.Must(t, run(t.Context(), o, renderArguments))
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error of the stale file is %v, want ErrNotExist", err)
	}
	for _, line := range []string{"LABEL operators.operatorframework.io.index.configs.v1=/configs", "COPY configs /configs/"} {
		if content := read(t, o, "catalog.Dockerfile"); !strings.Contains(content, "\n"+line+"\n") {
			t.Errorf("the Dockerfile lacks %q:\n%s", line, content)
		}
	}
}

// opm returns a script that replaces the program opm.
func opm(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(files(t, map[string]string{"opm": "#!/bin/sh\n" + script}), "opm")
	check.Must(t, os.Chmod(path, 0o700))
	return path
}

func TestBundlesAreRenderedByOpm(t *testing.T) {
	for name, tc := range map[string]struct{ bundle, image, want string }{
		"an image":    {bundle: "registry.example/b:1", want: "registry.example/b:1"},
		"a directory": {bundle: "some/dir", image: "registry.example/b:1", want: "some/dir --alpha-image-ref-template=registry.example/b:1"},
	} {
		got, err := renderWith(opm(t, `echo "$@"`))(t.Context(), tc.bundle, tc.image)
		if want := "render --output=yaml --migrate-level=bundle-object-to-csv-metadata " + tc.want + "\n"; string(got) != want || err != nil {
			t.Errorf("%s: ran opm with %q (%v), want %q", name, got, err, want)
		}
	}
	_, err := renderWith(opm(t, "echo no such image >&2; exit 1"))(t.Context(), "registry.example/b:1", "")
	if err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("error %v, want the program's", err)
	}
}

func TestPreviousCatalogueIsKeptWhenABundleCannotBeRendered(t *testing.T) {
	o := options(t, empty, Source{Dir: bundleOf(t, "listener-operator", "0.3.0", "stable")})
	check.Must(t, run(t.Context(), o, renderArguments))
	before := read(t, o, "template.yaml")
	cause := errors.New("no such image")
	err := run(t.Context(), o, func(context.Context, string, string) ([]byte, error) { return nil, cause })
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
	if diff := cmp.Diff(before, read(t, o, "template.yaml")); diff != "" {
		t.Errorf("the catalogue changed:\n%s", diff)
	}
}

func TestTemplateOfTheRepositoryIsConsistent(t *testing.T) {
	g, err := readTemplate("../../config/catalog/template.yaml")
	check.Must(t, err)
	all := map[string]bool{}
	for _, channel := range g.of(schemaChannel) {
		names := releases(channel)
		for _, name := range names {
			all[name] = true
		}
		entries, _ := channel["entries"].([]any)
		for i, e := range entries {
			fields, _ := e.(entry)
			replaces, _ := fields["replaces"].(string)
			if (i > 0) != (replaces != "") || replaces != "" && !slices.Contains(names, replaces) {
				t.Errorf("channel %v: %v replaces %q, which is not in the channel", channel["name"], fields["name"], replaces)
			}
		}
	}
	if bundles := len(g.of(schemaBundle)); bundles != len(all) {
		t.Errorf("%d releases in channels, but %d bundles", len(all), bundles)
	}
}
