package listener

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hosts gives each host to one Listener. A template gives no two Listeners the same host, but the templates of two
// classes can. After a restart, the objects in the cache show which Listener was the first.
type hosts struct {
	*keys
	reader *reader
}

// reserve makes the hosts of a plan those of the Listener, in place of those that it had, or returns why it cannot have
// those of the Service or of the objects. A Listener whose objects are refused keeps the hosts that it had.
func (h *hosts) reserve(ctx context.Context, s *snapshot, p servicePlan, desired []exposure.Desired, objectsRefusal *exposure.Refusal) (ofService, ofObjects *exposure.Refusal, _ error) {
	service, objects, err := h.planned(s, p.serviceNow, desired)
	if err != nil {
		return nil, nil, err
	}
	others, err := h.others(ctx, s, slices.Concat(service, objects))
	if err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ofService = h.refusal(s, service, others); ofService != nil {
		return ofService, objectsRefusal, nil
	}
	if ofObjects = objectsRefusal; ofObjects == nil {
		ofObjects = h.refusal(s, objects, others)
	}
	wanted := sets.New(service...)
	if ofObjects == nil {
		wanted.Insert(objects...)
	}
	h.set(s.key(), wanted, nil, ofObjects != nil)
	return nil, ofObjects, nil
}

// otherHolder is another Listener that has a host, or none, and what was known in memory when that was read.
type otherHolder struct {
	listener types.NamespacedName
	known    *holding
}

func (h *hosts) refusal(s *snapshot, wanted []string, others map[string]otherHolder) *exposure.Refusal {
	for _, host := range wanted {
		holder := others[host].listener
		if known := h.holders[host]; known != nil && known != others[host].known {
			holder = known.listener
		}
		if holder != s.key() && holder.Name != "" {
			return exposure.RefuseTaken(h.reason, "by ListenerClass "+s.class.Name+" the host is", host, holder, "rename the Listener, or use a class whose hosts end differently")
		}
	}
	return nil
}

// others finds who else has the hosts. It takes time for each object with one of them, which tenants can write, and so
// must not hold the lock.
func (h *hosts) others(ctx context.Context, s *snapshot, wanted []string) (_ map[string]otherHolder, err error) {
	others := map[string]otherHolder{}
	for _, host := range wanted {
		h.mu.Lock()
		other := otherHolder{known: h.holders[host]}
		h.mu.Unlock()
		if other.known == nil || other.known.listener != s.key() {
			if other.listener, err = h.first(ctx, s, host, other.known); err != nil {
				return nil, err
			}
			others[host] = other
		}
	}
	return others, nil
}

// planned returns the hosts of the Service, if the class has a template, and of the objects.
func (h *hosts) planned(s *snapshot, service *corev1ac.ServiceApplyConfiguration, objects []exposure.Desired) (ofService, ofObjects []string, _ error) {
	if s.class.Spec.Hostname != nil {
		ofService = []string{service.Annotations[names.AnnotationHostname]}
	}
	for _, desired := range objects {
		kind := s.backend.Generated(desired.GetKind())
		if kind.Hosts == nil {
			continue
		}
		o, err := h.reader.kinds.typed(kind, desired)
		if err != nil {
			return nil, nil, err
		}
		ofObjects = append(ofObjects, kind.Hosts(o)...)
	}
	return ofService, slices.DeleteFunc(ofObjects, func(host string) bool { return host == "" }), nil
}

// first returns another Listener that had a host before this one, in memory or by the objects in the cache, or none.
func (h *hosts) first(ctx context.Context, s *snapshot, host string, known *holding) (none types.NamespacedName, _ error) {
	objects := h.objectsWith(ctx, host)
	for _, key := range candidates(known, objects) {
		if key == s.key() {
			continue
		}
		other, err := lookup.Get(ctx, h.reader.client, key, &listenersv1alpha1.Listener{})
		if err != nil {
			return none, err
		}
		if other == nil || (known == nil || key != known.listener) && !precedes(other, s.listener, objects) {
			continue
		}
		if holds, err := h.holdsHost(ctx, other, host); holds || err != nil {
			return key, err
		}
	}
	return none, nil
}

// candidates returns the Listeners that may have a host: the one that has it in memory first, and those of objects that
// request it.
func candidates(known *holding, objects []client.Object) (keys []types.NamespacedName) {
	if known != nil {
		keys = append(keys, known.listener)
	}
	for _, object := range objects {
		if key, ok := listenerOf(object); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// objectsWith returns the objects of Listeners that request a host, except kinds that cannot be read: nobody waits for
// their API.
func (h *hosts) objectsWith(ctx context.Context, host string) []client.Object {
	var objects []client.Object
	var services corev1.ServiceList
	index.List(ctx, h.reader.client, &services, client.MatchingFields{index.ServicesByHost: host})
	for i := range services.Items {
		objects = append(objects, &services.Items[i])
	}
	for _, backend := range h.reader.backends {
		for _, kind := range backend.Generates {
			if kind.Hosts == nil {
				continue
			}
			for _, object := range h.reader.kinds.readable(ctx, kind, client.MatchingFields{index.ObjectsByHost: host}) {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

// holdsHost reports whether the class of a Listener gives it a host, or its status still publishes that host. Objects
// do not show that: tenants can write some that name a Listener as their controller.
func (h *hosts) holdsHost(ctx context.Context, listener *listenersv1alpha1.Listener, host string) (bool, error) {
	if (&exposure.Listener{Listener: listener}).Publishes(host) {
		return true, nil
	}
	s, err := h.reader.snapshot(ctx, listener)
	if err != nil {
		return false, err
	}
	p := planService(s)
	if p.refusal != nil {
		return false, nil
	}
	objects, _ := planObjects(s, p, exposure.Others{})
	ofService, ofObjects, err := h.planned(s, p.serviceNow, objects)
	return slices.Contains(ofService, host) || slices.Contains(ofObjects, host), err
}

// precedes reports whether a has had the host of the objects before b: if it is accepted, or its objects are earlier.
func precedes(a, b *listenersv1alpha1.Listener, objects []client.Object) bool {
	since := func(l *listenersv1alpha1.Listener) (first time.Time, ok bool) {
		for _, object := range objects {
			if created := object.GetCreationTimestamp().Time; controls(l, object) && (!ok || created.Before(first)) {
				first, ok = created, true
			}
		}
		return first, ok
	}
	isAccepted := func(l *listenersv1alpha1.Listener) bool {
		return condition(l, listenersv1alpha1.ListenerAccepted).Status == metav1.ConditionTrue
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
