package podlisteners_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The field managers are those of the contract (contract: field managers), so that fields which Stackable's listener
// operator applied, and which are not applied any more, are removed.
func TestFieldManagersAreThoseOfTheContract(t *testing.T) {
	var got []string
	record := interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			var set client.ApplyOptions
			set.ApplyOptions(options)
			got = append(got, fmt.Sprintf("apply, force %t, by %s", *set.Force, set.FieldManager))
			return c.Apply(ctx, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			var set client.CreateOptions
			set.ApplyOptions(options)
			got = append(got, fmt.Sprintf("create %T by %s", o, set.FieldManager))
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			var set client.PatchOptions
			set.ApplyOptions(options)
			got = append(got, fmt.Sprintf("%s of %T by %s", patch.Type(), o, set.FieldManager))
			return c.Patch(ctx, o, patch, options...)
		},
	}
	classBased := newWorld()
	classBased.classBased()
	labelled := newWorld()
	labelled.Volume.Labels = map[string]string{
		"listeners.stackable.tech/listener-namespace": "shop", "listeners.stackable.tech/listener-name": "web",
	}
	labelled.Volume.Annotations = map[string]string{"listeners.stackable.tech/node": "node-1"}
	outdated := newWorld()
	outdated.Volume.Labels, outdated.Volume.Annotations = labelled.Volume.Labels, labelled.Volume.Annotations
	outdated.Pod.Labels = map[string]string{"listener.stackable.tech/mnt.aaaabbbb": "web"}
	outdated.publishedBefore(listenersv1alpha1.PodListener{Scope: "Node"})
	for name, tc := range map[string]struct {
		world *world
		want  []string
	}{
		"class-based claim whose Listener does not exist": {classBased, []string{
			"application/merge-patch+json of *v1.Pod by listeners.stackable.tech",
			"apply, force true, by listeners.stackable.tech/volume", // the Listener
			"apply, force true, by listeners.stackable.tech/volume", // the PersistentVolume
			"create *v1alpha1.PodListeners by listeners.stackable.tech",
		}},
		"volume with all labels": {labelled, []string{
			"application/merge-patch+json of *v1.Pod by listeners.stackable.tech",
			"create *v1alpha1.PodListeners by listeners.stackable.tech",
		}},
		"changed address": {outdated, []string{
			"application/merge-patch+json of *v1alpha1.PodListeners by listeners.stackable.tech",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			_, _, err := tc.world.run(t, record)
			check.Must(t, err)
			slices.Sort(got)
			check.Equal(t, "writes", tc.want, got)
		})
	}
}

// A Pod or PersistentVolume may be replaced by another one of the same name after it was read. The uid is a
// precondition: the API server rejects the write for an object with another uid.
func TestPodAndVolumeAreOnlyLabelledIfTheirUIDMatches(t *testing.T) {
	var got []string
	_, _, err := newWorld().run(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := o.(*corev1.Pod); ok {
				raw, err := patch.Data(o)
				if err != nil {
					return err
				}
				got = append(got, string(raw))
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			raw, err := json.Marshal(o)
			if err != nil {
				return err
			}
			got = append(got, string(raw))
			return c.Apply(ctx, o, options...)
		},
	})
	check.Must(t, err)
	want := []string{
		`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"annotations":{"listeners.stackable.tech/node":"node-1"},` +
			`"labels":{"listeners.stackable.tech/listener-name":"web","listeners.stackable.tech/listener-namespace":"shop"},` +
			`"name":"pvc-claim-uid","uid":"pv-uid"}}`,
		`{"metadata":{"labels":{"listener.stackable.tech/mnt.aaaabbbb":"web"},"uid":"` + string(podUID) + `"}}`,
	}
	check.Equal(t, "writes", want, got)
}

// A cache that lags behind has neither the labels of the Pod nor the object that was created. The request for the
// object is repeated after a second, because it may have been deleted since.
func TestWritesThatTheCacheDoesNotHaveYetAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var writes []string
		recordWrites := before(func(verb string, o any) error {
			writes = append(writes, fmt.Sprintf("%s %T", verb, o))
			return nil
		})
		var stale *corev1.Pod // what the cache has, if it lags behind
		c := w.start(t, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				switch o := o.(type) {
				case *corev1.Pod:
					if stale != nil {
						stale.DeepCopyInto(o)
						return nil
					}
				case *listenersv1alpha1.PodListeners:
					if stale != nil {
						return apierrors.NewNotFound(schema.GroupResource{Resource: "podlisteners"}, key.Name)
					}
				}
				return c.Get(ctx, key, o, options...)
			},
			Create: recordWrites.Create,
			Patch:  recordWrites.Patch,
		})
		earlier := stored(t, c.client, w.Pod)
		for _, step := range []struct {
			name  string
			cause func()
			want  []string
			wait  time.Duration
		}{
			{"a new Pod", func() {}, []string{"patch *v1.Pod", "create *v1alpha1.PodListeners"}, 0},
			{"the cache lags behind", func() { stale = earlier }, nil, time.Second},
			{"the cache lags behind for longer", func() { time.Sleep(time.Second) }, []string{"create *v1alpha1.PodListeners"}, 0},
			{"the cache has everything", func() { stale = nil }, nil, 0},
		} {
			writes = nil
			step.cause()
			check.Equal(t, step.name+": looks again after", step.wait, c.reconcile().RequeueAfter)
			check.Equal(t, step.name+": writes", step.want, writes)
		}
	})
}
