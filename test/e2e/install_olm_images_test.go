//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// pullSecret is the name of the Secret with the mirror's password, in the namespaces of the CatalogSource and of the
// operator.
const pullSecret = "mirror"

// images are images by their published names, which have digests and the name of a registry that does not exist. The
// cluster can pull those that are in its mirror.
type images map[string]v1.Image

// publish builds an image and returns its published name.
func (i images) publish(repository string, spec image.Spec) (string, error) {
	img, err := image.Build(spec)
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	if err != nil {
		return "", err
	}
	ref := cluster.MirroredRegistry + "/" + repository + "@" + digest.String()
	i[ref] = img
	return ref, nil
}

// mirror copies images into the mirror.
func (i images) mirror(ctx context.Context, refs ...string) error {
	for _, ref := range refs {
		img, ok := i[ref]
		if !ok {
			return fmt.Errorf("image %s was not built", ref)
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(ref, cluster.MirroredRegistry+"/"), "@")
		if _, err := testbed.Push(ctx, path, img); err != nil {
			return err
		}
	}
	return nil
}

// imagesOf returns the images that a catalog refers to, as docs/disconnected.md describes it.
func imagesOf(ctx context.Context, catalog string) ([]string, error) {
	programs, err := olm.Programs(ctx)
	if err != nil {
		return nil, err
	}
	rendered, err := output(ctx, catalog, nil, filepath.Join(programs, "opm"), "render", ".", "--output=json")
	if err != nil {
		return nil, err
	}
	var refs []string
	for entries := json.NewDecoder(bytes.NewReader(rendered)); ; {
		var entry struct {
			Schema        string
			RelatedImages []struct{ Image string }
		}
		if err := entries.Decode(&entry); errors.Is(err, io.EOF) {
			return refs, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the catalog: %w", err)
		}
		if entry.Schema == "olm.bundle" {
			for _, related := range entry.RelatedImages {
				refs = append(refs, related.Image)
			}
		}
	}
}

// withPullSecret adds the pull secret to the operator's Deployment in the manifests, as an administrator does if the
// nodes have no credentials.
func withPullSecret(manifests []byte) ([]byte, error) {
	const account = "      serviceAccountName: listener-operator\n"
	if !bytes.Contains(manifests, []byte(account)) {
		return nil, errors.New("the manifests lack the Pod template of the operator")
	}
	return bytes.Replace(manifests, []byte(account), []byte("      imagePullSecrets: [{name: "+pullSecret+"}]\n"+account), 1), nil
}

// createPullSecret creates the Secret with the mirror's password in a namespace.
func (m *olmScenario) createPullSecret(namespace string) {
	m.Helper()
	config, err := testbed.PullSecret()
	m.must(err)
	m.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: pullSecret, Namespace: namespace},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
}
