package main

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// manifests are the objects that the bundle is generated from.
type manifests []*unstructured.Unstructured

// first returns the first object of a kind.
func (m manifests) first(kind string) (*unstructured.Unstructured, error) {
	i := slices.IndexFunc(m, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })
	if i < 0 {
		return nil, fmt.Errorf("no object of kind %s", kind)
	}
	return m[i], nil
}

// all returns the objects of a kind. An unknown field is an error.
func all[T any](m manifests, kind string) ([]*T, error) {
	var found []*T
	for _, u := range m {
		if u.GetKind() != kind {
			continue
		}
		o := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
			return nil, fmt.Errorf("converting %s %s: %w", kind, u.GetName(), err)
		}
		found = append(found, o)
	}
	return found, nil
}

// single returns the only object of a kind.
func single[T any](m manifests, kind string) (*T, error) {
	found, err := all[T](m, kind)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d objects of kind %s, want one", len(found), kind)
	}
	return found[0], nil
}
