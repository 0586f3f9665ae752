package olm

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// NamespaceV1 is the namespace of the manager's second generation.
const NamespaceV1 = "olmv1-system"

// toolSetV1 is the tool set with the programs of the second generation, whose go.mod pins the module.
const toolSetV1 = "olmv1"

// catalogService is the name in certificates of the server of catalogues.
const catalogService = "catalogd-service." + NamespaceV1 + ".svc"

//go:embed v1.yaml
var manifestsV1 string

// InstallV1 installs the manager's second generation, with ClusterCatalogs and ClusterExtensions, or completes its
// installation, and returns when it is available. It does not repair what others change in the objects that it installs
// (see test/cluster/tools). Both generations may be on one cluster.
func InstallV1(ctx context.Context, c *cluster.Cluster, progress io.Writer) error {
	definitions, err := crdManifestsV1(ctx)
	if err != nil {
		return err
	}
	objects, err := renderV1(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "installing the second generation of the Operator Lifecycle Manager")
	return apply(ctx, c, definitions, objects, NamespaceV1, "deployment/catalogd", "deployment/operator-controller")
}

// crdManifestsV1 returns the CustomResourceDefinitions of the second generation as YAML.
func crdManifestsV1(ctx context.Context) ([]byte, error) {
	source, err := tools.ModuleDir(ctx, toolSetV1, "github.com/operator-framework/operator-controller")
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(source, "helm/olmv1/base/*/crd/standard/*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("finding the manager's CRDs: %w", err)
	}
	var all bytes.Buffer
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a CRD of the manager: %w", err)
		}
		fmt.Fprintf(&all, "---\n%s\n", content)
	}
	return all.Bytes(), nil
}

// renderV1 builds and pushes the image, and returns all other manifests as YAML.
func renderV1(ctx context.Context, c *cluster.Cluster) ([]byte, error) {
	programs, err := tools.Ensure(ctx, toolSetV1)
	if err != nil {
		return nil, err
	}
	spec := image.Spec{Files: map[string]image.File{}, User: uid}
	for _, program := range []string{"catalogd", "operator-controller"} {
		spec.Files["/"+program] = image.File{Source: filepath.Join(programs, program), Mode: 0o755}
	}
	ref, err := c.PushImage(ctx, "olmv1", spec)
	if err != nil {
		return nil, err
	}
	certificate, err := c.IssueCertificate(catalogService)
	if err != nil {
		return nil, err
	}
	secret, err := c.PullSecret()
	if err != nil {
		return nil, err
	}
	pull := []string{"--pull-cas-dir=/authority", "--global-pull-secret=" + NamespaceV1 + "/mirror"}
	return cluster.Render(manifestsV1, map[string]any{
		"Image": ref, "Certificate": certificate, "Login": secret, "Mirrored": cluster.MirroredRegistry, "Mirror": c.Registry(),
		"Commands": map[string][]string{
			"catalogd": append([]string{
				"/catalogd", "--external-address=" + catalogService, "--tls-cert=/certificate/tls.crt", "--tls-key=/certificate/tls.key",
			}, pull...),
			"operator-controller": append([]string{"/operator-controller", "--catalogd-cas-dir=/authority"}, pull...),
		},
	})
}
