// Package operators installs operators of others on a test cluster: unmodified, built from their Go modules, and by the
// manifests in these.
//
// It does not depend on the listener operator.
package operators

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// Operator is an operator of others.
type Operator struct {
	// set is the tool set with its program "manager", whose go.mod pins the module.
	set, module string
	// manifests is the directory of its module with a kustomization, which names the image.
	manifests, image string
	// namespace and deployment are where it runs.
	namespace, deployment string
}

// The operators that the tests run.
var (
	RabbitMQ = Operator{
		set: "rabbitmq-operator", module: "github.com/rabbitmq/cluster-operator/v2",
		manifests: "config/installation", image: "ghcr.io/rabbitmq/cluster-operator:latest",
		namespace: "rabbitmq-system", deployment: "rabbitmq-cluster-operator",
	}
	CloudNativePG = Operator{
		set: "cloudnative-pg", module: "github.com/cloudnative-pg/cloudnative-pg",
		manifests: "config/default", image: "controller:latest",
		namespace: "cnpg-system", deployment: "cnpg-controller-manager",
	}
	Redis = Operator{
		set: "redis-operator", module: "github.com/spotahome/redis-operator",
		manifests: "manifests/kustomize/overlays/minimal", image: "quay.io/spotahome/redis-operator:v1.2.4",
		namespace: "redis-operator", deployment: "redis-operator",
	}
)

//go:embed kustomization.yaml
var kustomization string

// Install builds an operator, which takes minutes, once, installs it, and returns when it is ready.
func Install(ctx context.Context, c *cluster.Cluster, o Operator) error {
	programs, err := tools.Ensure(ctx, o.set)
	if err != nil {
		return err
	}
	program := "/operator/manager_" + runtime.GOARCH // where CloudNativePG looks for itself
	ref, err := c.PushImage(ctx, o.set, image.Spec{
		Files:      map[string]image.File{program: {Source: filepath.Join(programs, "manager"), Mode: 0o755}},
		Links:      map[string]string{"/manager": program},
		Entrypoint: []string{"/manager"},
		User:       "65532",
	})
	if err != nil {
		return err
	}
	source, err := tools.ModuleDir(ctx, o.set, o.module)
	if err != nil {
		return err
	}
	manifests, err := c.Kustomize(ctx, kustomization, filepath.Join(source, filepath.FromSlash(o.manifests)), map[string]string{"Namespace": o.namespace})
	if err != nil {
		return err
	}
	if !bytes.Contains(manifests, []byte(o.image)) {
		return fmt.Errorf("the manifests of %s do not name the image %s", o.set, o.image)
	}
	manifests = bytes.ReplaceAll(manifests, []byte(o.image), []byte(ref))
	namespace, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": o.namespace}})
	if err != nil {
		return fmt.Errorf("encoding a namespace: %w", err)
	}
	if err := c.Install(ctx, "the namespace of "+o.set, namespace, o.namespace); err != nil {
		return err
	}
	return c.Install(ctx, o.set, manifests, o.namespace, "deployment/"+o.deployment)
}
