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

// pullSecret is the name of the Secret with the mirror's password, beside the CatalogSource and in the operator's
// namespace.
const pullSecret = "mirror"

// images are images by the names that they are published under: with their digests, in a registry that exists nowhere.
// The cluster pulls those that are in its mirror.
type images map[string]v1.Image

// publish makes an image and returns its name.
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
			return fmt.Errorf("nobody has published %s", ref)
		}
		path, _, _ := strings.Cut(strings.TrimPrefix(ref, cluster.MirroredRegistry+"/"), "@")
		if _, err := testbed.Push(ctx, path, img); err != nil {
			return err
		}
	}
	return nil
}

// imagesOf returns what a catalogue names, the way docs/disconnected.md has it.
func imagesOf(ctx context.Context, catalogue string) ([]string, error) {
	programs, err := olm.Programs(ctx)
	if err != nil {
		return nil, err
	}
	rendered, err := output(ctx, catalogue, nil, filepath.Join(programs, "opm"), "render", ".", "--output=json")
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
			return nil, fmt.Errorf("parsing the catalogue: %w", err)
		}
		if entry.Schema == "olm.bundle" {
			for _, related := range entry.RelatedImages {
				refs = append(refs, related.Image)
			}
		}
	}
}

// withPullSecret adds the pull secret to the operator's Deployment in the manifests, as an administrator does where
// nodes have no password.
func withPullSecret(manifests []byte) ([]byte, error) {
	const account = "      serviceAccountName: listener-operator\n"
	if !bytes.Contains(manifests, []byte(account)) {
		return nil, errors.New("the manifests have no Pod template of the operator")
	}
	return bytes.Replace(manifests, []byte(account), []byte("      imagePullSecrets: [{name: "+pullSecret+"}]\n"+account), 1), nil
}

// mayPull gives the mirror's password to a namespace.
func (m *managed) mayPull(namespace string) {
	m.Helper()
	name, password, err := testbed.RegistryLogin()
	if err != nil {
		m.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{"auths": map[string]any{
		cluster.MirroredRegistry: map[string]string{"username": name, "password": password},
	}})
	if err != nil {
		m.Fatal(err)
	}
	m.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: pullSecret, Namespace: namespace},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
}
