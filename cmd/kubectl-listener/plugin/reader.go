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

// reader reads objects from the API server.
type reader struct{ client.Reader }

// get reads an object. A kind that the cluster does not serve has no objects.
func (r reader) get(ctx context.Context, key types.NamespacedName, o client.Object) (presence, error) {
	return presenceOf(r.Get(ctx, key, o), fmt.Sprintf("reading %T %s", o, key))
}

// list reads a list of objects. The result is present if the list was read, even if it is empty.
func (r reader) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) (presence, error) {
	return presenceOf(r.List(ctx, list, options...), fmt.Sprintf("reading %T", list))
}

func presenceOf(err error, doing string) (presence, error) {
	switch {
	case err == nil:
		return present, nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return missing, nil
	case apierrors.IsForbidden(err):
		return forbidden, nil
	default:
		return missing, fmt.Errorf("%s: %w", doing, err)
	}
}

// lastEvent returns the last event about an object, among those that match, or nil if there is none or the user may not
// read events.
func (r reader) lastEvent(ctx context.Context, o client.Object, matches func(*corev1.Event) bool) (*corev1.Event, error) {
	var list corev1.EventList
	if _, err := r.list(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(o.GetUID())}); err != nil {
		return nil, err
	}
	var last *corev1.Event
	for i := range list.Items {
		if e := &list.Items[i]; matches(e) && (last == nil || eventTime(e).After(eventTime(last))) {
			last = e
		}
	}
	return last, nil
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
func (r reader) pods(ctx context.Context, pvc *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	var list corev1.PodList
	if _, err := r.list(ctx, &list, client.InNamespace(pvc.Namespace)); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range list.Items {
		if slices.Contains(index.PodClaims(&list.Items[i]), pvc.Name) {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}
