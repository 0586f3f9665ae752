package image

import (
	"path/filepath"
	"strings"
)

// Operator returns the spec of the operator's image. It contains the programs operator and node-agent of the directory
// programs, which were built for the architecture, and their licenses, which hack/licenses collected in the directory
// licenses. The Dockerfile describes the same image on a selectable base.
func Operator(licenses, programs, version, architecture string) Spec {
	return Spec{
		Files: map[string]File{
			"/operator":   {Source: filepath.Join(programs, "operator"), Mode: 0o755},
			"/node-agent": {Source: filepath.Join(programs, "node-agent"), Mode: 0o755},
			"/licenses":   {Source: licenses, Mode: 0o644},
		},
		Entrypoint: []string{"/operator"},
		// Only the DaemonSet sets runAsUser: 0, which is required for writing to the kubelet's directory.
		User: "65532",
		// OpenShift's preflight requires these.
		Labels: map[string]string{
			"name":        "listener-operator",
			"vendor":      "The listener operator authors",
			"maintainer":  "The listener operator authors",
			"version":     version,
			"release":     "1",
			"summary":     "Stable addresses for Pods, from outside the cluster",
			"description": "Gives Pods stable addresses that clients outside a Kubernetes or OpenShift cluster can use, and provides each Pod with its own addresses.",
		},
		Architecture: architecture,
	}
}

// Architectures returns the GOARCH values of the published images: the architectures that the bundle declares and
// OpenShift supports.
func Architectures() []string {
	return []string{"amd64", "arm64", "ppc64le", "s390x"}
}

// Beside returns the tagged reference of another image of a release, "bundle" or "scorecard", whose repository is named
// after the name of the operator's image.
func Beside(operator, name, version string) string {
	repository, _, _ := strings.Cut(operator, "@")
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository = repository[:colon]
	}
	return repository + "-" + name + ":v" + version
}
