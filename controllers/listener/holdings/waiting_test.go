package holdings

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// pool is a cluster in which Listeners need something that others have.
type pool struct {
	*Waiting
	listeners map[types.NamespacedName]*listenersv1alpha1.Listener // as the cache has them
	needs     map[types.NamespacedName]need
	written   map[types.NamespacedName]*listenersv1alpha1.Listener // statuses that the cache does not have yet
	left      map[need]int                                         // how many Listeners could get what they need
	queued    []types.NamespacedName
	attempts  int
	// rejected are Listeners that the API server rejects when they have what they need.
	rejected map[types.NamespacedName]bool
	lists    int
}

// need is what a Listener needs: some of what a class has or, if a key is given, that key.
type need struct {
	reason     string
	kind       listenersv1alpha1.WaitingKind
	class, key string
}

// web returns the key of the i-th Listener.
func web(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i)}
}

func (n need) waiting() registry.Key { return registry.Key{Kind: n.kind, Value: n.key} }

func newPool() *pool {
	p := &pool{
		listeners: map[types.NamespacedName]*listenersv1alpha1.Listener{}, needs: map[types.NamespacedName]need{},
		written: map[types.NamespacedName]*listenersv1alpha1.Listener{}, left: map[need]int{}, rejected: map[types.NamespacedName]bool{},
	}
	p.Waiting = newWaiting(poolCache{pool: p})
	return p
}

// poolCache is the cache of a pool, with one index.
type poolCache struct {
	client.Reader
	pool *pool
}

// List lists what the index has.
func (c poolCache) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	c.pool.lists++
	for _, l := range c.pool.listeners {
		_, waiting := index.RefusalOf(l)
		if waiting != nil && o.FieldSelector.String() == index.ListenersByRefusal+"="+index.Waiting(waiting.Kind, waiting.Value) {
			list.(*listenersv1alpha1.ListenerList).Items = append(list.(*listenersv1alpha1.ListenerList).Items, *l)
		}
	}
	return nil
}

// poolQueue is the work queue of a pool.
type poolQueue struct {
	Queue
	pool *pool
}

// Add adds a request to the queue, which has each once.
func (q poolQueue) Add(r reconcile.Request) { q.pool.add(r.NamespacedName) }

func (p *pool) add(key types.NamespacedName) {
	if !slices.Contains(p.queued, key) {
		p.queued = append(p.queued, key)
	}
}

func (p *pool) create(i int, n need) {
	key := web(i)
	p.listeners[key], p.needs[key] = &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: "1"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(n.class), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
		Status:     &listenersv1alpha1.ListenerStatus{},
	}, n
	p.add(key)
}

// reconcile handles the first request. Its decision is in the cache only when see is called.
func (p *pool) reconcile(fails bool) {
	key := p.queued[0]
	p.queued = p.queued[1:]
	old, exists := p.listeners[key]
	if !exists {
		return
	}
	defer p.Reconciled(key)
	p.attempts++
	if fails {
		p.add(key)
		return
	}
	after, n := old.DeepCopy(), p.needs[key]
	accepted := metav1.Condition{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAccepted}
	var waiting *listenersv1alpha1.WaitingFor
	if has := p.has(key); has || p.left[n] > 0 {
		if !has {
			p.left[n]--
		}
		after.Annotations = map[string]string{"has": fmt.Sprint(n)}
	} else {
		refusal := exposure.Refuse(n.reason, "none is left").Awaiting(listenersv1alpha1.WaitingFor{Kind: n.kind})
		if n.key != "" {
			taken := listenersv1alpha1.WaitingFor{Kind: n.kind, Value: n.key, Holder: "shop/first"}
			refusal = exposure.RefuseTaken(n.reason, "the key is", taken, "use another one")
		}
		waiting = refusal.WaitingFor
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, refusal.Reason, refusal.Message
	}
	if accepted.Status == metav1.ConditionTrue && p.rejected[key] {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, listenersv1alpha1.ReasonQuotaExceeded
		p.written[key] = old.DeepCopy()
		p.written[key].Status.Conditions, p.written[key].ResourceVersion = []metav1.Condition{accepted}, strconv.Itoa(p.attempts+1)
		p.written[key].Status.WaitingFor = nil
		return
	}
	if _, last := index.RefusalOf(old); last != nil && waiting != nil && last.Kind == n.kind && last.Value == n.key {
		return
	}
	after.Status.WaitingFor = waiting
	after.Status.Conditions, after.ResourceVersion = []metav1.Condition{accepted}, strconv.Itoa(p.attempts+1)
	p.written[key] = after
}

func (p *pool) has(key types.NamespacedName) bool {
	l := p.listeners[key]
	if w, ok := p.written[key]; ok {
		l = w
	}
	return l.Annotations["has"] == fmt.Sprint(p.needs[key])
}

// see has the cache show what was written for a Listener.
func (p *pool) see(ctx context.Context, key types.NamespacedName) {
	before, after := p.listeners[key], p.written[key]
	delete(p.written, key)
	if before != nil && after != nil {
		p.listeners[key] = after
		p.Changed(poolQueue{pool: p}, before, after)
		if reason, _ := index.RefusalOf(after); reason == listenersv1alpha1.ReasonQuotaExceeded {
			p.release(p.needs[key])
			p.add(key) // it is tried again
		}
	}
}

func (p *pool) delete(ctx context.Context, key types.NamespacedName) {
	before := p.listeners[key]
	if before == nil {
		return
	}
	if p.has(key) {
		p.release(p.needs[key])
	}
	delete(p.listeners, key)
	delete(p.written, key)
	p.Changed(poolQueue{pool: p}, before, nil)
}

func (p *pool) release(n need) {
	p.left[n]++
	p.Free(n.waiting())
}

// settle handles all requests.
func (p *pool) settle(ctx context.Context) {
	for len(p.queued)+len(p.written)+p.Freed.Len()+len(p.due) > 0 {
		if len(p.queued) > 0 {
			p.reconcile(false)
		}
		for key := range p.written {
			p.see(ctx, key)
		}
		add(poolQueue{pool: p}, p.FreedRequests(ctx, nil))
	}
}

// needs are all that Listeners can be refused because others have it.
func allNeeds() (all []need) {
	all = []need{
		{reason: listenersv1alpha1.ReasonNodePortsExhausted, kind: listenersv1alpha1.WaitingKindNodePort},
		{reason: listenersv1alpha1.ReasonSharedPortsExhausted, kind: listenersv1alpha1.WaitingKindSharedPort},
		{reason: listenersv1alpha1.ReasonPortLimitReached, kind: listenersv1alpha1.WaitingKindSharedPort},
		{reason: listenersv1alpha1.ReasonClusterIPsExhausted, kind: listenersv1alpha1.WaitingKindClusterIP},
		{reason: listenersv1alpha1.ReasonNoGatewayListener, kind: listenersv1alpha1.WaitingKindGatewayListener},
		{reason: listenersv1alpha1.ReasonGatewayPortsExhausted, kind: listenersv1alpha1.WaitingKindGatewayPort},
		{reason: listenersv1alpha1.ReasonInvalidHost, kind: listenersv1alpha1.WaitingKindHost, key: "edge.example.com"},
		{reason: listenersv1alpha1.ReasonAddressTaken, kind: listenersv1alpha1.WaitingKindAdvertisedAddress, key: "edge.example.com:443"},
	}
	for i := range all {
		all[i].class = "edge"
	}
	return all
}

// One succeeds, and one is in vain, however many wait.
func TestWhatIsFreeCostsTwoAttempts(t *testing.T) {
	for _, n := range allNeeds() {
		p := newPool()
		for i := range 2000 {
			p.create(i, n)
			if len(p.queued) > 100 {
				p.settle(t.Context())
			}
		}
		p.settle(t.Context())
		if p.attempts > 4000 {
			t.Errorf("%v: 2000 Listeners are refused in %d attempts", n, p.attempts)
		}
		p.attempts = 0
		p.release(n)
		p.settle(t.Context())
		if p.left[n] > 0 || p.attempts > 2 {
			t.Errorf("%v: %d attempts, and %d are free", n, p.attempts, p.left[n])
		}
		if first := web(0); !p.has(first) {
			t.Errorf("%v: not the Listener that has waited longest got it", n)
		}
	}
}

// A tenant may delete thousands, each with large overrides.
func TestListenersThatStopWaitingAtOnceCostOneLookup(t *testing.T) {
	for _, n := range allNeeds() {
		p := newPool()
		for i := range 1000 {
			p.create(i, n)
			p.listeners[web(i)].Spec.ObjectOverrides =
				[]runtime.RawExtension{{Raw: fmt.Appendf(nil, `{"a": "%*d"}`, 1<<10, i)}}
		}
		for len(p.queued) > 0 {
			p.reconcile(false)
		}
		for key := range p.written {
			p.see(t.Context(), key)
		}
		p.lists = 0
		for i := range 999 {
			p.delete(t.Context(), web(i))
		}
		last := p.FreedRequests(t.Context(), nil)
		if want := []reconcile.Request{{NamespacedName: web(999)}}; !slices.Equal(last, want) || p.lists > 1 {
			t.Errorf("%v: %d lookups, which request %v", n, p.lists, last)
		}
		for _, l := range p.listeners {
			if demand := p.demand(l); len(demand) > 100 {
				t.Errorf("%v: a demand has %d bytes", n, len(demand))
			}
		}
	}
}

// Nothing finds the Listener at that moment.
func TestWhatIsFreedBeforeTheStatusShowsTheRefusalIsNotMissed(t *testing.T) {
	for _, n := range allNeeds() {
		p := newPool()
		p.create(0, n)
		p.reconcile(false)
		p.release(n)
		if requests := p.FreedRequests(t.Context(), nil); len(requests) > 0 {
			t.Fatalf("%v: requests %v", n, requests)
		}
		p.settle(t.Context())
		if p.left[n] > 0 {
			t.Errorf("%v: the Listener waits although %d are free", n, p.left[n])
		}
	}
}

// TestListenersThatAreRejectedAnywayKeepNoOtherOneWaiting, although they have waited longer.
func TestListenersThatAreRejectedAnywayKeepNoOtherOneWaiting(t *testing.T) {
	const rejected = 10
	last := web(rejected)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		p, n := newPool(), allNeeds()[1]
		for i := range rejected + 1 {
			p.create(i, n)
			p.rejected[web(i)] = i < rejected
		}
		p.settle(t.Context())
		p.release(n)
		for range 1000 {
			switch random.IntN(3) {
			case 0:
				add(poolQueue{pool: p}, p.FreedRequests(t.Context(), nil))
			case 1:
				for key := range p.written {
					p.see(t.Context(), key)
					break
				}
			default:
				if len(p.queued) > 0 {
					p.reconcile(false)
				}
			}
		}
		if !p.has(last) {
			t.Errorf("with seed %d, it waits after %d attempts", seed, p.attempts)
		}
	}
}

// Whatever happens to the Listeners that are requested for it: they take it, look for another thing, fail, or are
// deleted.
func TestNothingStaysFreeWhileAListenerWaits(t *testing.T) {
	const listeners, rounds = 100, 300
	needs := allNeeds()
	for _, n := range allNeeds() { // of another class
		if n.class = "inner"; n.key != "" {
			n.key = "inner.example.com"
		}
		needs = append(needs, n)
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
		needs := []need{needs[random.IntN(len(needs))], needs[random.IntN(len(needs))]}
		p := newPool()
		for i := range listeners {
			if p.create(i, needs[i%2]); i == listeners/2 {
				p.settle(t.Context()) // the others begin to wait in between
			}
		}
		for range rounds {
			switch key := web(random.IntN(listeners)); random.IntN(8) {
			case 0:
				for n := needs[random.IntN(2)]; random.IntN(2) > 0; {
					p.release(n)
				}
			case 1:
				if random.IntN(8) == 0 {
					p.delete(t.Context(), key)
				}
			case 2: // it needs something else
				if p.listeners[key] == nil || random.IntN(8) > 0 {
					continue
				}
				if p.has(key) {
					p.release(p.needs[key])
				}
				p.see(t.Context(), key)
				before := p.listeners[key]
				n := needs[random.IntN(2)]
				after := before.DeepCopy()
				after.Annotations, after.Spec.ClassName = nil, ptr.To(n.class)
				p.listeners[key], p.needs[key] = after, n
				p.Changed(poolQueue{pool: p}, before, after)
				p.add(key)
			case 3:
				p.see(t.Context(), key)
			case 4:
				add(poolQueue{pool: p}, p.FreedRequests(t.Context(), nil))
			default:
				if len(p.queued) > 0 {
					p.reconcile(random.IntN(4) == 0)
				}
			}
		}
		p.settle(t.Context())
		for key := range p.listeners {
			if n := p.needs[key]; !p.has(key) && p.left[n] > 0 {
				t.Fatalf("with seed %d, %s waits for %v although %d are free", seed, key, n, p.left[n])
			}
		}
	}
}

// Whatever else they have and need: a Listener that has waited for less long, and has numbers from a backup, does not
// come first, and follows whatever became of the one before.
func TestListenersWithDifferentDemandsFollowOneAnother(t *testing.T) {
	const listeners = 10
	for _, n := range allNeeds() {
		p := newPool()
		for i := range listeners {
			p.create(i, n)
			p.listeners[p.queued[0]].Spec.ObjectOverrides = []runtime.RawExtension{{Raw: fmt.Appendf(nil, `{"a": %d}`, i)}}
			p.settle(t.Context())
		}
		p.Free(n.waiting())
		for i := range listeners {
			next := p.FreedRequests(t.Context(), nil)
			key := web(i)
			if want := []reconcile.Request{{NamespacedName: key}}; !slices.Equal(next, want) {
				t.Fatalf("%v: %v are requested, want %v", n, next, want)
			}
			add(poolQueue{pool: p}, next)
			p.reconcile(i%2 == 1)
			p.queued = nil
		}
		if next := p.FreedRequests(t.Context(), nil); len(next) > 0 {
			t.Errorf("%v: %v are requested in the end", n, next)
		}
	}
}

// A Listener that cannot get what is free keeps no other one from it.
func TestDemandsDifferByWhatAListenerCanGet(t *testing.T) {
	type (
		l      = *listenersv1alpha1.Listener
		c      = *metav1.Condition
		change = func(l l, accepted c)
	)
	listener := func(change change) *listenersv1alpha1.Listener {
		l := &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("edge"), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
			Status: &listenersv1alpha1.ListenerStatus{Conditions: []metav1.Condition{{
				Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionFalse, Reason: listenersv1alpha1.ReasonNodePortsExhausted, Message: "no node port is left for port http",
			}}, WaitingFor: &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindNodePort, Since: metav1.Unix(1, 0)}},
		}
		change(l, &l.Status.Conditions[0])
		return l
	}
	w := newWaiting(nil)
	same := w.demand(listener(func(l, c) {}))
	for name, tc := range map[string]struct {
		change change
		same   bool
		none   bool // it waits for nothing
	}{
		"another name": {func(l l, _ c) { l.Namespace, l.Name = "other", "other" }, true, false},
		"a port of another name": {func(l l, accepted c) {
			l.Spec.Ports[0].Name, accepted.Message = "https", "no node port is left for port https"
		}, true, false},
		"one that has waited for longer": {func(l l, _ c) { l.Status.WaitingFor.Since = metav1.Unix(0, 0) }, true, false},
		"more ports": {func(l l, _ c) {
			l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "admin", Port: 81})
		}, false, false},
		"some ports already":  {func(l l, _ c) { l.Status.NodePorts = map[string]int32{"http": 30080} }, false, false},
		"another class":       {func(l l, _ c) { l.Spec.ClassName = ptr.To("inner") }, false, false},
		"a limited namespace": {func(l l, _ c) { l.Status.WaitingFor.NamespaceLimit = true }, false, false},
		"another kind":        {func(l l, _ c) { l.Status.WaitingFor.Kind = listenersv1alpha1.WaitingKindSharedPort }, false, false},
		"a key":               {func(l l, _ c) { l.Status.WaitingFor.Value, l.Status.WaitingFor.Holder = "h", "a/b" }, false, false},
		"published addresses": {func(l l, _ c) {
			l.Status.IngressAddresses = []listenersv1alpha1.IngressAddress{{Address: "h", Ports: map[string]int32{"http": 443}}}
		}, false, false},
		"another reason":           {func(_ l, c c) { c.Reason = listenersv1alpha1.ReasonPortLimitReached }, false, false},
		"nothing that others have": {func(l l, c c) { c.Reason, l.Status.WaitingFor = listenersv1alpha1.ReasonClassNotFound, nil }, false, true},
		"it is accepted again":     {func(_ l, c c) { c.Status = metav1.ConditionTrue }, false, true},
	} {
		if got := w.demand(listener(tc.change)); (got == same) != tc.same || (got == "") != tc.none {
			t.Errorf("%s: demands %q and %q", name, same, got)
		}
	}
	limited := func(namespace string) string {
		return w.demand(listener(func(l l, _ c) { l.Namespace, l.Status.WaitingFor.NamespaceLimit = namespace, true }))
	}
	if limited("shop") == limited("other") {
		t.Error("Listeners of two limited namespaces have the same demand")
	}
}

// A Listener that the same reason refuses, and that waits for nothing of others, is not looked at in vain.
func TestListenersThatWaitForNothingAreNotRequested(t *testing.T) {
	p, n := newPool(), allNeeds()[0]
	p.create(0, n)
	p.settle(t.Context())
	for _, l := range p.listeners {
		l.Status.WaitingFor = nil
	}
	p.Free(n.waiting())
	if requests := p.FreedRequests(t.Context(), nil); len(requests) > 0 {
		t.Errorf("requested: %v", requests)
	}
}

func add(q Queue, requests []reconcile.Request) {
	for _, request := range requests {
		q.Add(request)
	}
}
