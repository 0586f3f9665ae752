package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Find returns the object that the arguments name: KIND/NAME, KIND NAME, or NAME alone, which is the first object of
// that name among the kinds. The object is of a kind of the list.
func (e *Environment) Find(ctx context.Context, c client.Reader, args []string, kinds ...Kind) (client.Object, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	given, name, found := strings.Cut(args[0], "/")
	switch {
	case len(args) > 1:
		given, name = args[0], args[1]
	case !found:
		given, name = "", args[0]
	}
	if given != "" {
		k, err := e.kindOf(given, kinds)
		if err != nil {
			return nil, err
		}
		kinds = []Kind{k}
	}
	for _, k := range kinds {
		o, err := read(ctx, c, k, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil || o != nil {
			return o, err
		}
	}
	return nil, fmt.Errorf("namespace %s has no %s %q", namespace, join(kinds), name)
}

// kindOf returns the kind of the list that an argument names, by any of the names that kubectl accepts.
func (e *Environment) kindOf(given string, kinds []Kind) (Kind, error) {
	for _, k := range kinds {
		if strings.EqualFold(given, k.argument) || strings.EqualFold(given, k.Kind) {
			return k, nil
		}
	}
	mapper, err := e.flags.ToRESTMapper()
	if err != nil {
		return Kind{}, err
	}
	resource, group := schema.ParseResourceArg(given)
	if resource == nil {
		r := group.WithVersion("")
		resource = &r
	}
	found, err := mapper.KindFor(*resource)
	if err != nil && !meta.IsNoMatchError(err) {
		return Kind{}, fmt.Errorf("finding the kind %q: %w", given, err)
	}
	for _, k := range kinds {
		if err == nil && k.GroupKind() == found.GroupKind() {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("the kind %q is none of those that this command is for: %s", given, join(kinds))
}

// read returns an object, or nil if it does not exist.
func read(ctx context.Context, c client.Reader, k Kind, key types.NamespacedName) (client.Object, error) {
	var o client.Object
	switch k {
	case KindPod:
		o = &corev1.Pod{}
	case KindClaim:
		o = &corev1.PersistentVolumeClaim{}
	default:
		o = &listenersv1alpha1.Listener{}
	}
	switch err := c.Get(ctx, key, o); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // which the caller expects
	case meta.IsNoMatchError(err):
		return nil, errors.New("the cluster does not serve Listeners: is the listener operator installed? run kubectl listener doctor")
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", k.argument, key, err)
	}
	return o, nil
}

func join(kinds []Kind) string {
	arguments := make([]string, 0, len(kinds))
	for _, k := range kinds {
		arguments = append(arguments, k.argument)
	}
	return strings.Join(arguments, ", ")
}
