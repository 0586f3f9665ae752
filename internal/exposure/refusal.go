package exposure

import "fmt"

// Refusal is why a Listener cannot be exposed. Its reason is one of those of the condition
// listenersv1alpha1.ListenerAccepted. Its message names the cause and the remedy, and addresses the author of the
// Listener or of its class.
type Refusal struct {
	Reason  string
	Message string
}

// Error returns reason and message.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Refuse returns a Refusal with a formatted message.
func Refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
