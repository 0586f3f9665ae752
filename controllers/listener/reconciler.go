// Package listener is the controller of Listeners. It applies the Service of each Listener and the objects of the
// backend of its class, and reports the addresses of the Listener in its status (contract: the status). The
// backends of package exposure decide which objects and addresses these are; this package does not know any of them.
//
// Each step of a reconciliation is a package below: observe reads a snapshot of what exists, decide plans what has to
// exist, holdings reserves what others must not get, write writes it, and settle says which observed addresses last.
// The status follows from the snapshot, the plan and the outcome.
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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/holdings"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/controllers/listener/write"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reconciler reconciles Listeners. SetupWithManager makes it usable.
type Reconciler struct {
	// Client writes, and reads from the manager's cache, which has all Services and the indexes of internal/index.
	Client   client.Client
	Events   events.EventRecorder
	Platform *platform.APIs
	// Backends are the available backends. One of them must expose every class.
	Backends backends.List
	// ClusterDomain is the DNS domain of the cluster that the operator's resolver has. Empty if it has none.
	ClusterDomain string
	// GracePeriod is how long a previous exposure stays after the current one is complete. Defaults to ten seconds,
	// longer than a router takes to reload, and a node to open a port.
	GracePeriod time.Duration
	// Nodes has the settled addresses of Nodes, which other controllers share.
	Nodes *settling.Nodes

	reader  *observe.Reader
	held    *holdings.Holdings
	writer  *write.Writer
	settler *settle.Settler
}

// unusedPeriod is how long Pods must have been on the same nodes before the addresses of others are left out: a node
// restarts, and the cluster autoscaler replaces a machine, within a quarter of an hour.
const unusedPeriod = 30 * time.Minute

func (r *Reconciler) initialize(c clock.PassiveClock) {
	kinds := &observe.Kinds{Scheme: r.Client.Scheme(), Readers: map[schema.GroupVersionKind]observe.KindReader{}}
	r.reader = &observe.Reader{Client: r.Client, Backends: r.Backends, Kinds: kinds, ClusterDomain: r.ClusterDomain}
	r.held = holdings.New(r.reader)
	r.settler = settle.New(c, r.Nodes, unusedPeriod)
	r.writer = write.New(r.Client, r.Events, r.reader, r.settler.Since, cmp.Or(r.GracePeriod, 10*time.Second))
}

// Reconcile applies the objects that expose a Listener and updates its status. Problems that the author of the Listener
// can resolve are reported as conditions; the returned error is for problems that may resolve themselves.
func (r *Reconciler) Reconcile(ctx context.Context, listener *listenersv1alpha1.Listener) (reconcile.Result, error) {
	defer r.held.Reconciled(ctx, listener)
	r.held.Know(ctx)
	if !listener.DeletionTimestamp.IsZero() {
		gone, err := r.writer.ReportDeletion(ctx, listener)
		if gone {
			r.held.Registry.Forget(names.ServiceKey(listener))
		}
		return reconcile.Result{}, err // its objects are garbage-collected with it
	}
	if ending, err := tenancy.Terminating(ctx, r.Client, listener.Namespace); err != nil || ending {
		return reconcile.Result{}, err // what is deleted there cannot be created again
	}
	s, err := r.reader.Snapshot(ctx, listener)
	if err != nil {
		return reconcile.Result{}, err
	}
	var again requests.Deadlines
	kept, obsolete := decide.KeptFor(s, r.settler.Clock.Now(), r.settler.OrphanedFor(s))
	if obsolete != "" {
		return reconcile.Result{}, r.writer.DeleteObsolete(ctx, listener, obsolete)
	}
	again.Add(kept, "no Pod of its name has come")

	p, pass, err := r.held.Plan(ctx, s)
	w := r.writer.Write(ctx, s, p, pass, err)
	if w.Releasing > 0 {
		again.Add(w.Releasing, "the API server deallocates what a deleted Service had")
		return again.Result(ctx), w.Err
	}
	placement, err := r.locate(ctx, s, w)
	if err != nil {
		return reconcile.Result{}, errors.Join(w.Err, err)
	}

	again.Add(r.settler.SettleNodes(s, &placement), "a node reports other addresses")
	placement, unused := r.settler.LeaveOut(s, p, w, placement)
	again.Add(unused, "nodes have no Pods")
	idle, idleIn := r.settler.IdleFor(s, p, w, placement)
	again.Add(idleIn, "nothing responds")
	addresses, settles := r.settler.Settle(s, w, placement, decide.AddressesFor(s, p, w, placement))
	again.Add(settles, "sources report other addresses")

	o := &decide.Outcome{
		Written: w, Addresses: r.held.Advertise(ctx, pass, s, p, w, placement, addresses), Placement: placement,
		Idle: idle,
		Now:  metav1.NewTime(r.settler.Clock.Now()).Rfc3339Copy(),
	}
	status, err := r.writer.Report(ctx, s, p, o)
	r.held.Commit(pass, s, o, status)
	if err := errors.Join(w.Err, err); err != nil {
		return reconcile.Result{}, err
	}
	if o.Refused() != nil {
		return again.Result(ctx), nil // what is published follows its sources nevertheless
	}
	previous, err := r.writer.RemovePrevious(ctx, s, p, o)
	again.Add(previous, "the previous exposure has a period of grace")
	touch, touchErr := r.writer.TouchRejected(ctx, o.Addresses.Desired.Rejected, o.Now)
	again.Add(touch, "an object was rejected for a Secret")
	remember, rememberErr := r.writer.Remember(ctx, s, o)
	again.Add(remember, "its numbers are new")
	if err := errors.Join(err, touchErr, rememberErr); err != nil {
		return reconcile.Result{}, err
	}
	return again.Result(ctx), nil
}

// locate finds out where the Pods are after the plan was written: a Pod may just have been labelled.
func (r *Reconciler) locate(ctx context.Context, s *observe.Snapshot, w *observe.Written) (exposure.Placement, error) {
	if s.Class == nil {
		return exposure.Placement{}, nil
	}
	withNodes := s.Backend.IsNodeScoped(s.Class) ||
		w.Objects.Service != nil && w.Objects.Service.Spec.Type == corev1.ServiceTypeNodePort ||
		decide.KeepsNodePorts(s, w.Objects.Service)
	return reservation.Placement(ctx, r.Client, s.Listener, withNodes)
}
