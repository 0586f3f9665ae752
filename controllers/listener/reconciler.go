// Package listener is the controller of Listeners. It applies the Service of each Listener and the objects of the
// backend of its class, and reports the addresses of the Listener in its status (contract 1.5). The backends of package
// exposure decide which objects and addresses these are; this package does not know any of them.
//
// It must never change an object that the Listener does not control, nor the spec or the metadata of a Listener, which
// belong to its author. It never polls: everything that a Listener waits for is watched, apart from the end of the
// grace period of a previous exposure, the deallocation of node ports of a deleted Service, a minute in which nothing
// responded at the addresses, and the content of Secrets, which the operator may not read.
package listener

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/portallocator"
	"github.com/listener-operator/listener-operator/internal/retry"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler reconciles Listeners. SetupWithManager makes it usable.
type Reconciler struct {
	// Client reads from the manager's cache, which must have the indexes of internal/index and contain all Services,
	// and writes.
	Client client.Client
	// Events records changes of a Listener's conditions.
	Events events.EventRecorder
	// Platform reports which of the backends' kinds the cluster serves.
	Platform *platform.APIs
	// Backends are the available backends. The first one that exposes a class is the backend of its Listeners. One of
	// them must expose every class.
	Backends []exposure.Backend
	// ClusterDomain is the DNS domain of the cluster that the operator's resolver has. Empty if it has none.
	ClusterDomain string

	applier  *apply.Applier
	statuses *apply.Applier
	// kinds are the views of the backends' kinds.
	kinds map[schema.GroupVersionKind]optionalKind
	// readOnly are those of these kinds whose objects the backends only read, and referring are these backends.
	readOnly  sets.Set[schema.GroupVersionKind]
	referring []exposure.Backend
	// contended has an entry for each kind of the backends whose objects exclude each other.
	contended map[schema.GroupVersionKind]*contended
	// hosts has the hosts of Listeners.
	hosts *hosts
	clock clock.PassiveClock
	// nodePorts has the node ports that are not available, and sharedPorts the ports of shared addresses.
	nodePorts, sharedPorts *portallocator.Allocator
	// recovered is set when sharedPorts has those that an earlier process has not recorded.
	recovery  sync.Mutex
	recovered bool
	// gracePeriod is how long a previous exposure stays after the addresses of the current one are complete.
	gracePeriod time.Duration

	// ready is since when the addresses of a backend are complete, until the previous exposure is removed. The state is
	// the backend's name.
	ready periods
	// waiting is since when Listeners wait until the API server has deallocated the node ports of the deleted Service.
	waiting periods
	// idle is since when nothing responds at the addresses of Listeners, until that is reported.
	idle periods
	// idlePeriod is how long nothing may respond before that is reported.
	idlePeriod time.Duration
}

// gracePeriod is longer than a router takes to reload, five seconds by default, and longer than a node takes to open a
// port.
const gracePeriod = 10 * time.Second

// periods is since when a state of Listeners lasts, by their UID. It is lost in a restart, and the periods then start
// again. Those of Listeners that were deleted expire.
type periods struct{ *cache.Expiring }

func newPeriods() periods { return periods{cache.NewExpiring()} }

type period struct {
	state string
	since time.Time
}

// since returns when the state of a Listener began: now, unless the last call named the same state.
func (p periods) since(listener types.UID, state string, now time.Time) time.Time {
	if last, ok := p.Get(listener); ok && last.(period).state == state {
		return last.(period).since
	}
	p.Set(listener, period{state, now}, time.Hour)
	return now
}

// optionalKind reads objects of a kind that the cluster may not serve.
type optionalKind interface {
	client.Reader
	// Version returns the version of the kind that the cluster serves, or "" if it does not serve the kind. If it does,
	// reading can still fail while the API does not respond.
	Version() string
}

// initialize sets all unexported fields.
func (r *Reconciler) initialize() {
	r.applier = apply.New(r.Client, names.FieldManagerService)
	r.statuses = apply.New(r.Client, names.FieldManagerListenerStatus)
	r.kinds, r.contended = map[schema.GroupVersionKind]optionalKind{}, map[schema.GroupVersionKind]*contended{}
	r.readOnly, r.referring = sets.New[schema.GroupVersionKind](), nil
	for _, backend := range r.Backends {
		refers := false
		for _, kind := range backend.Kinds() {
			if kind.Contended {
				r.contended[kind.GroupVersionKind] = newContended()
			}
			if kind.ReadOnly {
				r.readOnly.Insert(kind.GroupVersionKind)
				refers = true
			}
		}
		if refers {
			r.referring = append(r.referring, backend)
		}
	}
	r.hosts = newHosts()
	r.clock, r.gracePeriod = clock.RealClock{}, gracePeriod
	r.idlePeriod = idlePeriod
	r.ready, r.waiting, r.idle = newPeriods(), newPeriods(), newPeriods()
	r.nodePorts, r.sharedPorts = portallocator.New(nodePortsOf), portallocator.New(sharedPortsOf)
}

// Reconcile applies the objects that expose a Listener and updates its status. Problems that the author of the Listener
// can resolve are reported as conditions; the returned error is for problems that may resolve themselves. The previous
// exposure is removed last, after its grace period.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its objects are garbage-collected with it
	}
	if ending, err := tenancy.Terminating(ctx, r.Client, listener.Namespace); err != nil || ending {
		return reconcile.Result{}, err // what is deleted there cannot be created again
	}
	o, err := r.observe(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	created := o.service == nil
	refusal, err := r.ensure(ctx, o)
	if created && o.service != nil { // meanwhile, the Pod for which the Listener was created has been labelled
		err = errors.Join(err, r.observeNodes(ctx, o))
	}
	if o.nodePortWait > 0 {
		return reconcile.Result{RequeueAfter: o.nodePortWait}, err
	}
	a, idleIn := r.addresses(o), r.observeIdle(o)
	if err := errors.Join(err, r.report(ctx, o, a, refusal, err)); err != nil || refusal != nil {
		return reconcile.Result{}, err
	}
	remaining, err := r.removePrevious(ctx, o, a)
	touch, touchErr := r.touchRejected(ctx, a.desired.Rejected)
	if err := errors.Join(err, touchErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: retry.Earliest(remaining, touch, idleIn)}, nil
}
