package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// OpenShiftPrograms are the programs of OpenShift that are built from a checkout of MicroShift.
type OpenShiftPrograms struct {
	// Dir is the directory with kube-apiserver and cluster-policy-controller.
	Dir string
	// Kubernetes is the minor version of the API server, such as "1.36".
	Kubernetes string
}

// openShift is the set of OpenShift's programs: the dependencies that they do not need are left out.
var openShift = Set{
	Tags: []string{"include_gcs", "include_oss", "containers_image_openpgp", "providerless", "netgo", "osusergo"},
	Hint: "OpenShift's API server and policy controller, about 5 minutes on two cores",
}

const (
	// openShiftSources is the directory with the main packages, relative to the root of this repository.
	openShiftSources = "test/cluster/tools/_openshift"
	// openShiftPackages is where they appear to be in a checkout of MicroShift.
	openShiftPackages = "cmd/listener-operator"
	// kubernetesVersion is the file in such a checkout with the version of Kubernetes.
	kubernetesVersion = "Makefile.kube_git.var"
)

// versionLine is the line of kubernetesVersion with the whole version.
var versionLine = regexp.MustCompile(`(?m)^KUBE_GIT_VERSION=v((\d+)\.(\d+)\.\S+)$`)

// OpenShift returns OpenShift's programs, built from a checkout of github.com/openshift/microshift with the
// dependencies in it, and builds them first if they are not in the cache. It does not change the checkout. The cache
// key has the commit of the checkout, so changes that are not committed are ignored once the commit is built.
func OpenShift(ctx context.Context, microshift string) (OpenShiftPrograms, error) {
	set, version, err := openShiftSet(microshift)
	if err != nil {
		return OpenShiftPrograms{}, fmt.Errorf("reading the checkout of MicroShift: %w", err)
	}
	root, err := checkout.Root()
	if err != nil {
		return OpenShiftPrograms{}, err
	}
	sources := filepath.Join(root, filepath.FromSlash(openShiftSources))
	hash, err := set.openShiftHash(ctx, microshift, sources)
	if err != nil {
		return OpenShiftPrograms{}, fmt.Errorf("hashing OpenShift's programs: %w", err)
	}
	cache, err := cacheDir()
	if err != nil {
		return OpenShiftPrograms{}, err
	}
	programs := OpenShiftPrograms{Dir: filepath.Join(cache, "openshift-"+hash), Kubernetes: version}
	err = set.ensure(ctx, "openshift", programs.Dir, func(dir string) error { return set.compileOpenShift(ctx, microshift, sources, dir) })
	return programs, err
}

// openShiftSet returns the set of the programs of a checkout, and the minor version of Kubernetes that they have.
func openShiftSet(microshift string) (Set, string, error) {
	content, err := os.ReadFile(filepath.Join(microshift, kubernetesVersion))
	if err != nil {
		return Set{}, "", err
	}
	version := versionLine.FindStringSubmatch(string(content))
	if version == nil {
		return Set{}, "", fmt.Errorf("%s has no KUBE_GIT_VERSION", kubernetesVersion)
	}
	set := openShift
	set.LDFlags = kubernetes(version[1]).LDFlags
	return set, version[2] + "." + version[3], nil
}

// openShiftHash returns the cache key of the programs.
func (s Set) openShiftHash(ctx context.Context, microshift, sources string) (string, error) {
	h := sha256.New()
	for _, command := range [][]string{{"git", "-C", microshift, "rev-parse", "HEAD"}, {"go", "env", "GOVERSION"}} {
		output, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", fmt.Errorf("running %v: %w: %s", command, err, exit.Stderr)
		}
		if err != nil {
			return "", fmt.Errorf("running %v: %w", command, err)
		}
		fmt.Fprintln(h, string(output))
	}
	files, err := filepath.Glob(filepath.Join(sources, "*", "*.go"))
	if err != nil {
		return "", fmt.Errorf("listing the sources: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading a source: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(filepath.Dir(file)), len(content), content)
	}
	fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, buildArgs(s, ""))
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// compileOpenShift builds the programs into dir. An overlay makes the go command see the sources in the checkout.
func (s Set) compileOpenShift(ctx context.Context, microshift, sources, dir string) error {
	files, err := filepath.Glob(filepath.Join(sources, "*", "*.go"))
	if err != nil {
		return fmt.Errorf("listing the sources: %w", err)
	}
	replaced := map[string]string{}
	args := append(buildArgs(s, dir), "-mod=vendor", "-overlay", filepath.Join(dir, "overlay.json"))
	for _, file := range files {
		program := filepath.Base(filepath.Dir(file))
		replaced[filepath.Join(microshift, filepath.FromSlash(openShiftPackages), program, filepath.Base(file))] = file
		args = append(args, "./"+path.Join(openShiftPackages, program))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return fmt.Errorf("encoding the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return fmt.Errorf("writing the overlay: %w", err)
	}
	return runGo(ctx, microshift, args...)
}
