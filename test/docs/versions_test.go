package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// first returns the first group of an expression in a file of the repository.
func first(t *testing.T, path, expression string) string {
	t.Helper()
	content := read(t, "../"+path)
	match := regexp.MustCompile(expression).FindStringSubmatch(content)
	if match == nil {
		t.Fatalf("%s has no %s", path, expression)
	}
	return match[1]
}

// kubernetesIn returns the version of Kubernetes in a version of OpenShift.
func kubernetesIn(t *testing.T, openshift string) string {
	t.Helper()
	major, minor, _ := strings.Cut(openshift, ".")
	n, err := strconv.Atoi(minor)
	check.Must(t, err)
	return fmt.Sprintf("1.%d", n+map[string]int{"4": 13, "5": 36}[major])
}

// They are in the policy, where OLM and Helm read them, and in the tests.
func TestSupportedVersionsAreTheSameEverywhere(t *testing.T) {
	page := read(t, "versions.md")
	var kubernetes, openshift, tested []string
	for _, row := range regexp.MustCompile(`(?m)^\| (1\.\d+) \| ([^|]+) \| (.+) \|$`).FindAllStringSubmatch(page, -1) {
		kubernetes = append(kubernetes, row[1])
		for _, version := range regexp.MustCompile(`\d+\.\d+`).FindAllString(row[2], -1) {
			if contained := kubernetesIn(t, version); contained != row[1] {
				t.Errorf("OpenShift %s contains Kubernetes %s, not %s", version, contained, row[1])
			}
			openshift = append(openshift, "v"+version)
		}
		if !strings.HasPrefix(row[3], "not by us") {
			tested = append(tested, row[1])
		}
	}
	if len(kubernetes) == 0 {
		t.Fatal("versions.md has no table of versions")
	}
	slices.Reverse(tested)
	slices.Reverse(openshift)
	lowest := kubernetes[len(kubernetes)-1]
	for _, tc := range []struct{ path, expression, want string }{
		{path: "config/manifests/clusterserviceversion.yaml", expression: `minKubeVersion: (\S+)`, want: lowest + ".0"},
		{path: "config/chart/Chart.yaml", expression: `kubeVersion: ">=(\S+)-0"`, want: lowest + ".0"},
		{path: "config/manifests/annotations.yaml", expression: `com.redhat.openshift.versions: (\S+)`, want: openshift[0] + "-" + openshift[len(openshift)-1]},
		{path: "config/catalog/openshift/ci.yaml", expression: `catalog_names: \[(.+)\]`, want: strings.Join(openshift, ", ")},
		{path: "docs/install.md", expression: `You need Kubernetes (\S+) or newer`, want: lowest},
		{path: "Makefile", expression: `KUBERNETES_VERSIONS \?= (.+)`, want: strings.Join(tested, " ")},
	} {
		if got := first(t, tc.path, tc.expression); got != tc.want {
			t.Errorf("%s has %s, and versions.md %s", tc.path, got, tc.want)
		}
	}
}
