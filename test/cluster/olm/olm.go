// Package olm installs the Operator Lifecycle Manager (v0) on a test cluster, built from its Go modules like the
// cluster itself.
//
// It does not depend on the operators that are installed through it.
package olm

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/operator-framework/api/crds"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// Namespace is the manager's namespace. A CatalogSource in it serves all namespaces.
const Namespace = "olm"

// uid is the user of the manager's own image.
const uid = "1001"

//go:embed olm.yaml
var manifests string

// Install installs the manager, or completes its installation, and returns when it is available.
func Install(ctx context.Context, c *cluster.Cluster, progress io.Writer) error {
	programs, err := Programs(ctx)
	if err != nil {
		return err
	}
	ref, err := push(ctx, c, programs)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing the Operator Lifecycle Manager")
	definitions, err := crdManifests()
	if err != nil {
		return err
	}
	objects, err := render(ref, !c.OpenShift())
	if err != nil {
		return err
	}
	return apply(ctx, c, definitions, objects, Namespace, "deployment/olm-operator", "deployment/catalog-operator")
}

// apply applies CRDs and then other objects, and returns when the Deployments in the namespace are available.
func apply(ctx context.Context, c *cluster.Cluster, definitions, objects []byte, namespace string, deployments ...string) error {
	if err := c.Install(ctx, "the manager's CRDs", definitions, namespace); err != nil {
		return err
	}
	if err := c.RunKubectl(ctx, definitions, "wait", "--for=condition=Established", "--timeout=60s", "-f", "-"); err != nil {
		return fmt.Errorf("waiting for the manager's CRDs: %w", err)
	}
	return c.Install(ctx, "the manager", objects, namespace, deployments...)
}

// Programs returns the directory of the manager's programs and of opm, and builds them first if necessary.
func Programs(ctx context.Context) (string, error) {
	return tools.Ensure(ctx, "olm")
}

// push builds and pushes the image of the manager and of the helpers of its jobs, and returns its name.
func push(ctx context.Context, c *cluster.Cluster, programs string) (string, error) {
	shell, err := exec.LookPath("busybox")
	if err != nil {
		return "", fmt.Errorf("finding the shell of the manager's image: %w", err)
	}
	spec, err := image.Busybox(ctx, shell) // its jobs run cp
	if err != nil {
		return "", err
	}
	for _, program := range []string{"olm", "catalog", "copy-content", "cpb", "opm", "grpc_health_probe"} {
		spec.Files["/bin/"+program] = image.File{Source: filepath.Join(programs, program)}
	}
	spec.User = uid
	return c.PushImage(ctx, "olm", spec)
}

// crdManifests returns the manager's CustomResourceDefinitions as YAML.
func crdManifests() ([]byte, error) {
	var all bytes.Buffer
	for _, name := range slices.Sorted(slices.Values(crds.AssetNames())) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		content, err := crds.Asset(name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		fmt.Fprintf(&all, "---\n%s\n", content)
	}
	return all.Bytes(), nil
}

// render returns all other manifests as YAML. With setUser, the Pods of catalogues get a user, which OpenShift chooses
// itself, by its security context constraints.
func render(ref string, setUser bool) ([]byte, error) {
	return cluster.Render(manifests, map[string]any{
		"Image": ref,
		"Commands": map[string][]string{
			"olm-operator": {"/bin/olm", "--namespace=" + Namespace},
			"catalog-operator": {
				"/bin/catalog", "--namespace=" + Namespace, "--opmImage=" + ref, "--util-image=" + ref, fmt.Sprintf("--set-workload-user-id=%t", setUser),
			},
		},
	})
}
