package listener

import (
	"maps"
	"time"

	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// rememberAfter is from which age on a Listener has its numbers in its annotation. The write does not compete with
// those that the start of its Pod waits for.
const rememberAfter = 10 * time.Second

// maxNumbers is how many bytes the annotation may have.
const maxNumbers = 16 << 10

// numbers are what clients know of a Listener, and the operator or the API server has chosen.
type numbers struct {
	NodePorts   map[string]int32 `json:"nodePorts,omitempty"`
	SharedPorts map[string]int32 `json:"sharedPorts,omitempty"`
	ClusterIPs  []string         `json:"clusterIPs,omitempty"`
}

// rememberedNumbers returns the numbers in the annotation of a Listener. Users may have written it, so readers
// request none that the class or another Listener excludes.
func rememberedNumbers(listener *listenersv1alpha1.Listener) (n numbers) {
	text := listener.Annotations[names.AnnotationNumbers]
	if len(text) > maxNumbers {
		return numbers{}
	}
	if strict, err := kjson.UnmarshalStrict([]byte(text), &n); err != nil || len(strict) > 0 {
		return numbers{}
	}
	return n
}

// inRange returns the ports, by name, whose numbers are in a range.
func inRange(ports map[string]int32, r portRange) (map[string]int32, error) {
	from, err := r.parse()
	ports = maps.Clone(ports)
	maps.DeleteFunc(ports, func(_ string, number int32) bool { return err != nil || !from.Contains(int(number)) })
	return ports, err
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status listenersv1alpha1.ListenerStatus) map[string]int32 {
	if len(status.NodePorts) > 0 {
		return status.NodePorts
	}
	return status.LastNodePorts
}
