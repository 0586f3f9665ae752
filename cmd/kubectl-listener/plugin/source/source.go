// Package source has what commands read that look at many objects, from the cluster or from what `kubectl listener
// gather` wrote: each kind is listed once, and then read from memory. It must not change an object, nor let what the
// user may not read, or what was not gathered, look as if it did not exist.
package source

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/lookup"
)

// Source is a client that reads from memory. It lists the objects of a kind when one is read for the first time, and
// may watch them from then on. What the user may not list is forbidden. Its objects must not be changed.
type Source struct {
	client.Client
	// Namespace is the namespace whose objects are read, or "" for all.
	Namespace string
	Changed   chan struct{}
	// watch begins to watch the objects of a kind, for as long as the command runs. Nil means that they are listed.
	watch func(kind, *objects)
	// archive has what was gathered. Nil means that the client is of a cluster.
	archive *archive

	mu    sync.Mutex
	kinds map[kind]*objects
}

// List returns a source that lists the objects of all namespaces.
func List(c client.Client) *Source { return &Source{Client: c, kinds: map[kind]*objects{}} }

// Watch returns a source that watches the objects of a namespace, or of all if that is "", until the context ends.
func Watch(ctx context.Context, c client.WithWatch, namespace string) *Source {
	ctx = logr.NewContext(ctx, logr.Discard())
	s := &Source{Client: c, Namespace: namespace, Changed: make(chan struct{}, 1), kinds: map[kind]*objects{}}
	s.watch = func(k kind, all *objects) {
		go cache.NewReflector(s.watchOf(c, k, all), nil, all, 0).RunWithContext(ctx)
	}
	return s
}

// Open returns a source of what was gathered in a directory, or in an archive, and its index. The objects may be below
// another directory, as `oc adm must-gather` writes them.
func Open(name string, scheme *runtime.Scheme) (*Source, Index, error) {
	a := &archive{scheme: scheme, objects: map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured{}}
	files, err := a.read(name)
	if err == nil {
		err = a.load(files)
	}
	if err != nil {
		return nil, Index{}, fmt.Errorf("reading %s: %w", name, err)
	}
	s := List(a)
	s.archive = a
	return s, a.index, nil
}

type kind struct {
	schema.GroupVersionKind
	namespace string
	metadata  bool
}

// Get implements client.Reader. If the objects of a kind are neither listed nor watched, it requests the object alone.
func (s *Source) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	k, err := s.kindOf(o, key.Namespace)
	if err != nil {
		return err
	}
	if s.watch == nil && !s.knows(k) {
		return s.Client.Get(ctx, key, o)
	}
	all, err := s.of(ctx, k)
	if err == nil {
		if found := all.get(key); found != nil {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found).Elem())
			return nil
		}
		err = apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, key.Name)
	}
	if s.archive != nil {
		return s.Client.Get(ctx, key, o) // it knows what was not gathered
	}
	return err
}

// List implements client.Reader, in the order of the API server. It also requests what is selected by name alone.
func (s *Source) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options)
	k, err := s.kindOf(list, o.Namespace)
	if err != nil {
		return err
	}
	byName := strings.HasPrefix(o.AsListOptions().FieldSelector, "metadata.name=")
	if byName && s.watch == nil && s.archive == nil && !s.knows(k) {
		return s.Client.List(ctx, list, o)
	}
	all, err := s.of(ctx, k)
	if err != nil {
		return err
	}
	return all.read(list, o)
}

func fieldsOf(o client.Object) fields.Set {
	set := fields.Set{fieldNamespace: o.GetNamespace(), "metadata.name": o.GetName()}
	switch o := o.(type) {
	case *corev1.Event:
		set["involvedObject.uid"] = string(o.InvolvedObject.UID)
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
	}
	return set
}

// kindOf returns the kind of an object or a list, with the namespace whose objects are read.
func (s *Source) kindOf(o runtime.Object, namespace string) (kind, error) {
	mapping, err := Mapping(s, o)
	if err != nil {
		return kind{}, err
	}
	k := kind{GroupVersionKind: mapping.GroupVersionKind}
	if whole := s.Namespace == "" && (s.archive == nil || s.archive.listed(k.GroupKind(), "", true)); !whole &&
		mapping.Scope.Name() != meta.RESTScopeNameRoot {
		k.namespace = namespace
	}
	switch o.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		k.metadata = true
	}
	return k, nil
}

// Load lists a kind, unless it was read before. Of kinds that are not in the scheme, it reads only the metadata.
func (s *Source) Load(ctx context.Context, gvk schema.GroupVersionKind) error {
	return s.List(ctx, s.newList(kind{GroupVersionKind: gvk, metadata: !s.Scheme().Recognizes(gvk)}),
		client.InNamespace(s.Namespace))
}

func (s *Source) knows(k kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds[k] != nil
}

// of returns the objects of a kind, after they were listed.
func (s *Source) of(ctx context.Context, k kind) (*objects, error) {
	s.mu.Lock()
	all := s.kinds[k]
	if all == nil {
		all = &objects{changed: s.Changed, byKey: map[client.ObjectKey]client.Object{}, known: make(chan struct{})}
		s.kinds[k] = all
		if s.watch != nil {
			s.watch(k, all)
		} else {
			s.list(ctx, k, all)
		}
	}
	s.mu.Unlock()
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

func (s *Source) newList(k kind) client.ObjectList {
	if k.metadata {
		return lookup.MetadataList(k.GroupVersionKind)
	}
	if list, err := s.Scheme().New(k.GroupVersion().WithKind(k.Kind + "List")); err == nil {
		return list.(client.ObjectList)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.GroupVersionKind)
	return list
}

// list lists the objects of a kind. The objects keep the error.
func (s *Source) list(ctx context.Context, k kind, all *objects) {
	list := s.newList(k)
	if err := s.Client.List(ctx, list, client.InNamespace(k.namespace)); err != nil {
		all.end(err)
		return
	}
	var items []any
	_ = meta.EachListItem(list, func(o runtime.Object) error { // it is a list
		items = append(items, o)
		return nil
	})
	_ = all.Replace(items, "") // it returns no error
}

// watchOf returns the requests that list and watch the objects of a kind. The objects keep errors.
func (s *Source) watchOf(c client.WithWatch, k kind, all *objects) cache.ListerWatcher {
	return listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := s.newList(k)
			err := c.List(ctx, list, client.InNamespace(k.namespace), &client.ListOptions{Raw: &o})
			if err != nil {
				all.end(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, s.newList(k), client.InNamespace(k.namespace), &client.ListOptions{Raw: &o})
			all.end(err)
			return w, err
		},
	}}
}

// listWatch lists before it watches: not every API server has lists in watches, and errors would be errors of the list.
type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what package watchlist asks.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// Unreadable returns the kinds that the user may not read, and the error of a watch that was interrupted, or nil.
func (s *Source) Unreadable() (forbidden []string, interrupted error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, all := range s.kinds {
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

type objects struct {
	changed chan<- struct{}
	// known is closed when the first request has its response.
	known chan struct{}

	mu     sync.Mutex
	listed bool
	err    error
	byKey  map[client.ObjectKey]client.Object
	// items are the items of lists of namespaces since the last change, and fields the objects by a field's value.
	items  map[string]reflect.Value
	fields map[string]map[string][]runtime.Object
}

func (a *objects) get(key client.ObjectKey) client.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byKey[key]
}

func (a *objects) read(list client.ObjectList, o *client.ListOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	field, value := fieldNamespace, o.Namespace
	if o.FieldSelector != nil {
		required := o.FieldSelector.Requirements()[0]
		field, value = required.Field, required.Value
	} else if o.LabelSelector == nil {
		return a.copyTo(list, o.Namespace)
	}
	var matching []runtime.Object
	for _, candidate := range a.having(field, value) {
		object := candidate.(client.Object)
		if (o.Namespace == "" || o.Namespace == object.GetNamespace()) &&
			(o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			matching = append(matching, object)
		}
	}
	return meta.SetList(list, matching)
}

// copyTo sets a list to all objects of a namespace, which are locked. A thousand Listeners list all Pods as often.
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
	if err := meta.SetList(list, a.having(fieldNamespace, namespace)); err != nil {
		return err
	}
	a.items[namespace] = reflect.ValueOf(items.Interface()) // which the caller cannot replace
	return nil
}

const fieldNamespace = "metadata.namespace"

// having returns the locked objects with the value of a field, sorted by namespace and name. The namespace "" has all.
func (a *objects) having(field, value string) []runtime.Object {
	if a.fields[field] == nil {
		byValue := map[string][]runtime.Object{}
		for _, o := range slices.SortedFunc(maps.Values(a.byKey), func(x, y client.Object) int {
			return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
		}) {
			value := fieldsOf(o)[field]
			byValue[value] = append(byValue[value], o)
			if field == fieldNamespace && value != "" {
				byValue[""] = append(byValue[""], o)
			}
		}
		a.fields[field] = byValue
	}
	return a.fields[field][value]
}

func (a *objects) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.items, a.fields = map[string]reflect.Value{}, map[string]map[string][]runtime.Object{}
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

func (a *objects) end(err error) {
	a.mu.Lock()
	news := (err == nil) != (a.err == nil) && (err != nil || a.listed)
	a.mu.Unlock()
	if news {
		a.change(func() { a.err = err })
	}
}

func (a *objects) set(o any) {
	object := o.(client.Object)
	object.SetManagedFields(nil)
	a.byKey[client.ObjectKeyFromObject(object)] = object
}

func (a *objects) Add(o any) error {
	a.change(func() { a.set(o) })
	return nil
}

func (a *objects) Update(o any) error { return a.Add(o) }

func (a *objects) Delete(o any) error {
	a.change(func() { delete(a.byKey, client.ObjectKeyFromObject(o.(client.Object))) })
	return nil
}

func (a *objects) Replace(all []any, _ string) error {
	a.change(func() {
		a.listed, a.err, a.byKey = true, nil, map[client.ObjectKey]client.Object{}
		for _, o := range all {
			a.set(o)
		}
	})
	return nil
}

func (a *objects) Resync() error { return nil }
