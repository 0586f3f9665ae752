// Package bundle performs the checks of catalogues and their pipelines on the bundle for the Operator Lifecycle
// Manager, without a cluster. It must never generate anything: it reads bundle/ as it is committed.
package bundle

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

const (
	root     = "../../"
	dir      = root + "bundle"
	operator = "listener-operator"
	agent    = "listener-node-agent"
)

// load returns the bundle.
func load(t *testing.T) *manifests.Bundle {
	t.Helper()
	b, err := manifests.GetBundleFromDir(dir)
	check.Must(t, err)
	return b
}

// csv returns the bundle's ClusterServiceVersion.
func csv(t *testing.T) *operatorsv1alpha1.ClusterServiceVersion {
	t.Helper()
	return load(t).CSV
}

func TestValidatorsFindNoErrorsOrWarnings(t *testing.T) {
	objects := append(load(t).ObjectsToValidate(), map[string]string{"k8s-version": "1.37"})
	for name, v := range map[string]interfaces.Validator{
		"ClusterServiceVersion":    validation.ClusterServiceVersionValidator,
		"CustomResourceDefinition": validation.CustomResourceDefinitionValidator,
		"Bundle":                   validation.BundleValidator,
		"OperatorHubV2":            validation.OperatorHubV2Validator,
		"StandardCapabilities":     validation.StandardCapabilitiesValidator,
		"StandardCategories":       validation.StandardCategoriesValidator,
		"AlphaDeprecatedAPIs":      validation.AlphaDeprecatedAPIsValidator,
		"GoodPractices":            validation.GoodPracticesValidator,
	} {
		t.Run(name, func(t *testing.T) {
			results := v.Validate(objects...)
			if len(results) == 0 {
				t.Fatal("no results")
			}
			for _, r := range results {
				for _, e := range slices.Concat(r.Errors, r.Warnings) {
					t.Errorf("%s: %v", r.Name, e)
				}
			}
		})
	}
}

func TestBundleContainsOnlyKindsThatEveryClusterInstalls(t *testing.T) {
	// OLM supports a few more, but some only where their API is served, and pipelines reject a NetworkPolicy.
	want := []string{"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole"}
	for _, o := range load(t).Objects {
		if !slices.Contains(want, o.GetKind()) {
			t.Errorf("%s %s must not be part of the bundle: the operator has to install it", o.GetKind(), o.GetName())
		}
		if o.GetNamespace() != "" {
			t.Errorf("%s %s has a namespace, but users choose it", o.GetKind(), o.GetName())
		}
	}
}

func TestCRDsAreThoseOfConfig(t *testing.T) {
	got, want := map[string]any{}, map[string]any{}
	for _, o := range load(t).Objects {
		if o.GetKind() == "CustomResourceDefinition" {
			got[o.GetName()] = o.Object["spec"]
		}
	}
	paths, err := filepath.Glob(root + "config/crd/bases/*.yaml")
	check.Must(t, err)
	for _, path := range paths {
		crd := &unstructured.Unstructured{}
		read(t, path, crd)
		want[crd.GetName()] = crd.Object["spec"]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CRDs; run make bundle (-config +bundle):\n%s", diff)
	}
}

func TestResourcesOfListenerOperatorAreListed(t *testing.T) {
	var want, got []string
	paths, err := filepath.Glob(root + "controllers/nodeagent/installation/testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files of the installed objects: %v", err)
	}
	for _, path := range paths {
		o := &unstructured.Unstructured{}
		read(t, path, o)
		want = append(want, o.GetKind()+" "+o.GetName())
	}
	for _, owned := range csv(t).Spec.CustomResourceDefinitions.Owned {
		if owned.Kind == "ListenerOperator" {
			for _, r := range owned.Resources {
				got = append(got, r.Kind+" "+r.Name)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("resources of ListenerOperator in config/manifests/clusterserviceversion.yaml (-installed +listed):\n%s", diff)
	}
}

func TestPackageName(t *testing.T) {
	b := load(t)
	if b.Package != operator {
		t.Errorf("package is %q", b.Package)
	}
	if want := operator + ".v" + b.CSV.Spec.Version.String(); b.CSV.Name != want {
		t.Errorf("name of the ClusterServiceVersion is %q, want %q", b.CSV.Name, want)
	}
}

func TestChannels(t *testing.T) {
	b := load(t)
	check.Equal(t, "channels", []string{"candidate", "fast", "stable"}, b.Channels)
	if !slices.Contains(b.Channels, b.DefaultChannel) {
		t.Errorf("default channel %q is not one of %v", b.DefaultChannel, b.Channels)
	}
}

func TestAnnotationsNameExistingDirectories(t *testing.T) {
	annotations := bundleAnnotations(t)
	const prefix = "operators.operatorframework.io."
	for name, want := range map[string]string{
		prefix + "bundle.mediatype.v1": "registry+v1",
		prefix + "test.mediatype.v1":   "scorecard+v1",
	} {
		if got := annotations[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"bundle.manifests.v1", "bundle.metadata.v1", "test.config.v1"} {
		path := annotations[prefix+name]
		if info, err := os.Stat(filepath.Join(dir, path)); path == "" || err != nil || !info.IsDir() {
			t.Errorf("%s%s is %q, which is not a directory of the bundle", prefix, name, path)
		}
	}
}

func TestLabelsOfTheImageAreTheAnnotations(t *testing.T) {
	spec, err := image.FromDockerfile(root+"bundle.Dockerfile", root)
	check.Must(t, err)
	if diff := cmp.Diff(bundleAnnotations(t), spec.Labels); diff != "" {
		t.Errorf("labels of bundle.Dockerfile (-annotations +labels):\n%s", diff)
	}
}

func TestScorecardRunsAllSuites(t *testing.T) {
	var config struct {
		Kind   string
		Stages []struct {
			Tests []struct {
				Entrypoint []string
				Labels     struct{ Suite string }
			}
		}
	}
	path := filepath.Join(dir, "tests/scorecard/config.yaml")
	read(t, path, &config)
	got := map[string][]string{}
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			got[test.Labels.Suite] = append(got[test.Labels.Suite], test.Entrypoint[1])
		}
	}
	want := map[string][]string{
		"basic": {"basic-check-spec"},
		"olm": {
			"olm-bundle-validation", "olm-crds-have-validation", "olm-crds-have-resources", "olm-spec-descriptors", "olm-status-descriptors",
		},
		operator: {"bundle-is-installable", "operator-comes-up", "volume-mounts", "uninstall-leaves-nothing"},
	}
	check.Equal(t, "tests of the scorecard", want, got)
	// The scorecard does not support aliases.
	if data, err := os.ReadFile(path); err != nil || bytes.ContainsAny(data, "&*") {
		t.Errorf("%s contains an alias, or cannot be read: %v", path, err)
	}
}

// Catalogue pipelines run yamllint with its default rules, except for a line length of 180 and the indentation of
// sequences.
func TestYAMLStyle(t *testing.T) {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(data)
		if !strings.HasPrefix(text, "---\n") || !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s does not begin with --- or does not end with a single newline", path)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.TrimRight(line, " \t\r") != line || strings.Contains(line, "\t") {
				t.Errorf("%s: trailing spaces or a tab: %q", path, line)
			}
			if len(line) > 180 && !strings.Contains(line, "base64data:") {
				t.Errorf("%s: line is too long: %q", path, line)
			}
		}
		if err := yaml.UnmarshalStrict(data, new(any)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	check.Must(t, err)
}

func TestBundleFitsIntoAConfigMap(t *testing.T) {
	// OLM unpacks a bundle into a ConfigMap, which holds 1 MiB.
	var size int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil || size > 1<<19 {
		t.Errorf("size of the bundle is %d bytes: %v", size, err)
	}
}

// bundleAnnotations returns the content of metadata/annotations.yaml.
func bundleAnnotations(t *testing.T) map[string]string {
	t.Helper()
	var content struct{ Annotations map[string]string }
	read(t, filepath.Join(dir, "metadata/annotations.yaml"), &content)
	return content.Annotations
}

// read parses a file of one YAML document.
func read(t *testing.T, path string, o any) {
	t.Helper()
	data, err := os.ReadFile(path)
	check.Must(t, err)
	if err := yaml.Unmarshal(data, o); err != nil {
		t.Fatalf("parsing %s: %v", path, err)
	}
}

// decode parses an annotation that holds JSON.
func decode[T any](t *testing.T, csv *operatorsv1alpha1.ClusterServiceVersion, name string) (o T) {
	t.Helper()
	if err := json.Unmarshal([]byte(csv.Annotations[name]), &o); err != nil {
		t.Fatalf("the annotation %s: %v", name, err)
	}
	return o
}
