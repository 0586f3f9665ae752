package exposure

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

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

// takenBy is between a key and its holder in the messages of RefuseTaken.
const takenBy = ", which Listener "

// RefuseTaken returns the Refusal of a Listener that needs a key, such as a host, which another Listener has.
func RefuseTaken(reason, need, key string, holder types.NamespacedName, remedy string) *Refusal {
	return Refuse(reason, "%s %s%s%s has already; %s", need, key, takenBy, holder, remedy)
}

// RefusalOf returns the reason why a Listener is not accepted and the condition, or "" if it is accepted, or is being
// deleted. The key is what RefuseTaken got, or "".
func RefusalOf(listener *listenersv1alpha1.Listener) (reason, key string, condition metav1.Condition) {
	if listener.Status == nil || !listener.DeletionTimestamp.IsZero() {
		return "", "", condition
	}
	accepted := meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionFalse {
		return "", "", condition
	}
	if need, _, taken := strings.Cut(accepted.Message, takenBy); taken {
		key = need[strings.LastIndexByte(need, ' ')+1:]
	}
	return accepted.Reason, key, *accepted
}
