package topology

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// live reads from memory. It begins to watch the objects of a kind when one of them is read for the first time. What
// the user may not list and watch is forbidden, as it is for a client. The objects that it returns must not be changed.
type live struct {
	client.WithWatch
	// start runs a watch for as long as the command runs.
	start func(*cache.Reflector)
	// namespace is the namespace whose objects are watched, or "" for all.
	namespace string
	// changed receives a value after a change.
	changed chan struct{}

	mu    sync.Mutex
	kinds map[kind]*objects
}

// newLive returns a reader that watches the objects of a namespace, or of all if that is "", until the context ends.
func newLive(ctx context.Context, c client.WithWatch, namespace string) *live {
	return &live{
		WithWatch: c, namespace: namespace, changed: make(chan struct{}, 1), kinds: map[kind]*objects{},
		start: func(r *cache.Reflector) { go r.RunWithContext(ctx) },
	}
}

// kind identifies the objects of a watch.
type kind struct {
	schema.GroupVersionKind
	namespace string
	metadata  bool
}

// Get implements client.Reader.
func (l *live) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	all, err := l.of(ctx, o, key.Namespace)
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	found, exists := all.byKey[key]
	if !exists {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, key.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

// List implements client.Reader. The order is that of the API server.
func (l *live) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	all, err := l.of(ctx, list, o.Namespace)
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if o.LabelSelector == nil && o.FieldSelector == nil {
		return all.copyTo(list, o.Namespace)
	}
	var matching []runtime.Object
	for _, object := range all.list(o.Namespace) {
		if (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))) && (o.FieldSelector == nil || o.FieldSelector.Matches(fieldsOf(object))) {
			matching = append(matching, object)
		}
	}
	return meta.SetList(list, matching)
}

// fieldsOf returns the fields that package check selects objects by.
func fieldsOf(o client.Object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	if event, ok := o.(*corev1.Event); ok {
		set["involvedObject.uid"] = string(event.InvolvedObject.UID)
	}
	return set
}

// of returns the objects of the kind of an object or a list in a namespace, after they were listed.
func (l *live) of(ctx context.Context, o runtime.Object, namespace string) (*objects, error) {
	gvk, err := apiutil.GVKForObject(o, l.Scheme())
	if err != nil {
		return nil, err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	mapping, err := l.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot || l.namespace == "" {
		namespace = ""
	}
	k := kind{GroupVersionKind: gvk, namespace: namespace}
	switch o.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		k.metadata = true
	}
	l.mu.Lock()
	all := l.kinds[k]
	if all == nil {
		all = &objects{changed: l.changed, byKey: map[client.ObjectKey]client.Object{}, known: make(chan struct{})}
		l.kinds[k] = all
		l.start(cache.NewReflectorWithOptions(l.watchOf(k, all), nil, all, cache.ReflectorOptions{Logger: ptr.To(logr.Discard())}))
	}
	l.mu.Unlock()
	select {
	case <-all.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.listed && !apierrors.IsForbidden(all.err) {
		return all, nil
	}
	return all, all.err
}

// watchOf returns the requests that list and watch the objects of a kind. Their errors are those of the objects.
func (l *live) watchOf(k kind, all *objects) cache.ListerWatcher {
	newList := func() client.ObjectList {
		if list, err := l.Scheme().New(k.GroupVersion().WithKind(k.Kind + "List")); err == nil && !k.metadata {
			return list.(client.ObjectList)
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.GroupVersionKind)
		return list
	}
	return listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := newList()
			err := l.WithWatch.List(ctx, list, client.InNamespace(k.namespace), &client.ListOptions{Raw: &o})
			if err != nil {
				all.end(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := l.Watch(ctx, newList(), client.InNamespace(k.namespace), &client.ListOptions{Raw: &o})
			all.end(err)
			return w, err
		},
	}}
}

// listWatch lists before it watches: not every API server has lists in watches, and an error would be that of the list.
type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what package watchlist asks.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// unreadable returns the kinds that the user may not read, and the error of a watch that was interrupted, or nil.
func (l *live) unreadable() (forbidden []string, interrupted error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, all := range l.kinds {
		all.mu.Lock()
		err := all.err
		all.mu.Unlock()
		switch {
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, k.Kind)
		case err != nil:
			interrupted = err
		}
	}
	slices.Sort(forbidden)
	return slices.Compact(forbidden), interrupted
}

// objects are the objects of a kind. They implement cache.ReflectorStore.
type objects struct {
	changed chan<- struct{}
	// known is closed when the first request has its response.
	known chan struct{}

	mu     sync.Mutex
	listed bool
	// err is the error of the last request.
	err    error
	byKey  map[client.ObjectKey]client.Object
	sorted []client.Object // or nil after a change
	// items are those of the lists of namespaces since the last change.
	items map[string]reflect.Value
}

// copyTo sets the items of a list to all objects of a namespace. Who examines a thousand Listeners lists all Pods a
// thousand times. The objects are locked.
func (a *objects) copyTo(list client.ObjectList, namespace string) error {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items := reflect.ValueOf(pointer).Elem()
	if known, ok := a.items[namespace]; ok {
		items.Set(known)
		return nil
	}
	all := a.list(namespace)
	objects := make([]runtime.Object, 0, len(all))
	for _, o := range all {
		objects = append(objects, o)
	}
	if err := meta.SetList(list, objects); err != nil {
		return err
	}
	a.items[namespace] = reflect.ValueOf(items.Interface()) // which the caller cannot replace
	return nil
}

// list returns the objects of a namespace, or all if that is "", sorted by namespace and name. The objects are locked.
func (a *objects) list(namespace string) []client.Object {
	if a.sorted == nil {
		a.sorted = slices.SortedFunc(maps.Values(a.byKey), func(x, y client.Object) int {
			return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
		})
	}
	if namespace == "" {
		return a.sorted
	}
	byNamespace := func(o client.Object, n string) int { return cmp.Compare(o.GetNamespace(), n) }
	begin, _ := slices.BinarySearchFunc(a.sorted, namespace, byNamespace)
	end, _ := slices.BinarySearchFunc(a.sorted, namespace+"\x00", byNamespace)
	return a.sorted[begin:end]
}

// change changes the objects, and reports that.
func (a *objects) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.sorted, a.items = nil, map[string]reflect.Value{}
	select {
	case <-a.known:
	default: // a reader waits for this first change
		close(a.known)
		return
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// end records the result of a request.
func (a *objects) end(err error) {
	a.mu.Lock()
	news := (err == nil) != (a.err == nil) && (err != nil || a.listed)
	a.mu.Unlock()
	if news {
		a.change(func() { a.err = err })
	}
}

func (a *objects) set(o any) error {
	object := o.(client.Object)
	object.SetManagedFields(nil)
	a.change(func() { a.byKey[client.ObjectKeyFromObject(object)] = object })
	return nil
}

// Add implements cache.ReflectorStore.
func (a *objects) Add(o any) error { return a.set(o) }

// Update implements cache.ReflectorStore.
func (a *objects) Update(o any) error { return a.set(o) }

// Delete implements cache.ReflectorStore.
func (a *objects) Delete(o any) error {
	a.change(func() { delete(a.byKey, client.ObjectKeyFromObject(o.(client.Object))) })
	return nil
}

// Replace implements cache.ReflectorStore.
func (a *objects) Replace(all []any, _ string) error {
	a.change(func() {
		a.listed, a.err, a.byKey = true, nil, map[client.ObjectKey]client.Object{}
		for _, o := range all {
			object := o.(client.Object)
			object.SetManagedFields(nil)
			a.byKey[client.ObjectKeyFromObject(object)] = object
		}
	})
	return nil
}

// Resync implements cache.ReflectorStore.
func (a *objects) Resync() error { return nil }
