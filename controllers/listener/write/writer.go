// Package write writes what a plan says: the Service of a Listener and then the objects of its backend, and what
// follows from it, which is the status with its events. It decides nothing, apart from what to request in place of what
// the API server rejects. It must never change an object that the Listener does not control.
package write

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Writer writes what a plan says, and then the status.
type Writer struct {
	client   client.Client
	events   events.EventRecorder
	since    *settle.Since
	services *serviceWriter
	objects  *objectWriter
	reporter *reporter
	// GracePeriod is how long a previous exposure stays after the current one is complete.
	GracePeriod time.Duration
}

// New returns a Writer. gracePeriod is how long a previous exposure stays after the current one is complete.
func New(c client.Client, recorder events.EventRecorder, reader *observe.Reader, since *settle.Since,
	gracePeriod time.Duration) *Writer {
	applier := apply.New(c, names.FieldManagerService)
	return &Writer{
		client: c, events: recorder, since: since, GracePeriod: gracePeriod,
		services: &serviceWriter{client: c, applier: applier, events: recorder, since: since},
		objects:  &objectWriter{c, applier, reader.Kinds},
		reporter: &reporter{statuses: apply.New(c, names.FieldManagerListenerStatus), events: recorder},
	}
}

// Write writes the Service of a plan and then its objects, unless err is why the plan is not complete. The pass gives
// back what the API server rejects: it may have stored what it has not answered.
func (x *Writer) Write(ctx context.Context, s *observe.Snapshot, p *decide.Plan, pass *registry.Pass,
	err error) *observe.Written {
	w := observe.Written{Objects: s.Objects, Refusal: p.Service.Refusal, Err: err, SharedPorts: s.SharedPorts}
	// A Service that is being deleted is created again after that.
	planned := err == nil && p.Service.Refusal == nil && !s.ServiceTerminating()
	if planned {
		w = x.writeService(ctx, s, p, pass)
	}
	if !planned || w.Refusal != nil {
		pass.RollBack()
		return &w
	}
	if w.Err != nil || w.Releasing > 0 {
		return &w
	}
	w.SharedPorts = p.SharedPorts
	return x.objects.apply(ctx, s, p, pass, w)
}

// writeService applies the Service, and the NetworkPolicy that keeps other clients from its Pods.
func (x *Writer) writeService(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	pass *registry.Pass) observe.Written {
	w := observe.Written{Objects: s.Objects, SharedPorts: s.SharedPorts}
	if w.Objects.Policy, w.Refusal, w.Err = x.objects.applyPolicy(ctx, s, p, w.Objects); w.Refusal != nil ||
		w.Err != nil {
		return w
	}
	applied, err := x.services.apply(ctx, s, p, pass)
	w.Objects.Service, w.RejectedNodePorts, w.Releasing = applied.service, applied.rejected, applied.releasing
	if w.Refusal, w.Err = asRefusal(err, s); w.Refusal != nil || w.Err != nil || w.Releasing > 0 {
		return w
	}
	if w.Objects.Policy, w.Refusal, w.Err = x.objects.applyPolicy(ctx, s, p, w.Objects); w.Refusal == nil &&
		w.Err == nil {
		w.Err = x.objects.removePolicy(ctx, s, p, w.Objects)
	}
	return w
}

// RemovePrevious removes unplanned objects at once, and the previous exposure when what it returns of a period is over.
func (x *Writer) RemovePrevious(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	o *decide.Outcome) (time.Duration, error) {
	if s.ServiceTerminating() {
		return 0, nil
	}
	if err := x.objects.deleteUnplanned(ctx, s.Backend, p.Objects,
		o.Written.Objects.OfBackend[s.Backend.Name]); err != nil {
		return 0, err
	}
	backends := slices.DeleteFunc(slices.Clone(s.Others),
		func(b *exposure.Backend) bool { return len(o.Written.Objects.OfBackend[b.Name]) == 0 })
	if !o.Addresses.Desired.Complete || len(backends) == 0 && !p.Service.KeepsType {
		x.since.Delete(settle.Completed(s.Listener.UID))
		return 0, nil
	}
	// The opening of a node port or the reload of a router cannot be watched, and clients need time to learn addresses.
	if remaining := x.GracePeriod - x.since.Age(settle.Completed(s.Listener.UID), s.Backend.Name); remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range backends {
		errs = append(errs, x.objects.deleteUnplanned(ctx, backend, nil, o.Written.Objects.OfBackend[backend.Name]))
	}
	if p.Service.KeepsType {
		_, err := x.services.applyOnce(ctx, s, p.Service.Desired, o.Written.Objects.Service)
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

// RememberAfter is how old a Listener is when its annotation is written: the start of its Pod does not wait for that.
const RememberAfter = 10 * time.Second

// Remember writes new numbers of a Listener to its annotation. It returns the time until it does so, or 0.
func (x *Writer) Remember(ctx context.Context, s *observe.Snapshot, o *decide.Outcome) (time.Duration, error) {
	numbers := decide.NumbersOf(s, o)
	if reflect.DeepEqual(numbers, s.Remembered) {
		return 0, nil
	}
	if left := requests.Left(s.Listener.CreationTimestamp, RememberAfter, o.Now.Time); left > 0 {
		return left, nil
	}
	return 0, writeNumbers(ctx, x.client, s.Listener, numbers)
}

// writeNumbers writes numbers to the annotation of a Listener, unless there are too many.
func writeNumbers(ctx context.Context, c client.Client, listener *listenersv1alpha1.Listener, n observe.Numbers) error {
	text, err := json.Marshal(n)
	if err != nil || len(text) > observe.MaxNumbers {
		return err //nolint:wrapcheck // maps and lists can be encoded
	}
	annotations := map[string]any{"annotations": map[string]any{names.AnnotationNumbers: string(text)}}
	return client.IgnoreNotFound(apply.PatchMetadata(ctx, c, listener.DeepCopy(), names.FieldManagerDefault,
		annotations))
}

// ReportDeletion takes its addresses from a Listener that finalizers keep although its Service is gone, which it
// reports: nothing responds there, and another Service may get the numbers.
func (x *Writer) ReportDeletion(ctx context.Context, listener *listenersv1alpha1.Listener) (gone bool, _ error) {
	service, err := lookup.Get(ctx, x.client, names.ServiceKey(listener), &corev1.Service{})
	if err != nil || service != nil {
		return false, err
	}
	finalizers := lookup.Finalizers(listener)
	if listener.Status == nil || len(listener.Status.IngressAddresses) == 0 || len(finalizers) == 0 {
		return true, nil
	}
	_, err = x.reporter.statuses.ApplyStatus(ctx, listener, decide.DeletedStatus(listener, finalizers), "")
	return true, err
}

// DeleteObsolete deletes the Listener of an ephemeral claim, with its Service, ports and load balancer.
func (x *Writer) DeleteObsolete(ctx context.Context, listener *listenersv1alpha1.Listener, reason string) error {
	// Any other version may have the next claim as an owner.
	err := x.client.Delete(ctx, listener.DeepCopy(),
		client.Preconditions{UID: &listener.UID, ResourceVersion: &listener.ResourceVersion})
	if err == nil {
		log.FromContext(ctx).Info("Deleted a Listener that no Pod needs any more", "reason", reason)
		x.events.Eventf(listener, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonListenerUnused, "Reconcile",
			"deleted, with its Service: %s", reason)
	}
	return client.IgnoreNotFound(err)
}

// Report writes the status of a Listener, and emits events about what has changed. It returns the status, or nil if
// that failed.
func (x *Writer) Report(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	o *decide.Outcome) (*listenersv1alpha1.ListenerStatus, error) {
	status := decide.StatusOf(s, o)
	if err := x.reporter.report(ctx, s, p, o, status); err != nil {
		return nil, err
	}
	return status, nil
}

// TouchRejected changes the objects that another controller has rejected for the content of a Secret, which neither it
// nor the operator watches, so that it looks at them again. It returns the time until the next touch, or 0.
func (x *Writer) TouchRejected(ctx context.Context, rejected []exposure.Rejected,
	now metav1.Time) (next time.Duration, _ error) {
	return x.objects.touchRejected(ctx, rejected, now)
}
