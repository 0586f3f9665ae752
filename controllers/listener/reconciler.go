// Package listener is the controller of Listeners. It applies the Service of each Listener and the objects of the
// backend of its class, and reports the addresses of the Listener in its status (contract 1.5). The backends of package
// exposure decide which objects and addresses these are; this package does not know any of them.
//
// It must never change an object that the Listener does not control, nor the spec or the metadata of a Listener, which
// belong to its author. It never polls: everything that a Listener waits for is watched, apart from the end of the
// grace period of a previous exposure, and the deallocation of node ports of a deleted Service.
package listener

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
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

	// live reads from the API server, without the cache.
	live     client.Reader
	applier  *apply.Applier
	statuses *apply.Applier
	// kinds are the views of the backends' kinds.
	kinds map[schema.GroupVersionKind]optionalKind
	clock clock.PassiveClock
	// gracePeriod is how long a previous exposure stays after the addresses of the current one are complete.
	gracePeriod time.Duration

	mu sync.Mutex
	// ready has an entry for each Listener with complete addresses whose previous exposure is not removed yet. It is
	// lost in a restart, and the grace period then starts again.
	ready map[types.UID]readiness
	// waiting is the time since which a Listener waits until the API server has deallocated the node ports of its
	// deleted Service. It is lost in a restart, and the wait then starts again.
	waiting map[types.UID]time.Time
}

// gracePeriod is longer than a router takes to reload, five seconds by default, and longer than a node takes to open a
// port.
const gracePeriod = 10 * time.Second

// readiness is the time since which the addresses of a backend are complete.
type readiness struct {
	backend string // its name
	since   time.Time
}

// optionalKind reads objects of a kind that the cluster may not serve.
type optionalKind interface {
	client.Reader
	// Served reports whether the cluster serves the kind. If it does, reading can still fail while the API does not
	// respond.
	Served() bool
}

// initialize sets all unexported fields.
func (r *Reconciler) initialize(live client.Reader) {
	r.live = live
	r.applier = apply.New(r.Client, names.FieldManagerService)
	r.statuses = apply.New(r.Client, names.FieldManagerListenerStatus)
	r.kinds = map[schema.GroupVersionKind]optionalKind{}
	r.clock, r.gracePeriod = clock.RealClock{}, gracePeriod
	r.ready, r.waiting = map[types.UID]readiness{}, map[types.UID]time.Time{}
}

// Reconcile applies the objects that expose a Listener and updates its status. Problems that the author of the Listener
// can resolve are reported as conditions; the returned error is for problems that may resolve themselves. The previous
// exposure is removed last, after its grace period.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its objects are garbage-collected with it
	}
	o, err := r.observe(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	refusal, err := r.ensure(ctx, o)
	if o.nodePortWait > 0 {
		return reconcile.Result{RequeueAfter: o.nodePortWait}, err
	}
	a := r.addresses(o)
	if err := errors.Join(err, r.report(ctx, o, a, refusal, err)); err != nil || refusal != nil {
		return reconcile.Result{}, err
	}
	remaining, err := r.removePrevious(ctx, o, a)
	return reconcile.Result{RequeueAfter: remaining}, err
}
