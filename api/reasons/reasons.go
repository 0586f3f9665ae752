// Package reasons has the meaning of every reason of conditions and events: how bad it is, who has to act, and what to
// do. The operator's events, the commands of the plugin and docs/reasons.md read it, and none of them has words of its
// own for a reason. It depends on the API alone.
package reasons

import "strings"

// Severity is how bad it is that an object has a reason.
type Severity string

// The severities.
const (
	// Expected means that everything is as it should be.
	Expected Severity = "Expected"
	// Waiting means that nothing is wrong as long as it does not last.
	Waiting Severity = "Waiting"
	// Warning means that a part does not work, or will not in the future.
	Warning Severity = "Warning"
	// Error means that something does not work until a person acts.
	Error Severity = "Error"
)

// Actor is who has to act.
type Actor string

// The actors.
const (
	Nobody        Actor = ""
	User          Actor = "user"
	Administrator Actor = "administrator"
	// Either means that the user can do without what an administrator could change.
	Either Actor = "user or administrator"
	// Operator means that the operator acts by itself. No reason has it.
	Operator Actor = "operator"
)

// Reason is what is known about a reason of conditions and events.
type Reason struct {
	Name string
	// On are the kinds of the objects that have the reason, if they are not Listeners.
	On       []string
	Severity Severity
	Actor    Actor
	// Causes are the kinds of the objects where the cause may be, if the object that has the reason is not of such a
	// kind. A finding about one of them explains this one.
	Causes []string
	// Meaning is a sentence for the page of reasons, which names pages of the documentation as docs/PAGE.md.
	Meaning string
	// Remedy is what to do. It may contain {name} and {namespace} of the object, and {claim} and {node} of a volume.
	Remedy string
	// InMessage states that messages of the operator say what to do, with the names of what is concerned.
	InMessage bool
}

// Section is a part of the page of reasons.
type Section struct {
	Title string
	// Intro is Markdown before the table, or empty.
	Intro   string
	Reasons []Reason
}

// Of returns what is known about a reason. One that is unknown, such as a reason of a later version, is a warning.
func Of(name string) Reason {
	for _, section := range Sections() {
		for _, r := range section.Reasons {
			if r.Name == name {
				return r
			}
		}
	}
	return Reason{Name: name, Severity: Warning, Actor: User,
		Remedy: "Follow the message; docs/reasons.md has more about reasons."}
}

// EventType returns the type of an event with a reason.
func EventType(reason string) string {
	if s := Of(reason).Severity; s == Expected || s == Waiting {
		return "Normal"
	}
	return "Warning"
}

// For returns the remedy for an object. The pairs are placeholders that have other values than the object's, and these
// values.
func (r *Reason) For(namespace, name string, pairs ...string) string {
	return strings.NewReplacer(append(pairs, "{namespace}", namespace, "{name}", name, "{claim}", name, "{node}",
		name)...).Replace(r.Remedy)
}
