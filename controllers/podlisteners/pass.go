package podlisteners

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// actionMount is the action of the events. Different causes of the same reason have different actions, because the
// recorder only counts an event that differs from an earlier one in nothing but its text.
const actionMount = "Mount"

// warning is an event that users get once, and again later if its cause lasts.
type warning struct {
	cause
	action, text string
	// regarding is a Pod or a claim. related may be nil.
	regarding, related runtime.Object
}

// cause identifies the warnings on an object with the same reason, about one volume, or about all if volume is "".
type cause struct {
	object         types.UID
	volume, reason string
}

// pass is one look at a Pod, with the warnings about it.
type pass struct {
	pod *corev1.Pod
	// verdictIn is how long the kubelet may still take to accept or reject the Pod.
	verdictIn time.Duration
	warnings  []warning
	// overQuota joins the errors about Listeners that a ResourceQuota does not permit.
	overQuota error
	again     requests.Deadlines
	// complete states that the warnings are all that there are: each volume has addresses, or a warning says why not.
	complete bool
}

// add adds a warning with what an event can have of its text.
func (p *pass) add(w warning) {
	w.text = message.Printable(w.text, message.MaxEvent)
	p.warnings = append(p.warnings, w)
}

// warn adds a warning about all volumes of the Pod.
func (p *pass) warn(reason, action, format string, args ...any) {
	p.add(warning{cause{p.pod.UID, "", reason}, action, fmt.Sprintf(format, args...), p.pod, nil})
}
