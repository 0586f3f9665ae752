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
	// untarImage unpacks the bundle for the tests.
	untarImage = "scorecard-untar:1"
	// testUser is who the images of the scorecard run as: somebody, as the restricted profile wants it.
	testUser = "65532"
)

// unavoidable are the suggestions that stay, with the reason. The SDK wants to see a status in the example of every
// kind; these two have none in the API that existing consumers rely on, and need none: one is policy that is only read,
// the other is itself what the operator reports.
var unavoidable = []string{
	"listenerclasses.listeners.stackable.tech does not have status spec",
	"podlisteners.listeners.stackable.tech does not have status spec",
}

// isScored: on a new installation, the Operator SDK's scorecard runs its own suites and the operator's, as the bundle
// names them. Nothing is pulled: the images that the bundle names are built here and given to the nodes.
func (m *managed) isScored() {
	sdk, err := tools.Ensure(m.ctx, "operator-sdk")
	if err != nil {
		m.Fatal(err)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scored-", Labels: map[string]string{podSecurity: "privileged"}}}
	m.settle(space)
	m.subscribe()
	m.succeeded()
	m.available()
	m.loadTests(sdk)
	if _, err := kubectl(m.ctx, "apply", "-f", "../../scorecard/rbac.yaml"); err != nil {
		m.Fatal(err)
	}

	var suggestions []string
	for _, test := range m.score(sdk) {
		m.t.Run(test.Spec.Labels["suite"]+"/"+strings.TrimSuffix(test.Spec.Labels["test"], "-test"), func(t *testing.T) {
			suggestions = append(suggestions, judge(t, test.Status)...)
		})
	}
	for _, u := range unavoidable {
		if !slices.ContainsFunc(suggestions, func(s string) bool { return strings.HasPrefix(s, u) }) {
			m.Errorf("nothing suggests any more that %s: take it off the list", u)
		}
	}

	if _, err := kubectl(m.ctx, "delete", "-f", "../../scorecard/rbac.yaml"); err != nil {
		m.Error(err)
	}
	m.leave(space)
}

// judge checks that a test passed and suggests nothing that can be avoided, and returns what it suggests.
func judge(t *testing.T, status v1alpha3.TestStatus) []string {
	t.Helper()
	if len(status.Results) != 1 {
		t.Fatalf("want one result, not %+v", status.Results)
	}
	r := status.Results[0]
	if r.State != v1alpha3.PassState {
		t.Errorf("%s\n%s\n%s", r.State, strings.Join(r.Errors, "\n"), r.Log)
	}
	for _, s := range r.Suggestions {
		if !slices.ContainsFunc(unavoidable, func(u string) bool { return strings.HasPrefix(s, u) }) {
			t.Errorf("suggestion: %s", s)
		}
	}
	return r.Suggestions
}

// loadTests gives the nodes the images of the tests, under the names that the bundle says, and the one that unpacks the
// bundle for them.
func (m *managed) loadTests(sdk string) {
	m.Helper()
	root, err := checkout.Root()
	if err != nil {
		m.Fatal(err)
	}
	dir := m.TempDir()
	build := exec.CommandContext(m.ctx, "go", "-C", "scorecard", "build", "-trimpath", "-o", dir, "./tests")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		m.Fatal(err)
	}
	licenses := filepath.Join(dir, "licenses")
	if _, err := output(m.ctx, root, nil, "go", "-C", "hack", "run", "./licenses", "-C", "scorecard", "-output", licenses, "./tests"); err != nil {
		m.Fatal(err)
	}
	shell, err := exec.LookPath("busybox")
	if err != nil {
		m.Fatal(err)
	}
	untar, err := image.Busybox(m.ctx, shell)
	if err != nil {
		m.Fatal(err)
	}
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
		if err := testbed.LoadImage(m.ctx, ref, spec); err != nil {
			m.Fatal(err)
		}
	}
}

// testImages returns the images that the bundle names, with the program that it runs in each.
func (m *managed) testImages() map[string]string {
	m.Helper()
	data, err := os.ReadFile(filepath.Join(m.latest().dir, "bundle/tests/scorecard/config.yaml"))
	if err != nil {
		m.Fatal(err)
	}
	var config v1alpha3.Configuration
	if err := yaml.Unmarshal(data, &config); err != nil {
		m.Fatal(err)
	}
	images := map[string]string{}
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			images[test.Image] = filepath.Base(test.Entrypoint[0])
		}
	}
	return images
}

// score runs the scorecard and returns what it found.
func (m *managed) score(sdk string) []v1alpha3.Test {
	m.Helper()
	cmd := exec.CommandContext(m.ctx, filepath.Join(sdk, "operator-sdk"), "scorecard", filepath.Join(m.latest().dir, "bundle"),
		"--kubeconfig", testbed.Kubeconfig(), "--namespace", "listener-operator-scorecard", "--service-account", "scorecard",
		"--pod-security", "restricted", "--untar-image", untarImage, "--wait-time", "10m", "--output", "json")
	var output, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &messages
	// It also ends with an error when a test did not pass.
	err := cmd.Run()
	var list v1alpha3.TestList
	if parseErr := json.Unmarshal(output.Bytes(), &list); parseErr != nil || len(list.Items) == 0 {
		m.Fatal(fmt.Errorf("running the scorecard: %w\n%s%s", err, output.Bytes(), messages.Bytes()))
	}
	return list.Items
}
