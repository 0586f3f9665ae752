// Package walk follows the path of an address from one object to the next, and says what it finds. `why` prints the
// walk from one object, `doctor` what the walks from all objects find, and `map` shows it. It must change nothing, and
// repeat no rule: what the operator knows is in conditions, events and its own packages, and what reasons mean is in
// package reasons.
//
// paths.go has the walks: those from an object, and those that follow a path further. A file for each kind of object
// has the steps that they consist of. nodes.go and installation.go examine what all walks depend on, for doctor.
package walk

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Walk follows the path of an address, and adds what it finds to a report.
type Walk struct {
	*check.Examination
	// mounting are the Pods of namespaces by the claims that they mount. The walks of a command share it.
	mounting map[string]map[string][]corev1.Pod
	// asked states that a user asks about one object. Other walks read nothing that gather must not read.
	asked bool
}

func New(x *check.Examination) *Walk {
	return &Walk{Examination: x, mounting: map[string]map[string][]corev1.Pod{}}
}

// Apart returns a walk with a report of its own, which may use what this one has read, and stops after its error.
func (w *Walk) Apart() *Walk {
	x := &check.Examination{Client: w.Client, Backends: w.Backends, Err: w.Err}
	x.Gathered = w.Gathered
	return &Walk{Examination: x, mounting: w.mounting}
}

// All lists the objects of these kinds, and reports those that the user may not list. It returns whether all were read.
func (w *Walk) All(ctx context.Context, lists ...client.ObjectList) bool {
	read := true
	for _, list := range lists {
		kind, _ := w.Client.GroupVersionKindFor(list) // which is of the scheme
		f := check.Finding{Kind: strings.TrimSuffix(kind.Kind, "List")}
		read = w.ReadAll(ctx, f, list) == check.Present && read
	}
	return read
}

func (w *Walk) Command(name string, o client.Object) string {
	f := w.About(o)
	return fmt.Sprintf("kubectl listener %s %s/%s --namespace %s", name, check.Argument(f.Kind), f.Name, f.Namespace)
}

func (w *Walk) PodListeners(ctx context.Context, pod client.Object) (*listenersv1alpha1.PodListeners, check.Presence) {
	addresses := &listenersv1alpha1.PodListeners{}
	key := types.NamespacedName{Namespace: pod.GetNamespace(), Name: listenersv1alpha1.PodListenersName(pod.GetUID())}
	return addresses, w.Get(ctx, key, addresses)
}

// Served returns a kind in a version that a cluster serves, if it serves the kind.
func Served(c client.Client, kind *exposure.Kind) (_ schema.GroupVersionKind, served bool) {
	mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(),
		append([]string{kind.Version}, kind.OtherVersions...)...)
	if err != nil {
		return kind.GroupVersionKind, false
	}
	return mapping.GroupVersionKind, true
}

func (w *Walk) warn(f check.Finding, problems []string) {
	for _, problem := range problems {
		w.Add(f.Warning(reasons.IgnoredKey, problem))
	}
}

// said returns what the last event that matches says about an object, or otherwise the finding.
func (w *Walk) said(ctx context.Context, o client.Object, matches func(*corev1.Event) bool,
	otherwise check.Finding) check.Finding {
	if event := w.LastEvent(ctx, o, matches); event != nil {
		return otherwise.FailedBy(event.Reason, event.Message)
	}
	return otherwise
}

func ofOperator(e *corev1.Event) bool { return e.ReportingController == names.EventReporter }

func describe(kind string, o client.Object) string {
	return fmt.Sprintf("kubectl describe %s %s --namespace %s", kind, o.GetName(), o.GetNamespace())
}

func deletion(o client.Object) string {
	finalizers := lookup.Finalizers(o)
	if len(finalizers) == 0 {
		return "is being deleted"
	}
	return "is being deleted, and kept by its finalizers: " + columns.Names(finalizers)
}

// unlessDeleted returns a finding, or the warning that its object is being deleted, with those who keep it.
func unlessDeleted(f check.Finding, o client.Object) check.Finding {
	if o.GetDeletionTimestamp() == nil || f.State != check.OK {
		return f
	}
	return f.Warning("", deletion(o))
}
