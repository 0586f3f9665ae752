package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
)

// A namesake that replaced it is never modified.
func TestWritesHaveTheUIDOfTheObservedObject(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver, UID: "observed-class"}, Provisioner: names.Driver}
	condition := &unstructured.Unstructured{}
	condition.SetGroupVersionKind(names.KindOperatorCondition)
	condition.SetNamespace(namespace)
	condition.SetName("listener-operator.v1.2.3")
	condition.SetUID("observed-condition")
	observed := map[string]string{
		"ListenerOperator": string(newConfig().UID), "ListenerOperator status": string(newConfig().UID),
		"StorageClass": "observed-class", "OperatorCondition": "observed-condition",
	}
	got := map[string]string{}
	record := func(subresource string, o runtime.ApplyConfiguration) {
		content, err := apply.Unstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		if key := content.GetKind() + subresource; observed[key] != "" {
			got[key] = string(content.GetUID())
		}
	}
	h := newHarness(t, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			record("", o)
			return c.Apply(ctx, o, options...)
		},
		SubResourceApply: func(
			ctx context.Context, c client.Client, name string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption,
		) error {
			record(" "+name, o)
			return c.SubResource(name).Apply(ctx, o, options...)
		},
	}, newConfig(), class, condition)
	h.OperatorCondition = condition.GetName()
	h.mustReconcile()
	if diff := cmp.Diff(observed, got); diff != "" {
		t.Errorf("uids of applies (-want +got):\n%s", diff)
	}
}

// The merge patch replaces all finalizers.
func TestFinalizerIsRemovedFromTheObservedVersionOnly(t *testing.T) {
	var got []string
	h := newHarness(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(o)
			if err != nil {
				return err
			}
			var sent metav1.PartialObjectMetadata
			if err := json.Unmarshal(data, &sent); err != nil {
				return err
			}
			got = append(got, sent.ResourceVersion)
			return c.Patch(ctx, o, patch, options...)
		},
	}, newConfig())
	config := h.config()
	config.Finalizers = []string{operatorv1alpha1.FinalizerNodeAgent}
	h.update(config)
	h.setState(operatorv1alpha1.Removed)
	config = h.config()
	if err := h.removeFinalizer(t.Context(), config.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{config.ResourceVersion}, got); diff != "" {
		t.Errorf("resource versions of patches (-want +got):\n%s", diff)
	}
}

// The garbage collector would delete them in any order.
func TestFinalizerIsKeptUntilObjectsArePruned(t *testing.T) {
	boom := errors.New("boom")
	config := newConfig()
	config.Finalizers = []string{operatorv1alpha1.FinalizerNodeAgent}
	config.Spec.ManagementState = operatorv1alpha1.Removed
	stale, _ := leftovers()
	failing := true
	h := newHarness(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if failing {
				return boom
			}
			return c.Delete(ctx, o, options...)
		},
	}, append(stale, config)...)
	if _, err := h.reconcileOnce(); !errors.Is(err, boom) {
		t.Fatalf("error is %v, want boom", err)
	}
	if !slices.Contains(h.config().Finalizers, operatorv1alpha1.FinalizerNodeAgent) {
		t.Error("the finalizer was removed before everything was pruned")
	}
	failing = false
	h.mustReconcile()
	h.expectExist(stale, false)
	if got := h.config().Finalizers; len(got) > 0 {
		t.Errorf("finalizers are %v", got)
	}
}
