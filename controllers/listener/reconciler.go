// Package listener is the controller of Listeners. It applies the Service of each Listener and the objects of the
// backend of its class, and reports the addresses of the Listener in its status (contract: the status). The
// backends of package exposure decide which objects and addresses these are; this package does not know any of them.
//
// A reconciliation reads a snapshot of what exists, makes a plan of what has to exist, reserves the ports and hosts
// that others must not get, and writes. The status follows from the snapshot, the plan and the outcome.
//
// It must never change an object that the Listener does not control, nor the spec or the metadata of a Listener, which
// belong to its author. It never polls: everything that a Listener waits for is watched, apart from the end of the
// grace period of a previous exposure, the deallocation of node ports of a deleted Service, a minute in which nothing
// responded at the addresses, half an hour in which no Pod was on a node, and the content of Secrets, which the
// operator may not read.
package listener

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/portallocator"
	"github.com/listener-operator/listener-operator/internal/requests"
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
	// GracePeriod is how long a previous exposure stays after the addresses of the current one are complete. Defaults
	// to ten seconds, which is longer than a router takes to reload, and than a node takes to open a port.
	GracePeriod time.Duration
	// UnusedPeriod is how long the Pods of a Listener must have been on the same nodes before the addresses of others,
	// at which nothing can answer, are left out. Defaults to half an hour, which is longer than a Pod waits for its
	// node to restart, or for a new machine: the cluster autoscaler gives one a quarter of an hour.
	UnusedPeriod time.Duration

	kinds     *kinds
	reader    *reader
	waiting   *waiting
	nodePorts *portallocator.Allocator
	ports     *sharedPorts
	ranges    *portRanges
	hosts     *hosts
	// advertised is what the Listeners of classes with spec.advertise have.
	advertised *advertised
	services   *serviceWriter
	policies   *policyWriter
	objects    *objectWriter
	reporter   *reporter
	resync     resync
	// complete is since when the addresses of a backend, by its name, are complete while a previous exposure exists.
	complete periods
	// idle is since when nothing responds at the addresses of Listeners, until that is reported, after idlePeriod.
	idle       periods
	idlePeriod time.Duration
	// unused is since when the Pods of Listeners are on the same nodes, by the names of these, while others are unused.
	unused periods
}

// initialize sets all unexported fields.
func (r *Reconciler) initialize(c clock.PassiveClock) {
	r.kinds = &kinds{scheme: r.Client.Scheme(), readers: map[schema.GroupVersionKind]kindReader{}}
	r.waiting = newWaiting(r.Client, slices.Concat(scarceReasons, r.Backends.TakenReasons())...)
	r.nodePorts = portallocator.New(portallocator.AllocatedNodePorts, func() {
		r.waiting.free(listenersv1alpha1.ReasonNodePortsExhausted, listenersv1alpha1.ReasonPortLimitReached)
	})
	r.ports = &sharedPorts{client: r.Client, Allocator: portallocator.New(portallocator.RecordedSharedPorts, func() {
		r.waiting.free(listenersv1alpha1.ReasonSharedPortsExhausted, listenersv1alpha1.ReasonPortLimitReached)
	})}
	r.ranges = &portRanges{nodePorts: r.nodePorts, sharedPorts: r.ports.Allocator, classes: map[string][]classRange{}}
	r.reader = &reader{client: r.Client, backends: r.Backends, kinds: r.kinds, sharedPorts: r.ports, clusterDomain: r.ClusterDomain}
	r.hosts, r.advertised = newHosts(r.reader), newAdvertised(r.Client, r.waiting)
	applier := apply.New(r.Client, names.FieldManagerService)
	r.services = &serviceWriter{client: r.Client, applier: applier, events: r.Events, nodePorts: r.nodePorts, releasing: newPeriods(c)}
	r.policies = &policyWriter{applier}
	r.objects = &objectWriter{applier: applier, kinds: r.kinds, exclusive: newExclusive(r.Client, r.Backends, r.kinds, r.waiting)}
	r.GracePeriod, r.complete = cmp.Or(r.GracePeriod, 10*time.Second), newPeriods(c)
	r.UnusedPeriod, r.unused = cmp.Or(r.UnusedPeriod, 30*time.Minute), newPeriods(c)
	r.reporter = &reporter{statuses: apply.New(r.Client, names.FieldManagerListenerStatus), events: r.Events}
	r.resync = resync{r.Client, c}
	r.idle, r.idlePeriod = newPeriods(c), idlePeriod
}

// Reconcile applies the objects that expose a Listener and updates its status. Problems that the author of the Listener
// can resolve are reported as conditions; the returned error is for problems that may resolve themselves.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its objects are garbage-collected with it
	}
	if ending, err := tenancy.Terminating(ctx, r.Client, listener.Namespace); err != nil || ending {
		return reconcile.Result{}, err // what is deleted there cannot be created again
	}
	s, err := r.reader.snapshot(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := newPlan(s)
	o := r.execute(ctx, s, p)
	if o.releasing > 0 {
		return reconcile.Result{RequeueAfter: o.releasing}, o.err
	}
	if err := r.locate(ctx, s, o); err != nil {
		return reconcile.Result{}, errors.Join(o.err, err)
	}
	o.now = metav1.NewTime(r.idle.clock.Now()).Rfc3339Copy()
	unusedIn := r.leaveOutUnused(s, p, o)
	a, idleIn := r.advertised.apply(ctx, s, p, o, addressesOf(s, p, o)), r.observeIdle(s, p, o)
	if err := errors.Join(o.err, r.reporter.report(ctx, s, p, o, a)); err != nil || o.refusal != nil {
		return reconcile.Result{}, err
	}
	remaining, err := r.removePrevious(ctx, s, p, o, a)
	resyncIn, resyncErr := r.resync.trigger(ctx, a.desired.Rejected)
	if err := errors.Join(err, resyncErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: requests.Earliest(remaining, resyncIn, idleIn, unusedIn)}, nil
}

// execute reserves what the plan needs, and writes the Service and then the objects.
func (r *Reconciler) execute(ctx context.Context, s *snapshot, p *plan) *outcome {
	o := newOutcome(s)
	if o.refusal = p.refusal; o.refusal != nil || s.serviceTerminating() {
		return o // a Service that is being deleted is created again after that
	}
	releasePorts, err := r.reserve(ctx, s, p)
	if o.refusal = p.refusal; err == nil && o.refusal == nil {
		o.refusal, err = r.applyService(ctx, s, p, o)
	}
	if o.refusal != nil {
		releasePorts()
	}
	if o.err = err; o.refusal != nil || err != nil || o.releasing > 0 {
		r.objects.release(s, p, true)
		return o
	}
	if o.sharedPorts = p.sharedPorts; p.sharedPorts == nil {
		r.ports.SetPending(s.key(), nil)
	}
	if o.refusal = p.objectsRefusal; o.refusal == nil {
		r.objects.apply(ctx, s, p, o)
	}
	return o
}

// applyService applies the Service, and the NetworkPolicy that keeps other clients from its Pods.
func (r *Reconciler) applyService(ctx context.Context, s *snapshot, p *plan, o *outcome) (*exposure.Refusal, error) {
	if refusal, err := r.policies.apply(ctx, s, p, o); refusal != nil || err != nil {
		return refusal, err
	}
	if refusal, err := asRefusal(r.services.apply(ctx, s, p, o), s); refusal != nil || err != nil || o.releasing > 0 {
		return refusal, err
	}
	if refusal, err := r.policies.apply(ctx, s, p, o); refusal != nil || err != nil {
		return refusal, err
	}
	return nil, r.policies.removeUnplanned(ctx, s, p, o)
}

// reserve completes the plan, with the numbers of its ports at a shared address, its objects and its hosts, so that no
// other Listener gets them. releasePorts is for the case that the API server rejects the Service.
func (r *Reconciler) reserve(ctx context.Context, s *snapshot, p *plan) (releasePorts func(), err error) {
	releasePorts, err = p.allocate(s, r.ports)
	if err != nil || p.refusal != nil {
		return releasePorts, err
	}
	if s.backend.IsExclusive() {
		err = r.objects.exclusive.plan(ctx, s, p)
	} else {
		p.addObjects(s, exposure.Others{})
	}
	if err == nil {
		err = r.hosts.reserve(ctx, s, p)
	}
	return releasePorts, err
}

// locate finds out where the Pods of the Listener are now, after the plan: its Pod may just have been labelled.
func (r *Reconciler) locate(ctx context.Context, s *snapshot, o *outcome) (err error) {
	if s.class == nil {
		return nil
	}
	withNodes := s.backend.IsNodeScoped(s.class) || o.service != nil && o.service.Spec.Type == corev1.ServiceTypeNodePort
	o.placement, err = reservation.Placement(ctx, r.Client, s.listener, withNodes)
	return err
}

// removePrevious removes what no longer exposes the Listener: objects of the class's own backend immediately, and all
// others, which are the previous exposure, after the grace period. It returns what is left of that, or 0.
func (r *Reconciler) removePrevious(ctx context.Context, s *snapshot, p *plan, o *outcome, a addresses) (time.Duration, error) {
	if s.serviceTerminating() {
		return 0, nil
	}
	if err := r.objects.deleteUnplanned(ctx, s.backend, p.objects, o); err != nil {
		return 0, err
	}
	backends := slices.DeleteFunc(slices.Clone(s.others), func(b *exposure.Backend) bool { return len(o.objects[b.Name]) == 0 })
	if !a.desired.Complete || len(backends) == 0 && !p.keepsType {
		r.complete.Delete(s.listener.UID)
		return 0, nil
	}
	// The opening of a node port or the reload of a router cannot be watched, and clients need time to learn addresses.
	if remaining := r.GracePeriod - r.complete.age(s.listener.UID, s.backend.Name); remaining > 0 {
		return remaining, nil
	}
	var errs []error
	for _, backend := range backends {
		errs = append(errs, r.objects.deleteUnplanned(ctx, backend, nil, o))
	}
	if p.keepsType {
		errs = append(errs, r.services.applyOnce(ctx, s, p.service, o))
	}
	return 0, errors.Join(errs...)
}
