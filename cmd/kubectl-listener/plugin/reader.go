package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// presence is whether an object exists.
type presence int

const (
	missing presence = iota
	present
	// forbidden means that the user may not read the object.
	forbidden
)

// examination reads objects from the API server, and reports what it finds. It keeps the first error: after that it
// reads nothing, and takes every object as forbidden. Who examines something looks at err at the end.
type examination struct {
	client.Reader
	report
	err error
}

// get reads an object. A kind that the cluster does not serve has no objects.
func (x *examination) get(ctx context.Context, key types.NamespacedName, o client.Object) presence {
	return x.presence(fmt.Sprintf("reading %T %s", o, key), func() error { return x.Get(ctx, key, o) })
}

// list reads a list of objects. The result is present if the list was read, even if it is empty.
func (x *examination) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) presence {
	return x.presence(fmt.Sprintf("reading %T", list), func() error { return x.List(ctx, list, options...) })
}

// follow reads the object of a finding. If the user may not read it, it reports that.
func (x *examination) follow(ctx context.Context, f finding, o client.Object) presence {
	return x.readable(f, x.get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: f.Name}, o))
}

// followAll reads a list of objects of the finding's kind. If the user may not read it, it reports that.
func (x *examination) followAll(ctx context.Context, f finding, list client.ObjectList, options ...client.ListOption) presence {
	return x.readable(f, x.list(ctx, list, options...))
}

func (x *examination) readable(f finding, found presence) presence {
	if found == forbidden {
		x.add(f.unreadable())
	}
	return found
}

// presence returns whether a request found its object. doing describes the request in an error.
func (x *examination) presence(doing string, request func() error) presence {
	if x.err != nil {
		return forbidden
	}
	switch err := request(); {
	case err == nil:
		return present
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return missing
	case apierrors.IsForbidden(err):
		return forbidden
	default:
		x.err = fmt.Errorf("%s: %w", doing, err)
		return forbidden
	}
}

// lastEvent returns the last event about an object, among those that match, or nil if there is none or the user may not
// read events.
func (x *examination) lastEvent(ctx context.Context, o client.Object, matches func(*corev1.Event) bool) (last *corev1.Event) {
	var list corev1.EventList
	x.list(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(o.GetUID())})
	for i := range list.Items {
		if e := &list.Items[i]; matches(e) && (last == nil || eventTime(e).After(eventTime(last))) {
			last = e
		}
	}
	return last
}

// fromOperator matches the events of the operator.
func fromOperator(e *corev1.Event) bool { return e.ReportingController == names.EventReporter }

// eventTime returns when an event last happened.
func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// pods returns the Pods that mount a claim.
func (x *examination) pods(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (pods []corev1.Pod) {
	var list corev1.PodList
	x.list(ctx, &list, client.InNamespace(pvc.Namespace))
	for i := range list.Items {
		if slices.Contains(index.PodClaims(&list.Items[i]), pvc.Name) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods
}
