// Package podlisteners follows the PodListeners of one node: the addresses that the operator has found out for each of
// the node's Pods. It asks for those of a Pod by creating an empty object, a hint that the Pod is being mounted, and
// keeps the files in the volumes of running Pods as the objects are.
//
// It must never do anything else with the API than to create hints and to list and watch the PodListeners of its own
// node, and never believe an object that the operator has not written.
package podlisteners

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// ErrNoAddress is wrapped by errors about a volume whose addresses are not known in time.
var ErrNoAddress = errors.New("no address yet")

// How long to wait before a hint that is not there is created again: at first, and at most. A hint that does not fit
// its Pod, as one for a Pod that is gone, is deleted at once.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Watch holds the PodListeners of one node in memory.
type Watch struct {
	client   rest.Interface
	node     string
	objects  cache.Store
	informer cache.Controller

	mu sync.Mutex
	// waiters are woken when the object of this name changes, comes or goes.
	waiters map[cache.ObjectName]map[*waiter]struct{}
	// onChange is told of each object, after it has changed in objects.
	onChange func(*listenersv1alpha1.PodListeners)
}

// NewWatch returns a Watch of the PodListeners on a node. Nothing is read before Run.
func NewWatch(cfg *rest.Config, node string) (*Watch, error) {
	client, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	w := &Watch{
		client:   client,
		node:     node,
		waiters:  map[cache.ObjectName]map[*waiter]struct{}{},
		onChange: func(*listenersv1alpha1.PodListeners) {},
	}
	selector := fields.OneTermEqualSelector("spec.nodeName", node)
	w.objects, w.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, resource, "", selector),
		ObjectType:    &listenersv1alpha1.PodListeners{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    w.changed,
			UpdateFunc: func(_, o any) { w.changed(o) },
			DeleteFunc: w.deleted,
		},
		Transform: trim,
	})
	return w, nil
}

// Run lists and watches until ctx is done. It is called once.
func (w *Watch) Run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// Ready returns nil once all objects that existed at the start of Run are known.
func (w *Watch) Ready() error {
	if !w.informer.HasSynced() {
		return errors.New("the PodListeners of this node are not known yet; is the API server reachable?")
	}
	return nil
}

// Addresses waits until the addresses of one of a Pod's volumes, named by its PersistentVolume, are known, and returns
// them, at least one. If the Pod has no hint, it creates one, as often as it takes. The error wraps ErrNoAddress, and
// says what is missing. It comes when ctx is done, then wrapping the cause, and when the Pod's object is deleted: so
// the operator ends a wait that has become pointless, because the Pod is going away.
func (w *Watch) Addresses(ctx context.Context, pod Pod, volume string) ([]listenersv1alpha1.IngressAddress, error) {
	wait, forget := w.subscribe(pod.key())
	defer forget()
	var (
		hintErr error
		timer   <-chan time.Time
		retry   = firstRetry
		due     = true
	)
	for {
		object := w.get(pod.key())
		if addresses := addressesOf(object, volume); len(addresses) > 0 {
			return addresses, nil
		}
		if wait.ended.Load() {
			return nil, fmt.Errorf("volume %s of Pod %s has %w: PodListeners %s was deleted, as for a Pod that is going away", volume, pod, ErrNoAddress,
				pod.key().Name)
		}
		if object == nil && due {
			if hintErr = w.create(ctx, pod); hintErr != nil {
				logr.FromContextOrDiscard(ctx).Info("The operator could not be asked for addresses, trying again", "after", retry.String(), "reason", hintErr.Error())
			}
			timer, retry, due = time.After(retry), min(2*retry, lastRetry), false
		}
		select {
		case <-wait.changed:
		case <-timer:
			due = true
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s of Pod %s has %w (%w): %w", volume, pod, ErrNoAddress, ctx.Err(), w.missing(object, pod, volume, hintErr))
		}
	}
}

// missing says why there are no addresses yet, and where to look. hintErr is why there is no hint, or nil.
func (w *Watch) missing(object *listenersv1alpha1.PodListeners, pod Pod, volume string, hintErr error) error {
	describe := fmt.Sprintf("kubectl -n %s describe", pod.Namespace)
	if object == nil && hintErr != nil {
		return fmt.Errorf("the operator could not be asked: %w", hintErr)
	}
	if object == nil || !object.Trusted() {
		return fmt.Errorf("the listener operator has not answered on PodListeners %s; is it running? See also: %s pod %s", pod.key().Name, describe, pod.Name)
	}
	name, entry, ok := entryOf(object, volume)
	if !ok {
		return fmt.Errorf("the listener operator does not know it as one of the Pod's listener volumes; see: %s pod %s", describe, pod.Name)
	}
	return fmt.Errorf("volume %q in the Pod waits for Listener %s; see: %s listener %s; %s pod %s",
		name, entry.ListenerName, describe, entry.ListenerName, describe, pod.Name)
}

// get returns an object, which must not be changed, or nil.
func (w *Watch) get(key cache.ObjectName) *listenersv1alpha1.PodListeners {
	o, ok, err := w.objects.GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	return o.(*listenersv1alpha1.PodListeners)
}

// entryOf finds a volume by its PersistentVolume in an object that the operator has written.
func entryOf(o *listenersv1alpha1.PodListeners, volume string) (string, listenersv1alpha1.PodListener, bool) {
	if o == nil || !o.Trusted() {
		return "", listenersv1alpha1.PodListener{}, false
	}
	for name, entry := range o.Spec.Listeners {
		if entry.PersistentVolumeName == volume {
			return name, entry, true
		}
	}
	return "", listenersv1alpha1.PodListener{}, false
}

func addressesOf(o *listenersv1alpha1.PodListeners, volume string) []listenersv1alpha1.IngressAddress {
	_, entry, _ := entryOf(o, volume)
	return entry.IngressAddresses
}

// waiter is one who waits for an object to change.
type waiter struct {
	// changed tells of changes since the last look.
	changed chan struct{}
	// ended tells that the object was deleted, even if there is another one by now.
	ended atomic.Bool
}

// subscribe returns a waiter for the object of this name, and the function that ends the subscription.
func (w *Watch) subscribe(key cache.ObjectName) (*waiter, func()) {
	subscribed := &waiter{changed: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters[key] == nil {
		w.waiters[key] = map[*waiter]struct{}{}
	}
	w.waiters[key][subscribed] = struct{}{}
	return subscribed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters[key], subscribed)
		if len(w.waiters[key]) == 0 {
			delete(w.waiters, key)
		}
	}
}

func (w *Watch) wake(o *listenersv1alpha1.PodListeners, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters[cache.MetaObjectToName(o)] {
		if deleted {
			waiter.ended.Store(true)
		}
		select {
		case waiter.changed <- struct{}{}:
		default: // it will look anyway
		}
	}
}

func (w *Watch) changed(object any) {
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		w.wake(o, false)
		w.onChange(o)
	}
}

func (w *Watch) deleted(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		w.wake(o, true)
	}
}

// trim drops what nobody here reads.
func trim(object any) (any, error) {
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
	}
	return object, nil
}
