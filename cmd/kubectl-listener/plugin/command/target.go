package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// Kind is a kind of object that an argument may name.
type Kind struct {
	schema.GroupVersionKind
	// argument is the name of the kind in arguments.
	argument string
}

// The kinds of arguments.
var (
	KindPod      = Kind{corev1.SchemeGroupVersion.WithKind("Pod"), "pod"}
	KindClaim    = Kind{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "claim"}
	KindListener = Kind{listenersv1alpha1.GroupVersion.WithKind("Listener"), "listener"}

	kindNamespace = Kind{corev1.SchemeGroupVersion.WithKind("Namespace"), "namespace"}
)

// Workloads returns the kinds that create Pods.
func Workloads() []Kind {
	var kinds []Kind
	for _, name := range []string{"StatefulSet", "Deployment", "DaemonSet", "ReplicaSet"} {
		kinds = append(kinds, Kind{appsv1.SchemeGroupVersion.WithKind(name), strings.ToLower(name)})
	}
	return append(kinds, Kind{batchv1.SchemeGroupVersion.WithKind("Job"), "job"})
}

// Find returns the object that the arguments name: KIND/NAME, KIND NAME, or NAME alone, which is the first object of
// that name among the kinds. The object is of a kind of the list.
func (e *Environment) Find(ctx context.Context, c client.Client, args []string, kinds ...Kind) (client.Object, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	if e.from != "" { // workloads are not gathered
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return slices.Contains(Workloads(), k) })
	}
	given, name, found := strings.Cut(strings.Join(args, "/"), "/")
	if !found {
		name = given
	} else if kinds, err = e.only(c, given, kinds); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		empty, err := c.Scheme().New(k.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		empty.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		o, err := lookup.Get(ctx, c, types.NamespacedName{Namespace: namespace, Name: name}, empty.(client.Object))
		switch {
		case meta.IsNoMatchError(err):
			return nil, errors.New("the cluster does not serve Listeners: see whether the listener operator is installed: kubectl listener doctor")
		case err != nil || o != nil:
			return o, err
		}
	}
	if e.from != "" {
		return nil, fmt.Errorf("no %s %q of namespace %s was gathered", join(kinds), name, namespace)
	}
	return nil, fmt.Errorf("namespace %s has no %s %q", namespace, join(kinds), name)
}

// only returns the kind of the list that an argument names, by any of the names that kubectl accepts.
func (e *Environment) only(c client.Client, given string, kinds []Kind) ([]Kind, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return strings.EqualFold(given, k.argument) })
	if i < 0 {
		mapper, err := c.RESTMapper(), error(nil)
		if e.from == "" { // only this one knows short names
			if mapper, err = e.flags.ToRESTMapper(); err != nil {
				return nil, err
			}
		}
		resource, group := schema.ParseResourceArg(given)
		found, err := mapper.KindFor(ptr.Deref(resource, group.WithVersion("")))
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("finding the kind %q: %w", given, err)
		}
		i = slices.IndexFunc(kinds, func(k Kind) bool { return k.GroupKind() == found.GroupKind() })
	}
	if i < 0 {
		return nil, fmt.Errorf("this command is not for the kind %q, but for: %s", given, join(kinds))
	}
	return kinds[i : i+1], nil
}

func join(kinds []Kind) string {
	arguments := make([]string, 0, len(kinds))
	for _, k := range kinds {
		arguments = append(arguments, k.argument)
	}
	return strings.Join(arguments, ", ")
}

// CompleteNames completes arguments by the names of objects of these kinds in the namespace, with the kind before the
// name if there are several kinds, unless the user has begun with a name. It completes at most limit arguments, or any
// number if that is 0. A shell has no place for errors, so there are no names then.
func (e *Environment) CompleteNames(limit int, kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (completions []string, _ cobra.ShellCompDirective) {
		namespace, err := e.Namespace()
		x, connectErr := e.Examination()
		if err != nil || connectErr != nil || limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, k := range kinds {
			objects := &metav1.PartialObjectMetadataList{}
			objects.SetGroupVersionKind(k.GroupVersionKind)
			x.List(cmd.Context(), objects, client.InNamespace(namespace))
			for i := range objects.Items {
				name := objects.Items[i].Name
				switch qualified := k.argument + "/" + name; {
				case len(kinds) > 1 && strings.HasPrefix(qualified, begin):
					completions = append(completions, qualified)
				case strings.HasPrefix(name, begin) && !slices.Contains(completions, name):
					completions = append(completions, name)
				}
			}
		}
		return completions, cobra.ShellCompDirectiveNoFileComp
	}
}
