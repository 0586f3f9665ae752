package listener

import (
	"cmp"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// written is the result of writing the objects of a plan.
type written struct {
	// present is what exposes the Listener now.
	present
	// refusal is the plan's, or a rejection by the API server, or nil.
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
}

// outcome is what the status of a Listener follows from, apart from the snapshot.
type outcome struct {
	*written
	addresses
	idle
	// placement is where the Pods of the Listener are now.
	placement exposure.Placement
	// now is the time of the reconciliation.
	now metav1.Time
}

// refused returns why the Listener is not accepted, or nil.
func (o *outcome) refused() *exposure.Refusal { return cmp.Or(o.refusal, o.taken) }

// undecided reports whether the API server has neither accepted nor rejected the plan.
func (o *outcome) undecided() bool { return o.err != nil && o.refusal == nil }

// with returns what exposes a Listener with these objects of a backend.
func (p present) with(backend *exposure.Backend, objects map[objectName]exposure.Object) present {
	if objects != nil {
		p.objects = maps.Clone(p.objects)
		p.objects[backend.Name] = objects
	}
	return p
}
