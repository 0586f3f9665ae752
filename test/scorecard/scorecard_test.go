//go:build e2e

// Package scorecard runs the scorecard of the Operator SDK on a real cluster: the SDK's suites, and the operator's own, as the bundle names them. Nothing
// is pulled: the images that the bundle names are built here and given to the nodes.
//
// The cluster is brought up before and taken down afterwards; KEEP=1 leaves it up to look around, and a cluster that is up is used again.
package scorecard

import (
	"bytes"
	"cmp"
	"context"
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
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/image"
	"github.com/listener-operator/listener-operator/test/cluster/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// clusterName is the cluster's name, "scorecard" unless the environment variable CLUSTER names one that nobody else's tests use.
var clusterName = cmp.Or(os.Getenv("CLUSTER"), "scorecard")

const (
	root       = "../.."
	bundle     = root + "/bundle"
	untarImage = "scorecard-untar:1"
	busybox    = "/bin/busybox"
	// user is who the images run as: somebody, as the restricted profile wants it.
	user = "65532"
)

// unavoidable are the suggestions that stay, with the reason. The SDK wants to see a status in the example of every kind; these two have none in the API
// that existing consumers rely on, and need none: one is policy that is only read, the other is itself what the operator reports.
var unavoidable = []string{
	"listenerclasses.listeners.stackable.tech does not have status spec",
	"podlisteners.listeners.stackable.tech does not have status spec",
}

func TestScorecard(t *testing.T) {
	ctx := t.Context()
	sdk, err := tools.Ensure(ctx, "operator-sdk")
	if err != nil {
		t.Fatal(err)
	}
	testbed := up(t)
	programs := t.TempDir()
	if err := tools.BuildLocal(ctx, programs, "./cmd/operator", "./cmd/node-agent", "./scorecard/tests"); err != nil {
		t.Fatal(err)
	}
	loadTests(t, testbed, sdk, programs)
	command(t, testbed, "make", "deploy", "IMG="+loadOperator(t, testbed, programs), "KUBECTL="+testbed.Kubectl())
	command(t, testbed, testbed.Kubectl(), "apply", "-f", "scorecard/rbac.yaml")

	var suggestions []string
	for _, test := range run(t, testbed, sdk) {
		t.Run(test.Spec.Labels["suite"]+"/"+strings.TrimSuffix(test.Spec.Labels["test"], "-test"), func(t *testing.T) {
			if len(test.Status.Results) != 1 {
				t.Fatalf("want one result, not %+v", test.Status.Results)
			}
			r := test.Status.Results[0]
			if r.State != v1alpha3.PassState {
				t.Errorf("%s\n%s\n%s", r.State, strings.Join(r.Errors, "\n"), r.Log)
			}
			for _, s := range r.Suggestions {
				if !slices.ContainsFunc(unavoidable, func(u string) bool { return strings.HasPrefix(s, u) }) {
					t.Errorf("suggestion: %s", s)
				}
			}
			suggestions = append(suggestions, r.Suggestions...)
		})
	}
	for _, u := range unavoidable {
		if !slices.ContainsFunc(suggestions, func(s string) bool { return strings.HasPrefix(s, u) }) {
			t.Errorf("nothing suggests any more that %s: take it off the list", u)
		}
	}
}

// up brings up a cluster that lasts as long as the test.
func up(t *testing.T) *cluster.Cluster {
	t.Helper()
	testbed, err := cluster.Up(t.Context(), cluster.Options{Name: clusterName, Nodes: 1, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Getenv("KEEP") != "" {
			return
		}
		if err := cluster.Down(context.Background(), clusterName, os.Stderr); err != nil {
			t.Error(err)
		}
	})
	return testbed
}

// command runs a program in the root of the repository, with the cluster as kubectl's.
func command(t *testing.T, testbed *cluster.Cluster, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+testbed.Kubeconfig())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running %s %v: %v\n%s", name, args, err, output)
	}
}

// loadOperator gives the nodes the operator's image and returns its name, which changes with the content: a cluster that is used again runs the operator
// as it is now.
func loadOperator(t *testing.T, testbed *cluster.Cluster, programs string) string {
	t.Helper()
	spec := image.Operator(root, programs, "scorecard", runtime.GOARCH)
	img, err := image.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := "listener-operator:" + digest.Hex[:8]
	if err := testbed.LoadImage(t.Context(), ref, spec); err != nil {
		t.Fatal(err)
	}
	return ref
}

// loadTests gives the nodes the images of the tests, under the names that the bundle says, and the one that unpacks the bundle for them.
func loadTests(t *testing.T, testbed *cluster.Cluster, sdk, programs string) {
	t.Helper()
	untar, err := image.Busybox(t.Context(), busybox)
	if err != nil {
		t.Fatal(err)
	}
	untar.User = user
	specs := map[string]image.Spec{untarImage: untar}
	for ref, program := range testImages(t) {
		if program == "scorecard-tests" {
			specs[ref] = image.Scorecard(root, filepath.Join(programs, "tests"), runtime.GOARCH)
			continue
		}
		path := "/usr/local/bin/" + program
		specs[ref] = image.Spec{Files: map[string]image.File{path: {Source: filepath.Join(sdk, program)}}, Entrypoint: []string{path}, User: user}
	}
	for ref, spec := range specs {
		if err := testbed.LoadImage(t.Context(), ref, spec); err != nil {
			t.Fatal(err)
		}
	}
}

// testImages returns the images that the bundle names, with the program that it runs in each.
func testImages(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(bundle + "/tests/scorecard/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config v1alpha3.Configuration
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	images := map[string]string{}
	for _, stage := range config.Stages {
		for _, test := range stage.Tests {
			images[test.Image] = filepath.Base(test.Entrypoint[0])
		}
	}
	return images
}

// run runs the scorecard and returns what it found.
func run(t *testing.T, testbed *cluster.Cluster, sdk string) []v1alpha3.Test {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(sdk, "operator-sdk"), "scorecard", bundle,
		"--kubeconfig", testbed.Kubeconfig(), "--namespace", "listener-operator-scorecard", "--service-account", "scorecard",
		"--pod-security", "restricted", "--untar-image", untarImage, "--wait-time", "10m", "--output", "json")
	var output, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &messages
	// It also ends with an error when a test did not pass.
	err := cmd.Run()
	var list v1alpha3.TestList
	if parseErr := json.Unmarshal(output.Bytes(), &list); parseErr != nil || len(list.Items) == 0 {
		t.Fatal(fmt.Errorf("running the scorecard: %w\n%s%s", err, output.Bytes(), messages.Bytes()))
	}
	return list.Items
}
