// Package listener is the controller of Listeners. It applies the Service of each Listener and the objects of the
// backend of its class, and reports the addresses of the Listener in its status (contract: the status). The
// backends of package exposure decide which objects and addresses these are; this package does not know any of them.
//
// A reconciliation reads a snapshot of what exists, makes a plan of what has to exist, reserves the ports and hosts
// that others must not get, and writes. The status follows from the snapshot, the plan and the outcome.
//
// It must never change an object that the Listener does not control, nor the spec or the metadata of a Listener, except
// the annotation with its numbers, and deletes a Listener only if the Pod of its ephemeral claim has finished, or if
// the next Pod does not come. It never polls: everything that a Listener waits for is watched, except the end of a
// period (of grace for a previous exposure, or in which nothing responds, no Pod is on a node, or sources report other
// addresses), the deallocation of what a deleted Service had, and the content of Secrets, which it may not read.
package listener

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/portallocator"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler reconciles Listeners. SetupWithManager makes it usable.
type Reconciler struct {
	// Client writes, and reads from the manager's cache, which has all Services and the indexes of internal/index.
	Client client.Client
	// Events records changes of a Listener's conditions.
	Events events.EventRecorder
	// Platform reports which of the backends' kinds the cluster serves.
	Platform *platform.APIs
	// Backends are the available backends. One of them must expose every class.
	Backends backends.List
	// ClusterDomain is the DNS domain of the cluster that the operator's resolver has. Empty if it has none.
	ClusterDomain string
	// GracePeriod is how long a previous exposure stays after the current one is complete. Defaults to ten seconds,
	// longer than a router takes to reload, and a node to open a port.
	GracePeriod time.Duration
	// UnusedPeriod is how long Pods must have been on the same nodes before the addresses of others are left out.
	// Defaults to half an hour: a node restarts, and the cluster autoscaler replaces a machine, within a quarter.
	UnusedPeriod time.Duration
	// Nodes has the settled addresses of Nodes, which other controllers share.
	Nodes *settling.Nodes

	kinds      *kinds
	reader     *reader
	waiting    *waiting
	nodePorts  *portallocator.Allocator
	ports      *sharedAllocator
	exclusive  *exclusive
	hosts      *hosts
	advertised *advertised
	services   *serviceWriter
	objects    *objectWriter
	reporter   *reporter
	settler    *settler
}

func (r *Reconciler) initialize(c clock.PassiveClock) {
	r.kinds = &kinds{scheme: r.Client.Scheme(), readers: map[schema.GroupVersionKind]kindReader{}}
	r.waiting = newWaiting(r.Client, slices.Concat(scarceReasons, r.Backends.TakenReasons())...)
	r.nodePorts = portallocator.New(portallocator.AllocatedNodePorts, func() {
		r.waiting.free(listenersv1alpha1.ReasonNodePortsExhausted, listenersv1alpha1.ReasonPortLimitReached)
	})
	r.ports = &sharedAllocator{client: r.Client, Allocator: portallocator.New(portallocator.RecordedSharedPorts, func() {
		r.waiting.free(listenersv1alpha1.ReasonSharedPortsExhausted, listenersv1alpha1.ReasonPortLimitReached)
	})}
	r.reader = &reader{client: r.Client, backends: r.Backends, kinds: r.kinds, sharedPorts: r.ports, clusterDomain: r.ClusterDomain}
	r.hosts = &hosts{newKeys(listenersv1alpha1.ReasonInvalidHost, r.waiting, publishedHosts, r.reader.givenHosts), r.reader}
	r.advertised = &advertised{newKeys(listenersv1alpha1.ReasonAddressTaken, r.waiting, statusEndpoints)}
	r.exclusive = &exclusive{
		reader: r.reader, waiting: r.waiting, known: map[objectKey]exposure.Object{}, before: map[objectKey]exposure.Object{},
	}
	r.settler = &settler{
		since: since{cache.NewExpiring(), c}, nodes: cmp.Or(r.Nodes, settling.NewNodes(c)), started: sync.OnceValue(c.Now),
		idle: idlePeriod, unused: cmp.Or(r.UnusedPeriod, 30*time.Minute),
	}
	applier := apply.New(r.Client, names.FieldManagerService)
	r.services = &serviceWriter{client: r.Client, applier: applier, events: r.Events, nodePorts: r.nodePorts, since: r.settler.since}
	r.objects = &objectWriter{r.Client, applier, r.exclusive}
	r.GracePeriod = cmp.Or(r.GracePeriod, 10*time.Second)
	r.reporter = &reporter{statuses: apply.New(r.Client, names.FieldManagerListenerStatus), events: r.Events}
}

// Reconcile applies the objects that expose a Listener and updates its status. Problems that the author of the Listener
// can resolve are reported as conditions; the returned error is for problems that may resolve themselves.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.reportDeletion(ctx, listener) // its objects are garbage-collected with it
	}
	if ending, err := tenancy.Terminating(ctx, r.Client, listener.Namespace); err != nil || ending {
		return reconcile.Result{}, err // what is deleted there cannot be created again
	}
	s, err := r.reader.snapshot(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	keptFor, obsolete := s.keptFor(r.settler.clock.Now())
	if obsolete != "" {
		return reconcile.Result{}, r.deleteObsolete(ctx, listener, obsolete)
	}
	p, err := r.plan(ctx, s)
	w := r.write(ctx, s, p, err)
	if w.releasing > 0 {
		return reconcile.Result{RequeueAfter: w.releasing}, w.err
	}
	placement, err := r.locate(ctx, s, w)
	if err != nil {
		return reconcile.Result{}, errors.Join(w.err, err)
	}
	nodesIn := r.settler.settleNodes(s, &placement)
	placement, unusedIn := r.settler.leaveOut(s, p, w, placement)
	idle, idleIn := r.settler.idleFor(s, p, w, placement)
	a, settlesIn := r.settler.settle(s, w, placement, addressesOf(s, p, w, placement))
	o := &outcome{
		written: w, chosenAddresses: r.advertised.apply(ctx, s, p, w, placement, a), placement: placement, idle: idle,
		now: metav1.NewTime(r.settler.clock.Now()).Rfc3339Copy(),
	}
	if left := s.nodeIn(o); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := errors.Join(o.err, r.reporter.report(ctx, s, p, o)); err != nil {
		return reconcile.Result{}, err
	}
	if o.refused() != nil {
		return reconcile.Result{RequeueAfter: keptFor}, nil
	}
	remaining, err := r.removePrevious(ctx, s, p, o)
	touchIn, touchErr := r.objects.touchRejected(ctx, o.desired.Rejected, o.now)
	rememberIn, rememberErr := r.remember(ctx, s, o)
	if err := errors.Join(err, touchErr, rememberErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: requests.Earliest(remaining, touchIn, idleIn, unusedIn, nodesIn, settlesIn, rememberIn, keptFor)}, nil
}

// rememberAfter is how old a Listener is when its annotation is written: the start of its Pod does not wait for that.
const rememberAfter = 10 * time.Second

// remember writes new numbers of a Listener to its annotation. It returns the time until it does so, or 0.
func (r *Reconciler) remember(ctx context.Context, s *snapshot, o *outcome) (time.Duration, error) {
	numbers := numbersOf(s, o)
	if reflect.DeepEqual(numbers, s.remembered) {
		return 0, nil
	}
	if left := requests.Left(s.listener.CreationTimestamp, rememberAfter, o.now.Time); left > 0 {
		return left, nil
	}
	return 0, numbers.write(ctx, r.Client, s.listener)
}

// reportDeletion takes its addresses from a Listener that finalizers keep although its Service is gone: nothing
// responds there, and another Service may get the numbers.
func (r *Reconciler) reportDeletion(ctx context.Context, listener *listenersv1alpha1.Listener) error {
	finalizers := lookup.Finalizers(listener)
	if listener.Status == nil || len(listener.Status.IngressAddresses) == 0 || len(finalizers) == 0 {
		return nil
	}
	if service, err := lookup.Get(ctx, r.Client, names.ServiceKey(listener), &corev1.Service{}); err != nil || service != nil {
		return err
	}
	_, err := r.reporter.statuses.ApplyStatus(ctx, listener, deletedStatus(listener, finalizers), "")
	return err
}

// deleteObsolete deletes the Listener of an ephemeral claim, with its Service, ports and load balancer.
func (r *Reconciler) deleteObsolete(ctx context.Context, listener *listenersv1alpha1.Listener, reason string) error {
	// Any other version may have the next claim as an owner.
	err := r.Client.Delete(ctx, listener.DeepCopy(), client.Preconditions{UID: &listener.UID, ResourceVersion: &listener.ResourceVersion})
	if err == nil {
		log.FromContext(ctx).Info("Deleted a Listener that no Pod needs any more", "reason", reason)
		r.Events.Eventf(listener, nil, corev1.EventTypeNormal, listenersv1alpha1.ReasonListenerUnused, "Reconcile", "deleted, with its Service: %s", reason)
	}
	return client.IgnoreNotFound(err)
}

// plan returns the plan for a snapshot, after it has reserved ports at a shared address, objects and hosts.
func (r *Reconciler) plan(ctx context.Context, s *snapshot) (*plan, error) {
	p := planService(s)
	if p.refusal != nil || s.serviceTerminating() {
		return &plan{servicePlan: p}, nil
	}
	pending := r.ports.Pending(s.serviceKey())
	numbers, err := r.ports.allocate(s, p.serviceNow)
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		p.refusal = refusal
		return &plan{servicePlan: p}, nil
	} else if err != nil {
		return &plan{servicePlan: p}, err
	}
	p.serviceNow = exposure.WithPorts(p.serviceNow, numbers)
	objects, objectsRefusal, err := r.exclusive.plan(ctx, s, p)
	if err != nil {
		return &plan{servicePlan: p, sharedPorts: numbers, pendingPorts: pending}, err
	}
	p.refusal, objectsRefusal, err = r.hosts.reserve(ctx, s, p, objects, objectsRefusal)
	return &plan{p, numbers, pending, objects, objectsRefusal}, err
}

// write writes the Service of a plan and then its objects, unless err is why the plan is not complete.
func (r *Reconciler) write(ctx context.Context, s *snapshot, p *plan, err error) *written {
	w := written{present: s.present, refusal: p.refusal, err: err, sharedPorts: s.sharedPorts}
	planned := err == nil && p.refusal == nil && !s.serviceTerminating() // a Service that is being deleted is created again after that
	if planned {
		w = r.writeService(ctx, s, p)
	}
	if w.refusal != nil && p.sharedPorts != nil {
		r.ports.SetPending(s.serviceKey(), p.pendingPorts)
	}
	if !planned || w.refusal != nil || w.err != nil || w.releasing > 0 {
		r.exclusive.release(s, p.objects, true)
		return &w
	}
	if w.sharedPorts = p.sharedPorts; p.sharedPorts == nil {
		r.ports.SetPending(s.serviceKey(), nil)
	}
	return r.objects.apply(ctx, s, p, w)
}

// writeService applies the Service, and the NetworkPolicy that keeps other clients from its Pods.
func (r *Reconciler) writeService(ctx context.Context, s *snapshot, p *plan) written {
	w := written{present: s.present, sharedPorts: s.sharedPorts}
	if w.policy, w.refusal, w.err = r.objects.applyPolicy(ctx, s, p, w.present); w.refusal != nil || w.err != nil {
		return w
	}
	applied, err := r.services.apply(ctx, s, p)
	w.service, w.rejectedNodePorts, w.releasing = applied.service, applied.rejected, applied.releasing
	if w.refusal, w.err = asRefusal(err, s); w.refusal != nil || w.err != nil || w.releasing > 0 {
		return w
	}
	if w.policy, w.refusal, w.err = r.objects.applyPolicy(ctx, s, p, w.present); w.refusal == nil && w.err == nil {
		w.err = r.objects.removePolicy(ctx, s, p, w.present)
	}
	return w
}

// locate finds out where the Pods are after the plan was written: a Pod may just have been labelled.
func (r *Reconciler) locate(ctx context.Context, s *snapshot, w *written) (exposure.Placement, error) {
	if s.class == nil {
		return exposure.Placement{}, nil
	}
	withNodes := s.backend.IsNodeScoped(s.class) || w.service != nil && w.service.Spec.Type == corev1.ServiceTypeNodePort || keepsNodePorts(s, w.service)
	return reservation.Placement(ctx, r.Client, s.listener, withNodes)
}

// removePrevious removes unplanned objects at once, and the previous exposure when what it returns of a period is over.
func (r *Reconciler) removePrevious(ctx context.Context, s *snapshot, p *plan, o *outcome) (time.Duration, error) {
	if s.serviceTerminating() {
		return 0, nil
	}
	if err := r.objects.deleteUnplanned(ctx, s.backend, p.objects, o.objects[s.backend.Name]); err != nil {
		return 0, err
	}
	backends := slices.DeleteFunc(slices.Clone(s.others), func(b *exposure.Backend) bool { return len(o.objects[b.Name]) == 0 })
	if !o.desired.Complete || len(backends) == 0 && !p.keepsType {
		r.settler.Delete(completed(s.listener.UID))
		return 0, nil
	}
	// The opening of a node port or the reload of a router cannot be watched, and clients need time to learn addresses.
	if remaining := r.GracePeriod - r.settler.age(completed(s.listener.UID), s.backend.Name); remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range backends {
		errs = append(errs, r.objects.deleteUnplanned(ctx, backend, nil, o.objects[backend.Name]))
	}
	if p.keepsType {
		_, err := r.services.applyOnce(ctx, s, p.service, o.service)
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}
