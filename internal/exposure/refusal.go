package exposure

import "fmt"

// Refusal is the error for a Listener that cannot be exposed as it is. Its reason is one of those of the condition
// listenersv1alpha1.ListenerAccepted, and its message is for the author of the Listener or of its class: it names the
// cause and the remedy.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns reason and message.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Refuse returns a refusal with a formatted message.
func Refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
