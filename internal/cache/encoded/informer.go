// Package encoded has informers that keep their objects encoded. Most fields of objects that a transform has trimmed
// are empty, and their maps have one or two entries: as Go values, such objects need two or three times as much memory,
// most of which the garbage collector has to search for pointers. Nothing outside of an informer notices the
// difference.
//
// The package knows client-go's informers only. It must never import a package of the operator.
package encoded

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// encoded is an object in the cache.
type encoded struct {
	namespace, name, resourceVersion string
	content                          []byte
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, for the store's keys and for the detection of changes.
func (e *encoded) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: e.namespace, Name: e.name, ResourceVersion: e.resourceVersion}
}

// protobuf is implemented by Kubernetes' own types, which are read from the API server in this encoding, too.
type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal(content []byte) error
}

// codec encodes the objects of one type, a pointer to a struct.
type codec struct{ object reflect.Type }

func (c codec) encode(o metav1.Object) (*encoded, error) {
	var content []byte
	var err error
	if p, ok := o.(protobuf); ok {
		content, err = p.Marshal()
	} else {
		content, err = json.Marshal(o)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding %T %s/%s for the cache: %w", o, o.GetNamespace(), o.GetName(), err)
	}
	return &encoded{namespace: o.GetNamespace(), name: o.GetName(), resourceVersion: o.GetResourceVersion(), content: content}, nil
}

// decode returns a new object if o is encoded, or a tombstone of one. It returns anything else as it is.
func (c codec) decode(o any) any {
	switch o := o.(type) {
	case *encoded:
		object := reflect.New(c.object.Elem()).Interface()
		var err error
		if p, ok := object.(protobuf); ok {
			err = p.Unmarshal(o.content)
		} else {
			err = json.Unmarshal(o.content, object)
		}
		if err != nil {
			panic(fmt.Sprintf("decoding %T %s/%s of the cache: %v", object, o.namespace, o.name, err)) // encode has encoded it
		}
		return object
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = c.decode(o.Obj)
		return o
	default:
		return o
	}
}

func (c codec) decodeAll(objects []any) []any {
	for i := range objects {
		objects[i] = c.decode(objects[i])
	}
	return objects // the store returns a new slice
}

// NewInformer returns the function of cache.Options that creates informers. Those of the types of the examples keep
// their objects encoded: each read, and each handler of an event, gets an object of its own. They need a transform.
func NewInformer(examples []client.Object) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	types := map[reflect.Type]bool{}
	for _, o := range examples {
		types[reflect.TypeOf(o)] = true
	}
	return func(source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		plain := toolscache.NewSharedIndexInformer(source, example, resync, indexers)
		if object := reflect.TypeOf(example); types[object] {
			return &informer{SharedIndexInformer: plain, codec: codec{object}}
		}
		return plain
	}
}

// informer keeps its objects encoded. It decodes what handlers, indexers and readers get.
type informer struct {
	toolscache.SharedIndexInformer
	codec
}

func (i *informer) SetTransform(trim toolscache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(o any) (any, error) {
		if _, done := o.(*encoded); done {
			return o, nil
		}
		trimmed, err := trim(o)
		if err != nil {
			return nil, err
		}
		return i.encode(trimmed.(metav1.Object))
	})
}

func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.handler(h))
}

func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.handler(h), resync)
}

func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.handler(h), options)
}

func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	decoding := toolscache.Indexers{}
	for name, index := range indexers {
		decoding[name] = func(o any) ([]string, error) { return index(i.decode(o)) }
	}
	return i.SharedIndexInformer.AddIndexers(decoding)
}

func (i *informer) GetStore() toolscache.Store { return i.GetIndexer() }

func (i *informer) GetIndexer() toolscache.Indexer {
	return &indexer{i.SharedIndexInformer.GetIndexer(), i.codec}
}

// handler returns a handler that decodes the objects of events.
func (c codec) handler(h toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initially bool) { h.OnAdd(c.decode(o), initially) },
		UpdateFunc: func(before, after any) { h.OnUpdate(c.decode(before), c.decode(after)) },
		DeleteFunc: func(o any) { h.OnDelete(c.decode(o)) },
	}
}

// indexer decodes the objects that are read. Only the informer writes.
type indexer struct {
	toolscache.Indexer
	codec
}

func (i *indexer) List() []any { return i.decodeAll(i.Indexer.List()) }

func (i *indexer) Get(o any) (any, bool, error) {
	item, exists, err := i.Indexer.Get(o)
	return i.decode(item), exists, err
}

func (i *indexer) GetByKey(key string) (any, bool, error) {
	item, exists, err := i.Indexer.GetByKey(key)
	return i.decode(item), exists, err
}

func (i *indexer) Index(name string, o any) ([]any, error) {
	objects, err := i.Indexer.Index(name, o)
	return i.decodeAll(objects), err
}

func (i *indexer) ByIndex(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, value)
	return i.decodeAll(objects), err
}
