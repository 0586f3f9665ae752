// Package listener gives each Listener its Service and whatever else its class exposes it through, and reports in the
// Listener's status how to reach it (contract 1.5). What that is, the backends of package exposure decide; this package
// knows none of them.
//
// It must never touch an object that is not the Listener's own, nor write the Listener's spec or metadata, which belong
// to whoever made the Listener. Nothing here polls: whatever a Listener waits for is watched, but for the end of what
// it was exposed through before.
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
	"github.com/listener-operator/listener-operator/internal/platform"
)

// Reconciler is the controller of Listeners. It becomes usable by SetupWithManager.
type Reconciler struct {
	// Client reads from the manager's cache, which must have the indexes of internal/index and hold all Services, and
	// writes.
	Client client.Client
	// Events tells users of a change in a Listener's conditions.
	Events events.EventRecorder
	// Platform tells which of the backends' kinds the cluster serves.
	Platform *platform.APIs
	// Backends are the ways in which Listeners are reached. The first one that exposes a class is that of its
	// Listeners, and one exposes every class.
	Backends []exposure.Backend

	// live reads without the cache.
	live     client.Reader
	applier  *apply.Applier
	statuses *apply.Applier
	kinds    map[schema.GroupVersionKind]optionalKind
	clock    clock.PassiveClock
	// overlap is how long what a Listener was exposed through before stays beside new addresses that stand.
	overlap time.Duration

	mu sync.Mutex
	// stood says since when the addresses of Listeners stand that still have something from before. A restart begins
	// anew.
	stood map[types.UID]standing
}

// overlap is longer than a router takes to reload, which is five seconds by default, and than a node to open a port.
const overlap = 10 * time.Second

// standing is since when the addresses of a backend are complete.
type standing struct {
	backend string // its name
	time    time.Time
}

// optionalKind reads the objects of a kind that the cluster may not serve.
type optionalKind interface {
	client.Reader
	// Served tells whether the cluster serves the kind. If it does, reading may still fail, as long as the API does not
	// answer.
	Served() bool
}

// Reconcile brings what a Listener is exposed through, and its status, up to date. Whatever the Listener's author can
// mend is told by its conditions; the error is for what may pass by itself. What the Listener was exposed through
// before goes last, and some time later.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	if !listener.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // what it owns is garbage-collected with it
	}
	o, err := r.observe(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	refusal, err := r.ensure(ctx, o)
	e := r.expose(o)
	if err := errors.Join(err, r.report(ctx, o, e, refusal, err)); err != nil || refusal != nil {
		return reconcile.Result{}, err
	}
	remaining, err := r.retire(ctx, o, e)
	return reconcile.Result{RequeueAfter: remaining}, err
}
