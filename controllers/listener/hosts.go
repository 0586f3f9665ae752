package listener

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hosts has the hosts that were given to Listeners, and the Listeners whose host another one has. A template gives no
// two Listeners the same host, but the templates of two classes can. After a restart, the objects in the cache show
// which Listener was the first. It is safe for concurrent use.
type hosts struct {
	mu sync.Mutex
	// claimants are those that have a host. They belong to one Listener.
	claimants map[string]sets.Set[claimant]
	// claimed are the hosts of each claimant.
	claimed map[claimant]sets.Set[string]
	// waiting are those that were refused a host, and waitsFor is the host of each.
	waiting  map[string]sets.Set[claimant]
	waitsFor map[claimant]string
}

// claimant is a Listener, and what it needs hosts for.
type claimant struct {
	types.NamespacedName
	purpose string
}

const (
	hostsOfService = "Service"
	hostsOfObjects = "objects"
)

func newHosts() *hosts {
	return &hosts{
		claimants: map[string]sets.Set[claimant]{}, claimed: map[claimant]sets.Set[string]{},
		waiting: map[string]sets.Set[claimant]{}, waitsFor: map[claimant]string{},
	}
}

// setClaimed makes hosts those of a claimant, in place of all others.
func (h *hosts) setClaimed(c claimant, hosts sets.Set[string]) {
	for host := range h.claimed[c] {
		remove(h.claimants, host, c)
	}
	delete(h.claimed, c)
	if len(hosts) > 0 {
		h.claimed[c] = hosts
	}
	for host := range hosts {
		insert(h.claimants, host, c)
	}
}

// setWaiting records for which host a claimant waits. It waits for none if the host is empty.
func (h *hosts) setWaiting(c claimant, host string) {
	remove(h.waiting, h.waitsFor[c], c)
	delete(h.waitsFor, c)
	if host != "" {
		h.waitsFor[c] = host
		insert(h.waiting, host, c)
	}
}

func insert(claimants map[string]sets.Set[claimant], host string, c claimant) {
	if claimants[host] == nil {
		claimants[host] = sets.New[claimant]()
	}
	claimants[host].Insert(c)
}

func remove(claimants map[string]sets.Set[claimant], host string, c claimant) {
	if claimants[host].Delete(c); len(claimants[host]) == 0 {
		delete(claimants, host)
	}
}

// wake returns requests for the Listeners that wait for one of the hosts.
func (h *hosts) wake(hosts ...string) []reconcile.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var requests []reconcile.Request
	for _, host := range hosts {
		for c := range h.waiting[host] {
			requests = append(requests, reconcile.Request{NamespacedName: c.NamespacedName})
		}
	}
	return requests
}

// wakeAll returns requests for all Listeners that wait for a host.
func (h *hosts) wakeAll() []reconcile.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var requests []reconcile.Request
	for c := range h.waitsFor {
		requests = append(requests, reconcile.Request{NamespacedName: c.NamespacedName})
	}
	return requests
}

// claimedBy returns the hosts of a Listener.
func (h *hosts) claimedBy(listener types.NamespacedName) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed[claimant{listener, hostsOfService}].Union(h.claimed[claimant{listener, hostsOfObjects}]).UnsortedList()
}

// forget ends all claims of a Listener.
func (h *hosts) forget(listener types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, purpose := range []string{hostsOfService, hostsOfObjects} {
		h.setClaimed(claimant{listener, purpose}, nil)
		h.setWaiting(claimant{listener, purpose}, "")
	}
}

// handler returns a handler of events of Listeners that requests those that wait for a host of a Listener when that is
// changed or deleted.
func (h *hosts) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(o client.Object, q queue) {
		for _, request := range h.wake(h.claimedBy(client.ObjectKeyFromObject(o))...) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { wake(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			wake(e.Object, q)
			h.forget(client.ObjectKeyFromObject(e.Object))
		},
	}
}

// claimHosts makes hosts those of the Listener for a purpose, in place of those that it had. It returns a
// *exposure.Refusal if another Listener has one of them. The Listener is then reconciled again when that may have
// changed.
func (r *Reconciler) claimHosts(ctx context.Context, o *observed, purpose string, hosts []string) error {
	c := claimant{client.ObjectKeyFromObject(o.listener), purpose}
	r.hosts.mu.Lock()
	defer r.hosts.mu.Unlock()
	for _, host := range hosts {
		r.hosts.setWaiting(c, host) // before the others are read, so that no change is missed
		holder, err := r.holderOf(ctx, o, host)
		if err != nil {
			return err
		}
		if holder != nil {
			return exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "by ListenerClass %s the host is %s, which Listener %s has already; rename the Listener, or use a "+
				"class whose hosts end differently", o.class.Name, host, client.ObjectKeyFromObject(holder))
		}
	}
	r.hosts.setWaiting(c, "")
	r.hosts.setClaimed(c, sets.New(hosts...))
	return nil
}

// desiredName returns the name of the desired Service by the template of the class, if it has one.
func desiredName(class *listenersv1alpha1.ListenerClass, service *corev1ac.ServiceApplyConfiguration) []string {
	if class.Spec.Hostname == nil {
		return nil
	}
	return []string{service.Annotations[names.AnnotationHostname]}
}

// hostsOf returns the hosts of desired objects of a backend.
func (r *Reconciler) hostsOf(backend exposure.Backend, all []exposure.Desired) ([]string, error) {
	var hosts []string
	for _, kind := range backend.Kinds() {
		if kind.Hosts == nil {
			continue
		}
		for _, desired := range all {
			if desired.GroupVersionKind().GroupKind() != kind.GroupKind() {
				continue
			}
			o, err := r.typed(kind, desired)
			if err != nil {
				return nil, err
			}
			hosts = append(hosts, kind.Hosts(o)...)
		}
	}
	return slices.DeleteFunc(hosts, func(host string) bool { return host == "" }), nil
}

// holderOf returns the other Listener that has a host, or nil. It is the one that got it first.
func (r *Reconciler) holderOf(ctx context.Context, o *observed, host string) (*listenersv1alpha1.Listener, error) {
	key := client.ObjectKeyFromObject(o.listener)
	for c := range r.hosts.claimants[host] {
		if c.NamespacedName == key {
			return nil, nil //nolint:nilnil // a host has one holder, and it is this Listener
		}
		if holder, err := r.entitled(ctx, c.NamespacedName, host); holder != nil || err != nil {
			return holder, err
		}
		r.hosts.claimed[c].Delete(host)
		remove(r.hosts.claimants, host, c)
	}
	objects := r.objectsWithHost(ctx, host)
	seen := sets.New(key)
	for _, object := range objects {
		other := controllingListener(object)
		if other.Name == "" || seen.Has(other) {
			continue
		}
		seen.Insert(other)
		holder, err := r.entitled(ctx, other, host)
		if err != nil {
			return nil, err
		}
		if holder != nil && precedes(holder, o.listener, objects) {
			return holder, nil
		}
	}
	return nil, nil //nolint:nilnil // nobody has it
}

// objectsWithHost returns the objects of Listeners that request a host. Those of a kind that cannot be read are left
// out: the Listeners that have other kinds do not wait for its API.
func (r *Reconciler) objectsWithHost(ctx context.Context, host string) []client.Object {
	var objects []client.Object
	var services corev1.ServiceList
	index.List(ctx, r.Client, &services, client.MatchingFields{index.ServicesByHost: host})
	for i := range services.Items {
		objects = append(objects, &services.Items[i])
	}
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			if kind.Hosts == nil {
				continue
			}
			list, err := r.newList(kind.GroupVersionKind)
			if err != nil || r.kinds[kind.GroupVersionKind].List(ctx, list, client.MatchingFields{index.ObjectsByHost: host}, client.UnsafeDisableDeepCopy) != nil {
				continue
			}
			items, _ := meta.ExtractList(list)
			for _, item := range items {
				objects = append(objects, item.(client.Object))
			}
		}
	}
	return objects
}

// entitled returns a Listener if it exists and a host is that of its class, or still published for it, and otherwise
// nil. Objects do not show that: tenants can write some that name a Listener as their controller.
func (r *Reconciler) entitled(ctx context.Context, key types.NamespacedName, name string) (*listenersv1alpha1.Listener, error) {
	listener := &listenersv1alpha1.Listener{}
	switch err := r.Client.Get(ctx, key, listener); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is no error
	case err != nil:
		return nil, fmt.Errorf("reading listener %s: %w", key, err)
	}
	o, err := r.observe(ctx, listener)
	if err != nil {
		return nil, err
	}
	if (&exposure.Listener{Listener: listener}).Publishes(name) || slices.Contains(r.hostsByClass(o), name) {
		return listener, nil
	}
	return nil, nil //nolint:nilnil // it is not
}

// hostsByClass returns the hosts that a Listener has by its class. It has none while the class cannot be used.
func (r *Reconciler) hostsByClass(o *observed) []string {
	if o.class == nil {
		return nil
	}
	var all []string
	l := o.forBackend(o.backend)
	if o.class.Spec.Hostname != nil {
		if hosts, err := host.OfService(l); err == nil {
			all = append(all, hosts.ByPort[""])
		}
	}
	if o.service == nil || !slices.ContainsFunc(o.backend.Kinds(), func(k exposure.Kind) bool { return k.Hosts != nil }) {
		return all
	}
	if desired, err := o.backend.Objects(l); err == nil {
		if hosts, err := r.hostsOf(o.backend, desired); err == nil {
			all = append(all, hosts...)
		}
	}
	return all
}

// precedes reports whether a Listener had a host before another one, by the objects with this host: accepted Listeners
// precede others, and then earlier objects later ones.
func precedes(a, b *listenersv1alpha1.Listener, objects []client.Object) bool {
	since := func(l *listenersv1alpha1.Listener) (first time.Time, ok bool) {
		for _, object := range objects {
			if created := object.GetCreationTimestamp().Time; controls(l, object) && (!ok || created.Before(first)) {
				first, ok = created, true
			}
		}
		return first, ok
	}
	sinceA, hasA := since(a)
	sinceB, hasB := since(b)
	switch {
	case !hasA || !hasB:
		return hasA
	case isAccepted(a) != isAccepted(b):
		return isAccepted(a)
	}
	return cmp.Or(sinceA.Compare(sinceB), cmp.Compare(client.ObjectKeyFromObject(a).String(), client.ObjectKeyFromObject(b).String())) < 0
}

func isAccepted(l *listenersv1alpha1.Listener) bool {
	return l.Status != nil && meta.IsStatusConditionTrue(l.Status.Conditions, listenersv1alpha1.ListenerAccepted)
}
