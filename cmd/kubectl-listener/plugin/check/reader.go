package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

type Presence int

const (
	Missing   Presence = iota
	Present            // it was read
	Forbidden          // the user may not read it
)

// Examination reads objects from the API server, and reports what it finds. It keeps the first error: after that it
// reads nothing, and takes every object as forbidden. Who examines something looks at Err at the end.
type Examination struct {
	Client client.Client
	// Backends are those of the operator.
	Backends backends.List
	Report
	Err error
}

func (x *Examination) About(o client.Object) Finding {
	kind, _ := x.Client.GroupVersionKindFor(o)
	return Finding{Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Get reads an object. A kind that the cluster does not serve has no objects.
func (x *Examination) Get(ctx context.Context, key types.NamespacedName, o client.Object) Presence {
	return x.Request(fmt.Sprintf("reading %T %s", o, key), func() error { return x.Client.Get(ctx, key, o) })
}

// List reads a list of objects. The result is present if the list was read, even if it is empty.
func (x *Examination) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) Presence {
	return x.Request(fmt.Sprintf("reading %T", list), func() error { return x.Client.List(ctx, list, options...) })
}

// Read reads the object of a finding. If the user may not read it, it reports that.
func (x *Examination) Read(ctx context.Context, f Finding, o client.Object) Presence {
	return x.Readable(f, x.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: f.Name}, o))
}

// Require reads an object, and returns whether it was read. If it does not exist, it reports the finding. If a user has
// written the name, others is an empty list for objects of the kind.
func (x *Examination) Require(ctx context.Context, o client.Object, missing Finding, others ...client.ObjectList) bool {
	found := x.Read(ctx, missing, o)
	if found != Missing {
		return found == Present
	}
	for _, list := range others {
		missing = x.DidYouMean(ctx, missing, types.NamespacedName{Namespace: missing.Namespace, Name: missing.Name},
			list)
	}
	x.Add(missing)
	return false
}

// DidYouMean adds the name that may be meant to a finding about a key. others is an empty list of the kind.
func (x *Examination) DidYouMean(ctx context.Context, f Finding, key types.NamespacedName,
	others client.ObjectList) Finding {
	if x.List(ctx, others, client.InNamespace(key.Namespace)) == Present {
		f.Message += lookup.DidYouMean(key.Name, others)
	}
	return f
}

// ReadAll reads a list of objects of the finding's kind. If the user may not read it, it reports that.
func (x *Examination) ReadAll(ctx context.Context, f Finding, list client.ObjectList,
	options ...client.ListOption) Presence {
	return x.Readable(f, x.List(ctx, list, options...))
}

// Readable reports a finding that the user may not read, and returns what was found.
func (x *Examination) Readable(f Finding, found Presence) Presence {
	if found == Forbidden {
		x.Add(f.Unreadable())
	}
	return found
}

// Request returns whether a request found its object. doing describes the request in an error.
func (x *Examination) Request(doing string, request func() error) Presence {
	if x.Err != nil {
		return Forbidden
	}
	switch err := request(); {
	case err == nil:
		return Present
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return Missing
	case apierrors.IsForbidden(err):
		return Forbidden
	default:
		x.Err = fmt.Errorf("%s: %w", doing, err)
		return Forbidden
	}
}

// LastEvent returns the last event about an object that matches, or nil, also if the user may not read events.
func (x *Examination) LastEvent(ctx context.Context, o client.Object,
	matches func(*corev1.Event) bool) (last *corev1.Event) {
	var list corev1.EventList
	x.List(ctx, &list, client.InNamespace(o.GetNamespace()),
		client.MatchingFields{"involvedObject.uid": string(o.GetUID())})
	for e := range Each(list.Items) {
		if matches(e) && (last == nil || EventTime(e).After(EventTime(last))) {
			last = e
		}
	}
	return last
}

func HasReason(reasons ...string) func(*corev1.Event) bool {
	return func(e *corev1.Event) bool { return slices.Contains(reasons, e.Reason) }
}

func EventTime(e *corev1.Event) time.Time {
	repeated := ptr.Deref(e.Series, corev1.EventSeries{}).LastObservedTime
	return slices.MaxFunc([]time.Time{e.CreationTimestamp.Time, e.EventTime.Time, e.LastTimestamp.Time, repeated.Time},
		time.Time.Compare)
}

func Condition(conditions []metav1.Condition, kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(conditions, kind), metav1.Condition{})
}

func PodCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
