package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// complete completes the values of a flag. The flag exists, so cobra's error is nil.
func (e *Environment) complete(cmd *cobra.Command, flag string, values func(context.Context) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return beginning(values(cmd.Context()), begin), cobra.ShellCompDirectiveNoFileComp
	})
}

// CompleteNames completes arguments by the names of objects of these kinds in the namespace, with the kind before the
// name if there are several kinds. It completes at most limit arguments, or any number if that is 0.
func (e *Environment) CompleteNames(limit int, kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace, err := e.Namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, k := range kinds {
			prefix := k.argument + "/"
			if len(kinds) == 1 {
				prefix = ""
			}
			names = append(names, e.list(cmd.Context(), k.GroupVersionKind, prefix, client.InNamespace(namespace))...)
		}
		return beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
	}
}

func (e *Environment) namespaces(ctx context.Context) []string {
	return e.list(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), "")
}

// list returns the names of objects with a prefix. A shell has no place for errors, so there are no names then.
func (e *Environment) list(ctx context.Context, kind schema.GroupVersionKind, prefix string, options ...client.ListOption) []string {
	c, err := e.Client()
	if err != nil {
		return nil
	}
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(kind)
	if err := c.List(ctx, objects, options...); err != nil {
		return nil
	}
	var names []string
	for i := range objects.Items {
		names = append(names, prefix+objects.Items[i].Name)
	}
	return names
}

func beginning(values []string, begin string) []string {
	var matching []string
	for _, v := range values {
		if strings.HasPrefix(v, begin) {
			matching = append(matching, v)
		}
	}
	return matching
}

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
)
