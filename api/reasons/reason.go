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

// Foreign is the reason for an object that another owner has, by the kind of the object.
func Foreign(kind string) string { return "Foreign" + kind }

// Rejected is the reason for an object that the API server rejects, by the kind of the object.
func Rejected(kind string) string { return kind + "Rejected" }

// WaitingFor is the reason for an object that no controller serves yet, by the kind of the object.
func WaitingFor(kind string) string { return "WaitingFor" + kind }

// Of returns what is known about a reason. One with the kind of an object that no row has is as those of other kinds,
// and one that is unknown, such as a reason of a later version, is a warning.
func Of(name string) Reason {
	for _, section := range Sections() {
		for _, r := range section.Reasons {
			if r.Name == name {
				return r
			}
		}
	}
	if kind, ok := strings.CutPrefix(name, Foreign("")); ok {
		return foreign(kind, kind)
	}
	if kind, ok := strings.CutSuffix(name, Rejected("")); ok {
		return rejected(kind, kind, "")
	}
	if kind, ok := strings.CutPrefix(name, WaitingFor("")); ok {
		return waiting(kind)
	}
	return Reason{Name: name, Severity: Warning, Actor: User,
		Remedy: "Follow the message; docs/reasons.md has more about reasons."}
}

// foreign returns the reason for a kind, with what people call its objects.
func foreign(kind, called string) Reason {
	return Reason{
		Name: Foreign(kind), Severity: Error, Actor: User,
		Meaning: "The " + called + " with the name that the operator needs belongs to another owner. The operator " +
			"does not change it.",
		Remedy: "Rename the Listener or its port, or delete the " + called + " that the message names.",
	}
}

// rejected returns the reason for a kind, with what people call its objects, and with a further remedy.
func rejected(kind, called, further string) Reason {
	return Reason{
		Name: Rejected(kind), Severity: Error, Actor: Either,
		Meaning: "The API server rejects the " + called + "; the message contains the reason. The operator retries " +
			"within half a minute.",
		Remedy: strings.TrimSpace("Do what the message says, or correct what the API server rejects, in the Listener " +
			"or in its class. " + further),
	}
}

// waiting returns the reason for a kind.
func waiting(kind string) Reason {
	return Reason{
		Name: WaitingFor(kind), Severity: Waiting, Actor: Administrator, Causes: []string{kind},
		Meaning: "No controller has reported an address for the " + kind + ".",
		Remedy:  "If it lasts, ask an administrator whether the controller for the " + kind + " runs.",
	}
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
