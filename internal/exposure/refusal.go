package exposure

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/message"
)

// Usable returns those of the addresses that another controller reports which clients outside the cluster can use, and
// a list of the others with the reasons, or "". A class that advertises other addresses leaves it to administrators
// what leads clients to these.
func (l *Listener) Usable(reported ...listenersv1alpha1.IngressAddress) (usable []listenersv1alpha1.IngressAddress, leftOut string) {
	var others []string
	for _, a := range reported {
		if problem := l.unusable(a); problem == "" {
			usable = append(usable, a)
		} else if len(others) < maxListed {
			others = append(others, describeLeftOut(a.Address, problem))
		}
	}
	return usable, strings.Join(others, ", ")
}

// UnusableMessage describes an object whose addresses are all left out.
func UnusableMessage(object, leftOut string) string {
	return object + " has no address that clients outside the cluster can use; its controller reports " + leftOut
}

// unusable returns why clients outside the cluster cannot use an address that is published as it is, or "".
func (l *Listener) unusable(a listenersv1alpha1.IngressAddress) string {
	template := string(ptr.Deref(l.Class.Spec.Advertise, listenersv1alpha1.Advertise{}).AddressTemplate)
	isIP := a.AddressType == listenersv1alpha1.AddressTypeIP && address.IsIP(a.Address)
	isHostname := a.AddressType == listenersv1alpha1.AddressTypeHostname && address.IsHostname(a.Address)
	switch {
	case !isIP && !isHostname:
		return fmt.Sprintf("not a valid address of type %s", a.AddressType)
	case template != "" && !strings.Contains(template, "{address}"):
		return ""
	default:
		return address.Inside(a.Address, l.ClusterDomain)
	}
}

// maxQuote is the number of characters of what another controller says that a message quotes.
const maxQuote = 500

// Quote returns what another controller says in its reason and its message, as messages quote it.
func Quote(reason, text string) string {
	return message.Printable(strings.TrimSuffix(strings.TrimPrefix(reason+": "+text, ": "), ": "), maxQuote)
}

func describeLeftOut(address, why string) string {
	return fmt.Sprintf("%s (%s)", message.Printable(address, maxValue), why)
}

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
