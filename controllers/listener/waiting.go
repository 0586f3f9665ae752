package listener

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// scarceReasons are the reasons of such refusals, apart from those of backends.
var scarceReasons = []string{
	listenersv1alpha1.ReasonNodePortsExhausted, listenersv1alpha1.ReasonSharedPortsExhausted, listenersv1alpha1.ReasonPortLimitReached,
	listenersv1alpha1.ReasonClusterIPsExhausted, listenersv1alpha1.ReasonInvalidHost, listenersv1alpha1.ReasonAddressTaken,
}

// waiting requests Listeners that were refused what others had when that is free: an index finds them by the refusal in
// their status. Of those with the same demand, it requests the one that has waited longest. When that gets what it
// needs, its status changes, and the next one follows. It is safe for concurrent use.
type waiting struct {
	client client.Reader
	scarce sets.Set[string]

	signal chan event.GenericEvent
	mu     sync.Mutex
	freed  sets.Set[string]
}

func newWaiting(reader client.Reader, scarce ...string) *waiting {
	return &waiting{client: reader, scarce: sets.New(scarce...), signal: make(chan event.GenericEvent, 1), freed: sets.New[string]()}
}

// free has the source request Listeners with these values of index.ListenersByRefusal, once for all freed meanwhile.
func (w *waiting) free(refusals ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed.Insert(refusals...)
	select {
	case w.signal <- event.GenericEvent{}:
	default: // it will
	}
}

// freedRequests is the map function of the signal.
func (w *waiting) freedRequests(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	w.mu.Lock()
	refusals := sets.List(w.freed)
	w.freed = sets.New[string]()
	w.mu.Unlock()
	for _, refusal := range refusals {
		for _, first := range w.firstOf(ctx, refusal) {
			requests = append(requests, index.Request(ctx, first)...)
		}
	}
	return requests
}

// firstOf returns the Listener of each demand that was written first. The status of one that got what it needs, but was
// rejected for another reason, is written again, so it keeps no other one waiting.
func (w *waiting) firstOf(ctx context.Context, refusal string) map[string]*listenersv1alpha1.Listener {
	var listeners listenersv1alpha1.ListenerList
	index.List(ctx, w.client, &listeners, client.MatchingFields{index.ListenersByRefusal: refusal})
	first := map[string]*listenersv1alpha1.Listener{}
	for i := range listeners.Items {
		this := &listeners.Items[i]
		demand := w.demand(this)
		if other, ok := first[demand]; ok {
			if order, err := resourceversion.CompareResourceVersion(this.ResourceVersion, other.ResourceVersion); err != nil || order >= 0 {
				continue
			}
		}
		first[demand] = this
	}
	return first
}

// demand identifies what a Listener was refused, or is "": others with the same demand can get whatever this one can,
// which depends on what they have already, and on the namespace if the message of the refusal names it.
func (w *waiting) demand(listener *listenersv1alpha1.Listener) string {
	reason, key, condition := exposure.RefusalOf(listener)
	if !w.scarce.Has(reason) {
		return ""
	}
	namespace := ""
	if strings.Contains(condition.Message, "namespace "+listener.Namespace) {
		namespace = listener.Namespace
	}
	protocols, numbers := map[corev1.Protocol]int{}, sets.New[int32]()
	for _, p := range listener.Spec.Ports {
		protocols[ptr.Deref(p.Protocol, corev1.ProtocolTCP)]++
		numbers.Insert(p.Port)
	}
	hash := sha256.New() // overrides may be large
	fmt.Fprint(hash, reason, "/", key, "/", listener.Class(), "/", namespace, protocols, numbers.Len(), len(lastNodePorts(*listener.Status)),
		len(listener.Status.SharedPorts), listener.Status.TargetAddresses())
	for i := range listener.Spec.ObjectOverrides {
		hash.Write(listener.Spec.ObjectOverrides[i].Raw)
	}
	return string(hash.Sum(nil))
}

// changed handles a change of a Listener, which is nil if it was deleted. One that is newly refused is reconciled once
// more: what it needs may have become free before. If one no longer waits, the next one may get what became free.
func (w *waiting) changed(q queue, before, after *listenersv1alpha1.Listener) {
	waited, waits := w.demand(before), ""
	if after != nil {
		waits = w.demand(after)
	}
	if waits != "" && waits != waited {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(after)})
	}
	if waited != "" && waits != waited {
		reason, key, _ := exposure.RefusalOf(before)
		w.free(index.Refusal(reason, key))
	}
}

// keys has the keys, such as hosts, that belong to one Listener each. Its fields, refusal and set need the lock.
type keys struct {
	// reason is why Listeners are refused that need the key of another one.
	reason  string
	waiting *waiting
	// shown return what a Listener has by the cache, the first ones with precedence. They are nil after first use.
	shown []func(context.Context, *listenersv1alpha1.Listener) []string

	mu      sync.Mutex
	holders map[string]types.NamespacedName
	held    map[types.NamespacedName]sets.Set[string]
}

func newKeys(reason string, w *waiting, shown ...func(context.Context, *listenersv1alpha1.Listener) []string) *keys {
	return &keys{reason: reason, waiting: w, shown: shown, holders: map[string]types.NamespacedName{}, held: map[types.NamespacedName]sets.Set[string]{}}
}

// lock locks the keys, which are then known, and returns the function that unlocks them. Of the Listeners for which the
// cache shows a key, an accepted one has it, or else the first.
func (k *keys) lock(ctx context.Context) (unlock func()) {
	k.mu.Lock()
	var listeners listenersv1alpha1.ListenerList
	if k.shown != nil {
		index.List(ctx, k.waiting.client, &listeners)
	}
	rank := func(l *listenersv1alpha1.Listener) int {
		if condition(l, listenersv1alpha1.ListenerAccepted).Status == metav1.ConditionTrue {
			return 0
		}
		return 1
	}
	slices.SortFunc(listeners.Items, func(a, b listenersv1alpha1.Listener) int {
		return cmp.Or(rank(&a)-rank(&b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, shown := range k.shown {
		for i := range listeners.Items {
			key := client.ObjectKeyFromObject(&listeners.Items[i])
			free := slices.DeleteFunc(shown(ctx, &listeners.Items[i]), func(shown string) bool { return k.holders[shown].Name != "" })
			k.set(key, sets.New(free...), true)
		}
	}
	k.shown = nil
	return k.mu.Unlock
}

func (k *keys) holds(listener types.NamespacedName) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[listener].Len() > 0
}

// refusal returns why a Listener cannot have the wanted keys, because another one has one of them, or nil.
func (k *keys) refusal(listener types.NamespacedName, wanted []string, need, remedy string) *exposure.Refusal {
	for _, key := range wanted {
		if holder, taken := k.holders[key]; taken && holder != listener {
			return exposure.RefuseTaken(k.reason, need, key, holder, remedy)
		}
	}
	return nil
}

// set makes the wanted keys those of a Listener, in place of what it has, or in addition.
func (k *keys) set(listener types.NamespacedName, wanted sets.Set[string], add bool) {
	before := k.held[listener]
	if add {
		wanted = wanted.Union(before)
	}
	for key := range before.Difference(wanted) {
		delete(k.holders, key)
		k.waiting.free(index.Refusal(k.reason, key))
	}
	for key := range wanted {
		k.holders[key] = listener
	}
	if k.held[listener] = wanted; wanted.Len() == 0 {
		delete(k.held, listener)
	}
}

func (k *keys) forget(listener types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(listener, nil, false)
}
