package restart

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// flapping is a StatefulSet whose controller replaces evicted Pods at once, and whose address the test changes.
type flapping struct {
	*testing.T
	client.Client
	*Reconciler
	clock *testingclock.FakePassiveClock
	// ahead is by how much the clock of the API server is ahead.
	ahead    time.Duration
	template corev1.Pod
	events   chan string
	// refused is the error of evictions.
	refused error
	// pods has the number of Pods by name, evicted how often one of them was evicted, and address is the present one.
	pods, evicted map[string]int
	address       []listenersv1alpha1.IngressAddress
}

// newFlapping returns a StatefulSet with this number of Pods.
func newFlapping(t *testing.T, replicas int32, ahead time.Duration) *flapping {
	w := newWorld()
	set := w.set.(*appsv1.StatefulSet)
	set.Spec.Replicas = &replicas
	recorder := events.NewFakeRecorder(10000)
	f := &flapping{
		T: t, clock: testingclock.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), ahead: ahead, template: *w.Pod, events: recorder.Events,
		pods: map[string]int{}, evicted: map[string]int{}, address: first,
	}
	c := fakeclient.New(t, interceptor.Funcs{SubResourceCreate: func(
		_ context.Context, _ client.Client, _ string, pod, _ client.Object, _ ...client.SubResourceCreateOption,
	) error {
		f.evicted[pod.GetName()]++
		return f.refused
	}}, set)
	f.Client, f.Reconciler = c, &Reconciler{Client: fakeclient.Cached(c, "operators"), APIReader: c, Events: recorder, Clock: f.clock}
	for i := range replicas {
		f.replace(fmt.Sprintf("web-%d", i))
	}
	return f
}

// replace replaces a Pod by one that starts with the present address.
func (f *flapping) replace(name string) {
	f.Helper()
	pod := f.template.DeepCopy()
	pod.Name, pod.UID = name, types.UID(name+"-"+strconv.Itoa(f.pods[name]))
	if f.pods[name] > 0 {
		f.must(f.Delete(f.Context(), pod))
		f.must(f.Delete(f.Context(), listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), types.UID(name+"-"+strconv.Itoa(f.pods[name]-1)), "node-1")))
	}
	f.pods[name]++
	pod.CreationTimestamp = metav1.NewTime(f.clock.Now().Add(f.ahead))
	object := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, "node-1")
	object.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{IngressAddresses: f.address}
	object.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": f.address}
	object.Spec.RestartOnChange = []string{"listener"}
	f.must(f.Create(f.Context(), pod))
	f.must(f.Create(f.Context(), object))
}

// setAddress changes the address of all Pods.
func (f *flapping) setAddress(address []listenersv1alpha1.IngressAddress) {
	f.Helper()
	f.address = address
	var all listenersv1alpha1.PodListenersList
	f.must(f.List(f.Context(), &all))
	for i := range all.Items {
		all.Items[i].Spec.Listeners["listener"] = listenersv1alpha1.PodListener{IngressAddresses: address}
		f.must(f.Update(f.Context(), &all.Items[i]))
		f.podListenersToController(f.Context(), &all.Items[i])
	}
}

// change changes the address of all Pods, and reconciles until no Pod is evicted.
func (f *flapping) change(address []listenersv1alpha1.IngressAddress) {
	f.Helper()
	f.setAddress(address)
	for evicted := true; evicted; {
		before := maps.Clone(f.evicted)
		f.reconcile()
		evicted = false
		for name, count := range f.evicted {
			if count != before[name] {
				evicted = true
				f.replace(name)
			}
		}
	}
}

// reconcile reconciles the StatefulSet once, and returns when it is reconciled again.
func (f *flapping) reconcile() time.Duration {
	f.Helper()
	result, err := f.Reconcile(f.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "set"}})
	f.must(err)
	return result.RequeueAfter
}

func (f *flapping) must(err error) {
	f.Helper()
	check.Must(f, err)
}

// A node, or the controller of a load balancer, that changes an address every other minute restarts each Pod once, and
// then after pauses that grow to an hour: 9 times in six hours, rather than 180 times. A change after that restarts
// each Pod at once again. The clock of the API server does not matter.
func TestAnAddressThatDoesNotSettleRestartsPodsRarely(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"with equal clocks": 0, "while the clock of the API server is an hour ahead": time.Hour, "or behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := newFlapping(t, 2, ahead)
			for change := range 180 {
				f.clock.SetTime(f.clock.Now().Add(2 * time.Minute))
				f.change([][]listenersv1alpha1.IngressAddress{second, first}[change%2])
				if most := f.evicted["web-0"]; change == 0 && most != 1 {
					t.Fatalf("%d evictions for the first change", most)
				}
			}
			for name, count := range f.evicted {
				if count != 9 {
					t.Errorf("%s was evicted %d times", name, count)
				}
			}
			if delayed := nextEvent(f.events, listenersv1alpha1.ReasonEvictionDelayed); !strings.Contains(delayed, "is not evicted before 20") {
				t.Error("no event says why a Pod is not evicted")
			}

			settled := f.evicted["web-1"]
			f.clock.SetTime(f.clock.Now().Add(2 * lastPause))
			f.change([]listenersv1alpha1.IngressAddress{{Address: "192.0.2.3", AddressType: "IP"}})
			if f.evicted["web-1"] != settled+1 {
				t.Errorf("evicted %d times for a change after a while", f.evicted["web-1"]-settled)
			}
		})
	}
}

// A user may have written a budget that permits none.
func TestEvictionsThatAreRefusedAreRepeatedRarely(t *testing.T) {
	f := newFlapping(t, 1, 0)
	f.refused = apierrors.NewTooManyRequests("the budget permits none", 0)
	f.setAddress(second)
	for end := f.clock.Now().Add(time.Hour); f.clock.Now().Before(end); {
		f.clock.SetTime(f.clock.Now().Add(f.reconcile()))
	}
	if count := f.evicted["web-0"]; count != 17 {
		t.Errorf("%d evictions were requested in an hour", count)
	}
	f.refused = nil
	f.reconcile()
	f.replace("web-0")
	f.refused = apierrors.NewTooManyRequests("another one", 0)
	f.clock.SetTime(f.clock.Now().Add(lastPause))
	f.setAddress(first)
	if again := f.reconcile(); again != retryRefused {
		t.Errorf("the first refusal after an eviction is repeated after %s", again)
	}
}

// A namespace may have thousands of others.
func TestOnlyTheOutdatedPodsOfAControllerAreRead(t *testing.T) {
	f := newFlapping(t, 3, 0)
	reads := 0
	f.Reconciler.Client = interceptor.NewClient(f.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, ok := o.(*listenersv1alpha1.PodListeners); ok {
				reads++
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			t.Errorf("a %T is read", list)
			return nil
		},
	})
	f.reconcile()
	if reads != 0 {
		t.Errorf("%d PodListeners are read while none is outdated", reads)
	}
	f.setAddress(second)
	f.reconcile()
	if reads != 3 {
		t.Errorf("%d PodListeners are read for 3 outdated Pods", reads)
	}
}

// nextEvent returns the next event with the reason, or "".
func nextEvent(recorded <-chan string, reason string) string {
	for {
		select {
		case e := <-recorded:
			if strings.Contains(e, reason) {
				return e
			}
		default:
			return ""
		}
	}
}

// Users choose which Pods the selector of a controller selects, and how large they are.
func TestPodsAreReadInPages(t *testing.T) {
	w := newWorld()
	pages := 0
	c := fakeclient.New(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		pods, isPods := list.(*corev1.PodList)
		o := (&client.ListOptions{}).ApplyOptions(options)
		if !isPods {
			return c.List(ctx, list, options...)
		}
		pages++
		switch {
		case o.Limit == 0 || o.Limit > 20:
			t.Errorf("%d Pods are read at once", o.Limit)
		case o.Continue == "":
			pods.Continue = "next"
		default:
			pods.Items = []corev1.Pod{*w.Pod}
		}
		return nil
	}}, w.set)
	r := &Reconciler{APIReader: c, Clock: clock.RealClock{}}
	set, err := r.replicaSet(t.Context(), "shop", metav1.GetControllerOf(w.Pod))
	if err != nil || pages != 2 || len(set.pods) != 1 || set.pods[0].UID != w.Pod.UID {
		t.Errorf("%d pages, %v, %v", pages, set, err)
	}
}
