package listener

import (
	"context"
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// maxNumbers is how many bytes the annotation may have.
const maxNumbers = 16 << 10

// numbers are what clients know of a Listener, and the operator or the API server has chosen. They outlive its Service
// in the status, and the status in an annotation, which backups have. serviceWriter requests them again.
type numbers struct {
	NodePorts   map[string]int32 `json:"nodePorts,omitempty"`
	SharedPorts map[string]int32 `json:"sharedPorts,omitempty"`
	ClusterIPs  []string         `json:"clusterIPs,omitempty"`
	// Addresses are those of objects that exclude each other.
	Addresses []listenersv1alpha1.IngressAddress `json:"addresses,omitempty"`
}

// rememberedNumbers returns the numbers in the annotation of a Listener, which users may have written.
func rememberedNumbers(listener *listenersv1alpha1.Listener) (n numbers) {
	text := listener.Annotations[names.AnnotationNumbers]
	if strict, err := kjson.UnmarshalStrict([]byte(text), &n); err != nil || len(strict) > 0 || len(text) > maxNumbers {
		return numbers{}
	}
	return n
}

// write writes the numbers to the annotation of their Listener, unless there are too many.
func (n numbers) write(ctx context.Context, c client.Client, listener *listenersv1alpha1.Listener) error {
	text, err := json.Marshal(n)
	if err != nil || len(text) > maxNumbers {
		return err //nolint:wrapcheck // maps and lists can be encoded
	}
	annotations := map[string]any{"annotations": map[string]any{names.AnnotationNumbers: string(text)}}
	return client.IgnoreNotFound(apply.PatchMetadata(ctx, c, listener.DeepCopy(), names.FieldManagerDefault, annotations))
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status listenersv1alpha1.ListenerStatus) map[string]int32 {
	if len(status.NodePorts) > 0 {
		return status.NodePorts
	}
	return status.LastNodePorts
}
