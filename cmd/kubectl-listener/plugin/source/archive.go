package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// archive is a client of what was gathered. Like an API server that does not permit to read it, it responds that what
// was not gathered is forbidden.
type archive struct {
	client.Client // nil: there is nothing to write
	index         Index
	scheme        *runtime.Scheme
	mapper        meta.RESTMapper
	objects       map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured
	// left is what may still be decoded, in bytes.
	left int64
}

func (a *archive) Scheme() *runtime.Scheme     { return a.scheme }
func (a *archive) RESTMapper() meta.RESTMapper { return a.mapper }

func (a *archive) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, a.scheme)
}

// errNotGathered is why something is forbidden.
var errNotGathered = errors.New("it was not gathered")

func (a *archive) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	mapping, err := Mapping(a, o)
	if err != nil {
		return err
	}
	kind, resource := mapping.GroupVersionKind.GroupKind(), mapping.Resource.GroupResource()
	if found := a.objects[kind][key]; found != nil {
		return Convert(found.Object, o)
	}
	if slices.Contains(a.index.Absent, Absent{Kind: kind.String(), Namespace: key.Namespace, Name: key.Name}) || a.listed(kind, key.Namespace, false) {
		return apierrors.NewNotFound(resource, key.Name)
	}
	return apierrors.NewForbidden(resource, key.Name, errNotGathered)
}

// listed reports whether the objects of a kind were listed, in a namespace or the whole cluster. some includes lists of
// which only a part was kept.
func (a *archive) listed(kind schema.GroupKind, namespace string, some bool) bool {
	return slices.ContainsFunc(a.index.Listed, func(l Listed) bool {
		return l.Kind == kind.String() && (l.Namespace == "" || l.Namespace == namespace) && (some || !l.Some)
	})
}

// List returns the objects of a namespace, or all. It ignores other options: Source selects.
func (a *archive) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	mapping, err := Mapping(a, list)
	if err != nil {
		return err
	}
	kind, namespace := mapping.GroupVersionKind.GroupKind(), (&client.ListOptions{}).ApplyOptions(options).Namespace
	if !a.listed(kind, namespace, true) {
		return apierrors.NewForbidden(mapping.Resource.GroupResource(), "", errNotGathered)
	}
	items := []any{}
	for key, object := range a.objects[kind] {
		if namespace == "" || namespace == key.Namespace {
			items = append(items, object.Object)
		}
	}
	version, name := list.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return Convert(map[string]any{"apiVersion": version, "kind": name, "items": items}, list)
}

// Convert writes an object into one of a type.
func Convert(from map[string]any, to runtime.Object) error {
	if object, ok := to.(*unstructured.Unstructured); ok {
		object.Object = runtime.DeepCopyJSON(from)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
		return fmt.Errorf("decoding an object: %w", err)
	}
	return nil
}

// Create responds to a review of a permission as the API server did. All other objects are forbidden.
func (a *archive) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
		for _, object := range a.objects[KindReview] {
			var known authorizationv1.SubjectAccessReview
			if err := Convert(object.Object, &known); err != nil {
				return err
			}
			if equality.Semantic.DeepEqual(known.Spec, review.Spec) {
				review.Status = known.Status
				return nil
			}
		}
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: KindReview.Group}, o.GetName(), errNotGathered)
}
