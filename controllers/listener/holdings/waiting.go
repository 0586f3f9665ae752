package holdings

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// Queue is the work queue of the controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Waiting requests Listeners that were refused what others had when that is free: an index finds them by the refusal in
// their status. Of Listeners with the same demand, it requests the first. When that gets what it needs, its status
// changes, and the next Listener follows. Listeners with different demands follow one another, too, in the order in
// which they began to wait: each is requested when the Listener before it was reconciled.
//
// It is safe for concurrent use.
type Waiting struct {
	client client.Reader

	// Signal is the source of FreedRequests.
	Signal chan event.GenericEvent
	mu     sync.Mutex
	// Freed are values of index.ListenersByRefusal whose Listeners are to be requested.
	Freed sets.Set[string]
	// queues have the Listeners to request, by refusal. The first one of each was requested, or is due.
	queues map[string][]types.NamespacedName
	due    []reconcile.Request
}

// newWaiting returns a Waiting that finds Listeners by the indexes of a cache.
func newWaiting(reader client.Reader) *Waiting {
	queues := map[string][]types.NamespacedName{}
	return &Waiting{client: reader, Signal: make(chan event.GenericEvent, 1), Freed: sets.New[string](), queues: queues}
}

// Free has the source request Listeners that wait for a host or an advertised address, or for any key of another kind,
// once for all freed meanwhile.
func (w *Waiting) Free(key registry.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	value := ""
	switch key.Kind {
	case listenersv1alpha1.WaitingKindHost, listenersv1alpha1.WaitingKindAdvertisedAddress:
		value = key.Value
	}
	w.Freed.Insert(index.Waiting(key.Kind, value))
	w.notify()
}

func (w *Waiting) notify() {
	select {
	case w.Signal <- event.GenericEvent{}:
	default: // it was
	}
}

// FreedRequests is the map function of the source Signal: it returns the Listeners that are next.
func (w *Waiting) FreedRequests(ctx context.Context, _ client.Object) []reconcile.Request {
	w.mu.Lock()
	refusals := w.Freed
	w.Freed = sets.New[string]()
	w.mu.Unlock()
	queues := map[string][]types.NamespacedName{}
	for refusal := range refusals {
		queues[refusal] = w.queueOf(ctx, refusal)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for refusal, queue := range queues {
		w.follow(refusal, queue)
	}
	requests := w.due
	w.due = nil
	return requests
}

func (w *Waiting) follow(refusal string, queue []types.NamespacedName) {
	if w.queues[refusal] = queue; len(queue) == 0 {
		delete(w.queues, refusal)
		return
	}
	w.due = append(w.due, reconcile.Request{NamespacedName: queue[0]})
}

// Reconciled requests the next Listener after the first one of a queue was reconciled. A Listener that is deleted
// instead frees what it waits for, which begins the queue again.
func (w *Waiting) Reconciled(listener types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for refusal, queue := range w.queues {
		if queue[0] == listener {
			w.follow(refusal, queue[1:])
			w.notify()
		}
	}
}

// queueOf returns the Listener of each demand that was written first, in the order in which they were. One that got
// what it needs, but was rejected for another reason, is written again, so it keeps no other one waiting.
func (w *Waiting) queueOf(ctx context.Context, refusal string) (queue []types.NamespacedName) {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, w.client, &listeners, client.MatchingFields{index.ListenersByRefusal: refusal})
	order := func(a, b *listenersv1alpha1.Listener) int {
		// Those of the API server are numbers.
		order, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
		return order
	}
	first := map[string]*listenersv1alpha1.Listener{}
	for i := range listeners.Items {
		this := &listeners.Items[i]
		demand := w.demand(this)
		if other, ok := first[demand]; demand != "" && (!ok || order(this, other) < 0) {
			first[demand] = this
		}
	}
	for _, listener := range slices.SortedFunc(maps.Values(first), order) {
		queue = append(queue, client.ObjectKeyFromObject(listener))
	}
	return queue
}

// demand identifies what a Listener was refused, or is "": others with the same demand can get whatever this one can,
// which depends on what they have already, and on the namespace if that has a limit.
func (w *Waiting) demand(listener *listenersv1alpha1.Listener) string {
	reason, waiting := index.RefusalOf(listener)
	if waiting == nil {
		return ""
	}
	namespace := ""
	if waiting.NamespaceLimit {
		namespace = listener.Namespace
	}
	protocols, numbers := map[corev1.Protocol]int{}, sets.New[int32]()
	for _, p := range listener.Spec.Ports {
		protocols[ptr.Deref(p.Protocol, corev1.ProtocolTCP)]++
		numbers.Insert(p.Port)
	}
	hash := sha256.New() // overrides may be large
	fmt.Fprint(hash, reason, "/", waiting.Kind, "/", waiting.Value, "/", listener.Class(), "/", namespace,
		protocols, numbers.Len(), len(observe.LastNodePorts(*listener.Status)), len(listener.Status.SharedPorts),
		listener.Status.TargetAddresses())
	for i := range listener.Spec.ObjectOverrides {
		hash.Write(listener.Spec.ObjectOverrides[i].Raw)
	}
	return string(hash.Sum(nil))
}

// Changed handles a change of a Listener, which is nil if it was deleted. One that is newly refused is reconciled once
// more: what it needs may have become free before. If one no longer waits, the next one may get what became free.
func (w *Waiting) Changed(q Queue, before, after *listenersv1alpha1.Listener) {
	waited, waits := w.demand(before), ""
	if after != nil {
		waits = w.demand(after)
	}
	if waits != "" && waits != waited {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(after)})
	}
	if waited != "" && waits != waited {
		_, waiting := index.RefusalOf(before)
		w.Free(registry.Key{Kind: waiting.Kind, Value: waiting.Value})
	}
}
