//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

const (
	// untarImage is the image of the init container that unpacks the bundle.
	untarImage = "scorecard-untar:1"
	// testUser is the user of the scorecard's images. The restricted Pod security standard requires one that is not
	// root.
	testUser = "65532"
)

// acceptedSuggestions are suggestions that cannot be followed. The SDK expects a status in the example of every custom
// resource. These two have none in the API that existing consumers rely on, and need none: the ListenerClass is only
// read, and PodListeners is itself what the operator reports.
var acceptedSuggestions = []string{
	"listenerclasses.listeners.stackable.tech does not have status spec",
	"podlisteners.listeners.stackable.tech does not have status spec",
}

// runScorecard runs the scorecard on a new installation.
func (m *olmScenario) runScorecard() {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scored-", Labels: map[string]string{podSecurity: "privileged"}}}
	m.createOperatorNamespace(namespace)
	m.subscribe()
	m.awaitInstalled()
	m.awaitAvailable()
	m.checkScorecard()
	m.uninstallFrom(namespace)
}

// checkScorecard runs the Operator SDK's scorecard, with all suites of the bundle's configuration. The images of the
// tests are not pulled, but built here and loaded onto the nodes.
func (m *olmScenario) checkScorecard() {
	sdk, err := tools.Ensure(m.ctx, "operator-sdk")
	m.must(err)
	m.loadTestImages(sdk)
	if _, err := kubectl(m.ctx, "apply", "-f", "../../scorecard/rbac.yaml"); err != nil {
		m.Fatal(err)
	}

	var suggestions []string
	for _, test := range m.scorecard(sdk) {
		m.t.Run(test.Spec.Labels["suite"]+"/"+strings.TrimSuffix(test.Spec.Labels["test"], "-test"), func(t *testing.T) {
			suggestions = append(suggestions, checkResult(t, test.Status)...)
		})
	}
	for _, u := range acceptedSuggestions {
		if !slices.ContainsFunc(suggestions, func(s string) bool { return strings.HasPrefix(s, u) }) {
			m.Errorf("the scorecard no longer suggests %q; remove it from acceptedSuggestions", u)
		}
	}

	if _, err := kubectl(m.ctx, "delete", "-f", "../../scorecard/rbac.yaml"); err != nil {
		m.Error(err)
	}
}

// checkResult checks that a test passed and that all of its suggestions are accepted ones, and returns the suggestions.
func checkResult(t *testing.T, status v1alpha3.TestStatus) []string {
	t.Helper()
	if len(status.Results) != 1 {
		t.Fatalf("got the results %+v, want one", status.Results)
	}
	r := status.Results[0]
	if r.State != v1alpha3.PassState {
		t.Errorf("%s\n%s\n%s", r.State, strings.Join(r.Errors, "\n"), r.Log)
	}
	for _, s := range r.Suggestions {
		if !slices.ContainsFunc(acceptedSuggestions, func(u string) bool { return strings.HasPrefix(s, u) }) {
			t.Errorf("suggestion: %s", s)
		}
	}
	return r.Suggestions
}

// loadTestImages builds the images that the bundle's configuration refers to, and untarImage, and loads them onto the
// nodes.
func (m *olmScenario) loadTestImages(sdk string) {
	m.Helper()
	root, err := checkout.Root()
	m.must(err)
	dir := m.TempDir()
	build := exec.CommandContext(m.ctx, "go", "-C", "scorecard", "build", "-trimpath", "-o", dir, "./tests")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	m.must(build.Run())
	licenses := filepath.Join(dir, "licenses")
	if _, err := output(m.ctx, root, nil, "go", "-C", "hack", "run", "./licenses", "-C", "scorecard", "-output", licenses, "./tests"); err != nil {
		m.Fatal(err)
	}
	shell, err := exec.LookPath("busybox")
	m.must(err)
	untar, err := image.Busybox(m.ctx, shell)
	m.must(err)
	untar.User = testUser
	specs := map[string]image.Spec{untarImage: untar}
	for ref, program := range m.testImages() {
		if program == "scorecard-tests" {
			specs[ref] = image.Scorecard(licenses, filepath.Join(dir, "tests"), runtime.GOARCH)
			continue
		}
		path := "/usr/local/bin/" + program
		specs[ref] = image.Spec{Files: map[string]image.File{path: {Source: filepath.Join(sdk, program)}}, Entrypoint: []string{path}, User: testUser}
	}
	for ref, spec := range specs {
		m.must(testbed.LoadImage(m.ctx, ref, spec))
	}
}

// testImages returns the programs of the tests in the bundle's configuration, by image.
func (m *olmScenario) testImages() map[string]string {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(m.latest().dir, "bundle/tests/scorecard/config.yaml"))
	m.must(err)
	var config v1alpha3.Configuration
	m.must(yaml.Unmarshal(data, &config))
	images := map[string]string{}
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			images[test.Image] = filepath.Base(test.Entrypoint[0])
		}
	}
	return images
}

// scorecard runs the scorecard and returns its tests with their results.
func (m *olmScenario) scorecard(sdk string) []v1alpha3.Test {
	m.Helper()
	cmd := exec.CommandContext(m.ctx, filepath.Join(sdk, "operator-sdk"), "scorecard", filepath.Join(m.latest().dir, "bundle"),
		"--kubeconfig", testbed.Kubeconfig(), "--namespace", "listener-operator-scorecard", "--service-account", "scorecard",
		"--pod-security", "restricted", "--untar-image", untarImage, "--wait-time", "10m", "--output", "json")
	var output, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &messages
	// It also returns an error if a test has failed.
	err := cmd.Run()
	var list v1alpha3.TestList
	if parseErr := json.Unmarshal(output.Bytes(), &list); parseErr != nil || len(list.Items) == 0 {
		m.Fatal(fmt.Errorf("running the scorecard: %w\n%s%s", err, output.Bytes(), messages.Bytes()))
	}
	return list.Items
}
