package observe

import (
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// MaxNumbers is how many bytes the annotation may have.
const MaxNumbers = 16 << 10

// Numbers are what clients know of a Listener, and the operator or the API server has chosen. They outlive its Service
// in the status, and the status in an annotation, which backups have. Package write requests them again.
type Numbers struct {
	NodePorts   map[string]int32 `json:"nodePorts,omitempty"`
	SharedPorts map[string]int32 `json:"sharedPorts,omitempty"`
	ClusterIPs  []string         `json:"clusterIPs,omitempty"`
	// Addresses are those of objects that exclude each other.
	Addresses []listenersv1alpha1.IngressAddress `json:"addresses,omitempty"`
}

// rememberedNumbers returns the numbers in the annotation of a Listener, which users may have written.
func rememberedNumbers(listener *listenersv1alpha1.Listener) (n Numbers) {
	text := listener.Annotations[names.AnnotationNumbers]
	if strict, err := kjson.UnmarshalStrict([]byte(text), &n); err != nil || len(strict) > 0 || len(text) > MaxNumbers {
		return Numbers{}
	}
	return n
}

// LastNodePorts returns the last node ports of a Listener's Service, by port name.
func LastNodePorts(status listenersv1alpha1.ListenerStatus) map[string]int32 {
	if len(status.NodePorts) > 0 {
		return status.NodePorts
	}
	return status.LastNodePorts
}
