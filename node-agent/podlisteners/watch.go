// Package podlisteners watches the PodListeners objects of one node, which contain the addresses that the operator has
// determined for each Pod of the node. When an object changes, it updates the files in the Pod's published volumes.
//
// Its only API requests must be to list and watch PodListeners objects, and but for the resource version of the list
// those of its own node. RBAC would permit it those of all nodes.
package podlisteners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/etcdrestore"
)

// ErrNoAddress is wrapped by errors about a volume whose addresses did not become known in time.
var ErrNoAddress = errors.New("no address yet")

const (
	// objectTimeout is how long to wait for the PodListeners object of a Pod that has none. The operator usually
	// creates it before the kubelet mounts the first volume. If the object is missing, the operator is not running, or
	// the namespace is being deleted; a longer wait would delay the deletion of the Pod.
	objectTimeout = 10 * time.Second
	// lagTimeout is how long an object that exists may take to arrive by the watch.
	lagTimeout = 5 * time.Second
	// maxWaiting is how many mounts of a Pod wait for addresses. Each needs memory, and a Pod may have any number of
	// volumes. The kubelet repeats others.
	maxWaiting = 4
)

// Watch is a cache of the PodListeners objects of one node.
type Watch struct {
	client   rest.Interface
	selector fields.Selector
	objects  cache.Store
	informer cache.Controller
	relists  prometheus.Counter
	// objectTimeout and lagTimeout are the constants of these names, but in tests.
	objectTimeout, lagTimeout time.Duration
	// stale is set while the next watch has to begin with a list.
	stale atomic.Bool

	mu sync.Mutex
	// current is the watch that runs, or nil before the first one.
	current watch.Interface
	// waiters are notified when the object of this name is created, changed or deleted.
	waiters map[cache.ObjectName]map[*waiter]struct{}
	// onChange is called for each object that was created or changed, after objects was updated.
	onChange func(*listenersv1alpha1.PodListeners)
}

// NewWatch returns a Watch for the PodListeners objects of a node. It reads nothing before Run.
func NewWatch(cfg *rest.Config, node string) (*Watch, error) {
	w := &Watch{
		selector:      fields.OneTermEqualSelector("spec.nodeName", node),
		relists:       newRelists(),
		objectTimeout: objectTimeout,
		lagTimeout:    lagTimeout,
		waiters:       map[cache.ObjectName]map[*waiter]struct{}{},
		onChange:      func(*listenersv1alpha1.PodListeners) {},
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(etcdrestore.Detect(func(reason error) {
		w.relists.Inc()
		klog.Background().Info("Listing all addresses again", "reason", reason.Error())
	}))
	var err error
	if w.client, err = newClient(cfg); err != nil {
		return nil, err
	}
	listWatch := cache.NewListWatchFromClient(w.client, resource, "", w.selector)
	listWatch.ListWithContextFunc = w.list
	start := listWatch.WatchFuncWithContext
	listWatch.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if w.stale.Swap(false) {
			return nil, apierrors.NewResourceExpired("the watch did not show an object that exists")
		}
		started, err := start(ctx, options)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.current = started
		}
		return started, err
	}
	w.objects, w.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch,
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

// list lists objects from an API server that cannot send them one by one as a watch, such as that of Kubernetes 1.33.
// It decodes one at a time, because all of them may exceed the agent's memory until they are trimmed.
func (w *Watch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector = w.selector.String()
	body, err := w.client.Get().Resource(resource).VersionedParams(&options, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list, decoder := &listenersv1alpha1.PodListenersList{}, json.NewDecoder(body)
	_, err = decoder.Token() // {
	for err == nil && decoder.More() {
		switch field, _ := decoder.Token(); field { // after an error, Decode fails
		case "metadata":
			err = decoder.Decode(&list.ListMeta)
		case "items":
			_, err = decoder.Token() // [
			for err == nil && decoder.More() {
				var o listenersv1alpha1.PodListeners
				err = decoder.Decode(&o)
				_, _ = trim(&o)
				list.Items = append(list.Items, o)
			}
			_, _ = decoder.Token() // ]
		default:
			err = decoder.Decode(&json.RawMessage{})
		}
	}
	if _, end := decoder.Token(); errors.Join(err, end) != nil {
		return nil, fmt.Errorf("reading the list of PodListeners: %w", errors.Join(err, end))
	}
	return list, nil
}

// Run lists and watches until ctx is done. It is called once.
func (w *Watch) Run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// Ready returns an error until all objects that existed when Run was called are in the cache.
func (w *Watch) Ready() error {
	if !w.informer.HasSynced() {
		return errors.New("the PodListeners of this node are not in the cache yet; is the API server reachable?")
	}
	return nil
}

// Metrics returns the metrics of the Watch.
func (w *Watch) Metrics() prometheus.Collector { return w.relists }

// Addresses waits until the addresses of one of a Pod's volumes, identified by its PersistentVolume's name or by
// Inline, are known, and returns them, at least one. It returns an error that wraps ErrNoAddress and says what is
// missing if ctx is done, in which case the error also wraps ctx.Err(); if the Pod has no PodListeners object for ten
// seconds;
// if four others of its volumes wait; or if the object is deleted: the operator deletes it when the Pod is deleted, to
// end the wait.
//
// After the ten seconds it asks the API server itself for the object. If the watch does not show what exists for
// another five, the watch is not to be trusted, and all objects are listed again.
func (w *Watch) Addresses(ctx context.Context, pod Pod, volume string) ([]listenersv1alpha1.IngressAddress, error) {
	wait, forget := w.subscribe(pod.key())
	defer forget()
	timer := time.NewTimer(w.objectTimeout)
	defer timer.Stop()
	exists := false // as the API server has answered
	for {
		object := w.get(pod.key())
		if addresses := addressesOf(object, volume); len(addresses) > 0 {
			return addresses, nil
		}
		if wait.others >= maxWaiting {
			return nil, fmt.Errorf("volume %s of Pod %s has %w: %d other volumes of the Pod wait for theirs", volume,
				pod, ErrNoAddress, wait.others)
		}
		if wait.deleted.Load() {
			return nil, fmt.Errorf("volume %s of Pod %s has %w: PodListeners %s was deleted, which happens when the "+
				"Pod is deleted", volume, pod, ErrNoAddress,
				pod.key().Name)
		}
		select {
		case <-wait.changed:
		case <-timer.C:
			switch {
			case object != nil:
			case exists:
				w.relist(pod)
			default:
				if err := w.find(ctx, pod); err != nil {
					return nil, fmt.Errorf("volume %s of Pod %s has %w: %w", volume, pod, ErrNoAddress, err)
				}
				exists = true
				timer.Reset(w.lagTimeout)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("volume %s of Pod %s has %w (%w): %w", volume, pod, ErrNoAddress, ctx.Err(),
				missing(object, pod, volume))
		}
	}
}

// find asks the API server for the PodListeners object of a Pod, and returns an error if there is none on this node.
// The request reads one object. The client's limit of requests per second, which is client-go's default, bounds what
// many Pods without an object cost.
func (w *Watch) find(ctx context.Context, pod Pod) error {
	var found listenersv1alpha1.PodListenersList
	selector := fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, pod.key().Name), w.selector)
	err := w.client.Get().Namespace(pod.Namespace).Resource(resource).Param("fieldSelector",
		selector.String()).Do(ctx).Into(&found)
	switch {
	case err != nil:
		return fmt.Errorf("the node agent cannot read PodListeners %s from the API server: %w", pod.key().Name, err)
	case len(found.Items) == 0:
		return missing(nil, pod, "")
	}
	return nil
}

// relist lists all objects again: the watch does not show that of a Pod.
func (w *Watch) relist(pod Pod) {
	if w.stale.Swap(true) {
		return // another Pod waits for the same list
	}
	w.relists.Inc()
	klog.Background().Info("Listing all addresses again", "reason", "the watch does not show an object that exists",
		"podListeners", pod.key().String())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil {
		w.current.Stop() // the informer starts another one
	}
}

// missing returns an error that says why there are no addresses yet, and how to find out more.
func missing(object *listenersv1alpha1.PodListeners, pod Pod, volume string) error {
	describe := fmt.Sprintf("kubectl -n %s describe", pod.Namespace)
	if object == nil {
		return fmt.Errorf("the listener operator has not created PodListeners %s; is it running, and the namespace "+
			"not being deleted? See also: %s pod %s",
			pod.key().Name, describe, pod.Name)
	}
	name, entry, ok := entryOf(object, volume)
	if !ok {
		return fmt.Errorf("it is not among the Pod's listener volumes that the listener operator has found; see: %s "+
			"pod %s", describe, pod.Name)
	}
	return fmt.Errorf("volume %q of the Pod waits for Listener %s; see: %s listener %s; %s pod %s",
		name, entry.ListenerName, describe, entry.ListenerName, describe, pod.Name)
}

// get returns an object from the cache, which must not be changed, or nil.
func (w *Watch) get(key cache.ObjectName) *listenersv1alpha1.PodListeners {
	o, ok, err := w.objects.GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	return o.(*listenersv1alpha1.PodListeners)
}

// ambiguous reports whether the cache has an object of the same name in another namespace.
func (w *Watch) ambiguous(key cache.ObjectName) bool {
	for _, o := range w.objects.List() {
		if other := cache.MetaObjectToName(o.(*listenersv1alpha1.PodListeners)); other.Name == key.Name &&
			other != key {
			return true
		}
	}
	return false
}

// inlinePrefix is in no name of a PersistentVolume.
const inlinePrefix = "inline/"

// Inline identifies an inline volume of a Pod by its name there.
func Inline(name string) string { return inlinePrefix + name }

// entryOf returns the name and the entry of a volume, identified by its PersistentVolume's name or by Inline, if the
// operator has written the object.
func entryOf(o *listenersv1alpha1.PodListeners, volume string) (string, listenersv1alpha1.PodListener, bool) {
	if o == nil {
		return "", listenersv1alpha1.PodListener{}, false
	}
	inlineName, inline := strings.CutPrefix(volume, inlinePrefix)
	for name, entry := range o.Spec.Listeners {
		if inline && name == inlineName && entry.PersistentVolumeName == "" ||
			!inline && entry.PersistentVolumeName == volume {
			return name, entry, true
		}
	}
	return "", listenersv1alpha1.PodListener{}, false
}

func addressesOf(o *listenersv1alpha1.PodListeners, volume string) []listenersv1alpha1.IngressAddress {
	_, entry, _ := entryOf(o, volume)
	return entry.IngressAddresses
}

// waiter is a call of Addresses that waits for an object to change.
type waiter struct {
	// changed receives a value after a change.
	changed chan struct{}
	// deleted is set when the object was deleted, even if it was recreated since.
	deleted atomic.Bool
	// others is how many calls waited for the object before.
	others int
}

// subscribe returns a waiter for the object of this name, and the function that removes it.
func (w *Watch) subscribe(key cache.ObjectName) (*waiter, func()) {
	subscribed := &waiter{changed: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters[key] == nil {
		w.waiters[key] = map[*waiter]struct{}{}
	}
	subscribed.others = len(w.waiters[key])
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

// notify notifies the waiters for an object.
func (w *Watch) notify(o *listenersv1alpha1.PodListeners, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters[cache.MetaObjectToName(o)] {
		if deleted {
			waiter.deleted.Store(true)
		}
		select {
		case waiter.changed <- struct{}{}:
		default: // It is already notified.
		}
	}
}

func (w *Watch) changed(object any) {
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		w.notify(o, false)
		w.onChange(o)
	}
}

func (w *Watch) deleted(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		w.notify(o, true)
	}
}

// trim removes the fields that this package does not read, and volumes beyond the limits, which the operator does not
// write.
func trim(object any) (any, error) {
	if o, ok := object.(*listenersv1alpha1.PodListeners); ok {
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}
		o.Spec = listenersv1alpha1.PodListenersSpec{Listeners: o.Spec.Listeners}
		o.Spec.Limit(slices.Sorted(maps.Keys(o.Spec.Listeners)))
	}
	return object, nil
}
