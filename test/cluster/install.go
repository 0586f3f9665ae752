package cluster

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"text/template"

	"github.com/listener-operator/listener-operator/hack/image"
)

// ProgramImage returns the spec of an image with one file of this machine, a program, which it runs as a user.
func ProgramImage(source, target, user string) image.Spec {
	return image.Spec{Files: map[string]image.File{target: {Source: source, Mode: 0o755}}, Entrypoint: []string{target}, User: user}
}

// Install applies manifests, and waits until workloads of a namespace, such as "deployment/controller", are ready. An
// error names what is installed.
func (c *Cluster) Install(ctx context.Context, what string, manifests []byte, namespace string, workloads ...string) error {
	if err := c.RunKubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return fmt.Errorf("installing %s: %w", what, err)
	}
	for _, workload := range workloads {
		if err := c.RunKubectl(ctx, nil, "rollout", "status", "--namespace="+namespace, "--timeout=180s", workload); err != nil {
			return fmt.Errorf("waiting for %s of %s: %w", path.Base(workload), what, err)
		}
	}
	return nil
}

// Render returns manifests, which are a template of these values.
func Render(manifests string, values any) ([]byte, error) {
	parsed, err := template.New("manifests").Option("missingkey=error").Parse(manifests)
	if err != nil {
		return nil, fmt.Errorf("parsing manifests: %w", err)
	}
	var rendered bytes.Buffer
	if err := parsed.Execute(&rendered, values); err != nil {
		return nil, fmt.Errorf("rendering manifests: %w", err)
	}
	return rendered.Bytes(), nil
}
