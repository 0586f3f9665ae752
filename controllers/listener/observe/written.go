package observe

import (
	"time"

	"github.com/listener-operator/listener-operator/internal/exposure"
)

// Written is what exists after a plan was written, and what became of the plan.
type Written struct {
	// Objects are what exposes the Listener now.
	Objects Objects
	// Refusal is the plan's, or a rejection by the API server, or nil.
	Refusal *exposure.Refusal
	// Err is what is tried again. It may come with a refusal, if the API server may later accept what it rejects now,
	// for example a node port that is in use. Without one, the API server has not decided.
	Err error
	// Applied states that the backend's objects are as planned. Terminating is an object that is being deleted, or
	// empty.
	Applied     bool
	Terminating string
	// SharedPorts are the numbers that the Listener has at a shared address, by port name.
	SharedPorts map[string]int32
	// RejectedNodePorts are the messages of the API server about rejected node ports, by port name. Releasing is the
	// time until node ports or cluster IPs are requested again, or 0.
	RejectedNodePorts map[string]string
	Releasing         time.Duration
}
