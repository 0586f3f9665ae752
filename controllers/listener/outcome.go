package listener

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// outcome is what came of a plan.
type outcome struct {
	// present is what exposes the Listener now.
	present
	// refusal is why the Listener is not accepted, or nil: that of the plan, or a rejection by the API server.
	refusal *exposure.Refusal
	// err is what is tried again. It may come with a refusal, if the API server may later accept what it rejects now,
	// for example a node port that is in use. Without one, the API server has not decided.
	err error
	// applied states that the backend's objects are as planned. terminating is one that is being deleted, or empty.
	applied     bool
	terminating string
	// sharedPorts are the numbers that the Listener has at a shared address, by port name.
	sharedPorts map[string]int32
	// rejectedNodePorts are the messages of the API server about rejected node ports, by port name. releasing is the
	// time until they are requested again, or 0.
	rejectedNodePorts map[string]string
	releasing         time.Duration
	// placement is where the Pods of the Listener are now.
	placement exposure.Placement
	// now is the time of the reconciliation.
	now metav1.Time
	// idleReason and idleMessage state why nothing responds at the addresses, if that lasts, or are empty.
	idleReason, idleMessage string
}

func newOutcome(s *snapshot) *outcome {
	o := &outcome{
		present:     present{service: s.service, objects: map[string]map[objectName]exposure.Object{}, policy: s.policy},
		sharedPorts: s.sharedPorts, rejectedNodePorts: map[string]string{},
	}
	for backend, objects := range s.objects {
		o.objects[backend] = maps.Clone(objects)
	}
	return o
}

// undecided reports whether the API server has neither accepted nor rejected the plan.
func (o *outcome) undecided() bool { return o.err != nil && o.refusal == nil }
