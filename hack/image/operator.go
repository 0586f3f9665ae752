package image

import (
	"path/filepath"
	"strings"
)

// Operator returns the spec of the operator's image. It has the programs operator and node-agent of the directory
// programs, which were built for architecture, and what hack/licenses gathered for them in the directory licenses. The
// Dockerfile makes the same image, if on another base.
func Operator(licenses, programs, version, architecture string) Spec {
	return Spec{
		Files: map[string]File{
			"/operator":   {Source: filepath.Join(programs, "operator"), Mode: 0o755},
			"/node-agent": {Source: filepath.Join(programs, "node-agent"), Mode: 0o755},
			"/licenses":   {Source: licenses, Mode: 0o644},
		},
		Entrypoint: []string{"/operator"},
		// The DaemonSet alone sets runAsUser: 0, which writing below the kubelet's directory takes.
		User: "65532",
		// Those that OpenShift's preflight asks for.
		Labels: map[string]string{
			"name":        "listener-operator",
			"vendor":      "The listener operator authors",
			"maintainer":  "The listener operator authors",
			"version":     version,
			"release":     "1",
			"summary":     "Stable addresses for Pods, from outside the cluster",
			"description": "Gives Pods stable addresses that clients outside a Kubernetes or OpenShift cluster can use, and tells each Pod its own.",
		},
		Architecture: architecture,
	}
}

// Architectures returns those that images are made for, as Go names them: those that the bundle claims and that
// OpenShift runs on.
func Architectures() []string {
	return []string{"amd64", "arm64", "ppc64le", "s390x"}
}

// Beside returns the tagged reference of another image of a release, "bundle" or "scorecard", whose repository is named
// after that of the operator's image.
func Beside(operator, name, version string) string {
	repository, _, _ := strings.Cut(operator, "@")
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository = repository[:colon]
	}
	return repository + "-" + name + ":v" + version
}
