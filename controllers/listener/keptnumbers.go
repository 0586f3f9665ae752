package listener

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// rememberAfter is how old a Listener is when its annotation is written: the start of its Pod does not wait for that.
const rememberAfter = 10 * time.Second

// maxNumbers is how many bytes the annotation may have.
const maxNumbers = 16 << 10

// numbers are what clients know of a Listener, and the operator or the API server has chosen.
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

// remember writes new numbers of a Listener to its annotation. It returns the time until it does so, or 0.
func (r *Reconciler) remember(ctx context.Context, s *snapshot, o *outcome) (time.Duration, error) {
	now := s.remembered
	if len(o.published.NodePorts) > 0 {
		now.NodePorts = o.published.NodePorts
	}
	if len(o.sharedPorts) > 0 {
		now.SharedPorts = o.sharedPorts
	}
	if o.service != nil && s.class.Spec.ClusterIPs != nil {
		now.ClusterIPs = o.service.Spec.ClusterIPs
	}
	if s.backend.IsExclusive() && o.desired.Complete {
		now.Addresses = o.desired.Addresses
	}
	if reflect.DeepEqual(now, s.remembered) {
		return 0, nil
	}
	if left := requests.Left(s.listener.CreationTimestamp, rememberAfter, o.now.Time); left > 0 {
		return left, nil
	}
	text, err := json.Marshal(now)
	if err != nil || len(text) > maxNumbers {
		return 0, err //nolint:wrapcheck // maps and lists can be encoded
	}
	annotations := map[string]any{"annotations": map[string]any{names.AnnotationNumbers: string(text)}}
	return 0, client.IgnoreNotFound(apply.PatchMetadata(ctx, r.Client, s.listener.DeepCopy(), names.FieldManagerDefault, annotations))
}

// inRange returns the ports, by name, whose numbers are in a range.
func inRange(ports map[string]int32, r portRange) map[string]int32 {
	from, err := r.parse() // which the plan reports
	ports = maps.Clone(ports)
	maps.DeleteFunc(ports, func(_ string, number int32) bool { return err != nil || !from.Contains(int(number)) })
	return ports
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status listenersv1alpha1.ListenerStatus) map[string]int32 {
	if len(status.NodePorts) > 0 {
		return status.NodePorts
	}
	return status.LastNodePorts
}
