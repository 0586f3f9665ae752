// Package check has findings about objects, reports of them, and the requests by which commands find out.
package check

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/internal/version"
)

// RemedyOperator is what to do about what the operator does by itself.
const RemedyOperator = "The operator does this within a moment. If it does not, an administrator finds out why: " +
	"kubectl listener doctor"

type State string

const (
	OK      State = "OK"      // as it should be
	Warning State = "Warning" // needs no action, or not by the user who asks
	Failed  State = "Failed"
	Unknown State = "Unknown" // the user may not read it, or it was not gathered
)

// Finding is what is known about one object. Its JSON is part of the output.
type Finding struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	State     State  `json:"state"`
	// Reason is a reason of conditions and events of the operator or of Kubernetes, or empty.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// Remedy is what to do. It is set for what is wrong.
	Remedy string `json:"remedy,omitempty"`
	// ForUsers states that the users of a namespace have to act, and not an administrator of the cluster.
	ForUsers bool `json:"forUsers,omitempty"`

	// Actor is who has to act, or may have to if the operator does not. It is set for what is wrong.
	Actor reasons.Actor `json:"-"`

	// symptom states that the cause may be another finding.
	symptom bool
	// aside states that the finding concerns a Pod beside its listener volumes.
	aside bool
	// since is when it began, or zero if that is not known.
	since time.Time
}

func (f *Finding) Object() string {
	if f.Name == "" {
		return f.Kind
	}
	return f.Kind + " " + strings.TrimPrefix(f.Namespace+"/"+f.Name, "/")
}

// Argument returns the name of a kind in arguments of commands.
func Argument(kind string) string {
	return strings.ToLower(strings.TrimPrefix(kind, "PersistentVolume"))
}

type Report struct {
	// Gathered is when `kubectl listener gather` read the objects. It is zero if the command reads them itself.
	Gathered time.Time `json:"gathered,omitzero"`
	Findings []Finding `json:"findings"`
	// Problem is the first finding that is wrong, and not the consequence of another one, or null.
	Problem *Finding `json:"problem"`
	// Right is what is known if everything was seen and is right. Empty means that nothing is wrong.
	Right string `json:"-"`
}

func (r *Report) Now() time.Time {
	if r.Gathered.IsZero() {
		return time.Now()
	}
	return r.Gathered
}

// Add adds a finding, with links to the pages that it names, unless the report has it already.
func (r *Report) Add(f Finding) {
	f.Message, f.Remedy = version.Link(f.Message), version.Link(f.Remedy)
	if f.State == Unknown && !r.Gathered.IsZero() {
		f.Message = "was not gathered"
	}
	if !slices.Contains(r.Findings, f) {
		r.Findings = append(r.Findings, f)
	}
}

// AddAll adds each finding that is not OK, and the number of the others in one finding of a kind.
func (r *Report) AddAll(findings []Finding, kind, format string) {
	others := 0
	for _, f := range findings {
		if f.State == OK {
			others++
		} else {
			r.Add(f)
		}
	}
	if others > 0 {
		r.Add(Finding{Kind: kind}.OK(format, others))
	}
}

func (r *Report) Conclude() { r.Problem = r.cause(true) }

// cause returns the first finding that is wrong, if possible a cause. aside includes what does not concern volumes.
func (r *Report) cause(aside bool) *Finding {
	for _, symptoms := range []bool{false, true} {
		for f := range Each(r.Findings) {
			if f.State == Failed && f.symptom == symptoms && (aside || !f.aside) {
				return f
			}
		}
	}
	return nil
}

// settled is how long something may wait before it is reported: most of what waits is just being created.
const settled = 30 * time.Second

// Lasting returns the problem, without what concerns Pods beside their listener volumes. It is nil if the problem may
// still end by itself, because it began a moment ago.
func (r *Report) Lasting() *Finding {
	if f := r.cause(false); f != nil && !r.Young(f.since) {
		return f
	}
	return nil
}

func (r *Report) Young(since time.Time) bool { return r.Now().Sub(since) < settled }

// AllClear returns what is known if no finding is wrong: that nothing is, only if everything was seen and is right.
func (r *Report) AllClear() string {
	objects := map[State][]string{}
	for f := range Each(r.Findings) {
		objects[f.State] = append(objects[f.State], f.Object())
	}
	warnings, unknown := strings.Join(slices.Compact(objects[Warning]), ", "),
		strings.Join(slices.Compact(objects[Unknown]), ", ")
	var text []string
	if warnings != "" {
		text = append(text, "No step has failed. See what is marked with ! at "+warnings+".")
	}
	switch {
	case unknown == "":
	case r.Gathered.IsZero():
		text = append(text, "You may not read "+unknown+
			", so the cause of a problem may be there. Ask an administrator to run the command.")
	default:
		text = append(text, "The result of kubectl listener gather lacks "+unknown+
			", so the cause of a problem may be there. Ask an administrator to gather it.")
	}
	return cmp.Or(strings.Join(text, " "), r.Right, "Nothing is wrong.")
}

func (f *Finding) Text() string { return strings.TrimPrefix(f.Reason+": "+f.Message, ": ") }

func (f Finding) OK(format string, args ...any) Finding {
	f.State, f.Message = OK, fmt.Sprintf(format, args...)
	return f
}

// Warning returns the finding of something that needs no action, or not by the user who asks.
func (f Finding) Warning(reason, message string) Finding {
	f.State, f.Reason, f.Message = Warning, reason, message
	return f
}

func (f Finding) Failed(reason, message, remedy string) Finding {
	f.State, f.Reason, f.Message, f.Remedy, f.Actor = Failed, reason, message, remedy, reasons.Of(reason).Actor
	return f
}

// LeftToOperator returns the finding of something wrong that the operator corrects by itself.
func (f Finding) LeftToOperator(reason, message string) Finding {
	f = f.Failed(reason, message, RemedyOperator)
	f.Actor = reasons.Operator
	return f
}

// FailedBy is Failed with the remedy of the reason, unless the message, which is one of the operator, has a remedy. The
// pairs are placeholders, such as "{node}", and their values.
func (f Finding) FailedBy(reason, message string, pairs ...string) Finding {
	r := reasons.Of(reason)
	if r.InMessage {
		return f.Failed(reason, message, "Do what the message says.")
	}
	return f.Failed(reason, message, r.For(f.Namespace, f.Name, pairs...))
}

func (f Finding) Unreadable() Finding {
	return Finding{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, State: Unknown, Message: "you may not read it"}
}

// Symptom returns the finding of what may be the consequence of another one.
func (f Finding) Symptom() Finding {
	f.symptom = true
	return f
}

func (f Finding) Aside() Finding {
	f.aside = true
	return f
}

func (f *Finding) IsAside() bool { return f.aside }

func (f Finding) Since(since metav1.Time) Finding {
	f.since = since.Time
	return f
}

func Each[T any](items []T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range items {
			if !yield(&items[i]) {
				return
			}
		}
	}
}
