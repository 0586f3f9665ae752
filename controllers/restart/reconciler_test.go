package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

var (
	first  = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: "IP", Ports: map[string]int32{"http": 80}}}
	second = []listenersv1alpha1.IngressAddress{{Address: "192.0.2.2", AddressType: "IP", Ports: map[string]int32{"http": 80}}}
)

// world is the shared one, with the controller of the Pod.
type world struct {
	*objects.World
	set client.Object
	// start and now are the addresses of the Pod when it started, and now.
	start, now []listenersv1alpha1.IngressAddress
	// refused is the error of the eviction.
	refused error
}

// newWorld returns a ready Pod of a StatefulSet with one replica, whose address has changed.
func newWorld() *world {
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "set"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	w := &world{World: objects.NewWorld(), set: set, start: first, now: second}
	w.Pod.Labels, w.Pod.Status = labels, replica("web-0", true).Status
	w.Pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	return w
}

// run reconciles the controller of the Pod once, with the requests that its objects map to, and returns the names of
// the Pods that were evicted, and the events.
func (w *world) run(t *testing.T) (evicted, recorded []string, _ reconcile.Result, _ error) {
	t.Helper()
	object := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(w.Pod), w.Pod.UID, "node-1")
	object.Spec.Listeners["listener"] = listenersv1alpha1.PodListener{IngressAddresses: w.now}
	object.Spec.StartAddresses = map[string][]listenersv1alpha1.IngressAddress{"listener": w.start}
	object.Spec.RestartOnChange = []string{"listener"}
	objects := []client.Object{w.Pod, object}
	if w.set != nil {
		objects = append(objects, w.set)
	}
	c := fakeclient.New(t, interceptor.Funcs{SubResourceCreate: func(
		_ context.Context, _ client.Client, subresource string, pod, o client.Object, _ ...client.SubResourceCreateOption,
	) error {
		if uid := o.(*policyv1.Eviction).DeleteOptions.Preconditions.UID; subresource != "eviction" || *uid != pod.GetUID() {
			t.Errorf("%s of %s with the uid %v", subresource, pod.GetName(), uid)
		}
		evicted = append(evicted, pod.GetName())
		return w.refused
	}}, objects...)
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: fakeclient.Cached(c, "operators"), APIReader: c, Events: recorder, Clock: clock.RealClock{}}
	requests := r.podListenersToController(t.Context(), object)
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	result, err := r.Reconcile(t.Context(), requests[0])
	if waits := len(r.podToController(t.Context(), w.Pod)) == 1; waits != (changesOf(object) != "") {
		t.Errorf("the controller waits for events of its Pods: %t", waits)
	}
	close(recorder.Events)
	for e := range recorder.Events {
		recorded = append(recorded, e)
	}
	return evicted, recorded, result, err
}

func TestOutdatedPods(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	notFound := apierrors.NewNotFound(corev1.Resource("pods"), "web-0")
	controlledBy := func(apiVersion, kind string) func(*world) {
		return func(w *world) { w.Pod.OwnerReferences[0].APIVersion, w.Pod.OwnerReferences[0].Kind = apiVersion, kind }
	}
	for name, tc := range map[string]struct {
		change func(*world)
		// requests is whether an eviction is requested, event are words of the event, and again is when it is tried
		// again.
		requests bool
		event    []string
		again    time.Duration
	}{
		"of a StatefulSet are evicted": {func(*world) {}, true, []string{
			"Normal AddressChanged", `the address in volume "listener" was 192.0.2.1:80 when the Pod started, and is 192.0.2.2:80 now`, "evicted",
		}, retryWaiting},
		"of a ReplicaSet are evicted": {func(w *world) {
			set := w.set.(*appsv1.StatefulSet)
			w.set = &appsv1.ReplicaSet{ObjectMeta: set.ObjectMeta, Spec: appsv1.ReplicaSetSpec{Replicas: set.Spec.Replicas, Selector: set.Spec.Selector}}
			controlledBy("apps/v1", "ReplicaSet")(w)
		}, true, []string{"AddressChanged"}, retryWaiting},
		"of a DaemonSet are evicted": {func(w *world) {
			set := w.set.(*appsv1.StatefulSet)
			w.set = &appsv1.DaemonSet{
				ObjectMeta: set.ObjectMeta, Spec: appsv1.DaemonSetSpec{Selector: set.Spec.Selector}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1},
			}
			controlledBy("apps/v1", "DaemonSet")(w)
		}, true, []string{"AddressChanged"}, retryWaiting},
		"without a controller are not evicted": {func(w *world) { w.Pod.OwnerReferences = nil }, false, []string{
			"Warning NotEvicted", "was 192.0.2.1:80", "no controller would replace it",
		}, 30 * time.Minute},
		"of another controller are not evicted": {controlledBy("batch/v1", "Job"), false, []string{
			"Warning NotEvicted", "its controller is a Job of batch/v1", "restart the Pod by the means of web",
		}, 30 * time.Minute},
		"of a StatefulSet of another group are not evicted": {controlledBy("example.com/v1", "StatefulSet"), false, []string{"NotEvicted", "example.com/v1"}, 30 * time.Minute},
		"whose controller does not exist are not evicted":   {func(w *world) { w.set = nil }, false, nil, retryWaiting},
		"whose controller is another one are not evicted":   {func(w *world) { w.set.SetUID("another") }, false, nil, retryWaiting},
		"wait until there are as many as there should be": {func(w *world) {
			w.set.(*appsv1.StatefulSet).Spec.Replicas = ptr.To[int32](2)
		}, false, nil, retryWaiting},
		"that a budget protects wait": {func(w *world) { w.refused = budget }, true, []string{
			"Warning EvictionRefused", "was 192.0.2.1:80", "would violate the pod's disruption budget",
		}, retryRefused},
		"that are gone need no eviction": {func(w *world) { w.refused = notFound }, true, nil, retryWaiting},
		"whose address is the first one again are not evicted": {func(w *world) {
			w.now = first
		}, false, nil, 0},
		"whose address is withdrawn are not evicted": {func(w *world) {
			w.now = nil
		}, false, nil, 0},
		"whose start is not known are not evicted": {func(w *world) {
			w.start = nil
		}, false, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			evicted, recorded, result, err := w.run(t)
			if err != nil || (len(evicted) == 1) != tc.requests || result.RequeueAfter != tc.again {
				t.Errorf("evicted %v, again after %s, %v", evicted, result.RequeueAfter, err)
			}
			if tc.event == nil && len(recorded) != 0 || tc.event != nil && len(recorded) != 1 {
				t.Fatalf("events %q", recorded)
			}
			for _, words := range tc.event {
				if !strings.Contains(recorded[0], words) {
					t.Errorf("the event does not contain %q: %s", words, recorded[0])
				}
			}
		})
	}
}

// Two PodDisruptionBudgets for one Pod are a mistake of the user, which an event names; the error is repeated with
// backoff.
func TestAnEvictionThatFailsIsAnError(t *testing.T) {
	w := newWorld()
	w.refused = apierrors.NewInternalError(errors.New("found more than one PodDisruptionBudget"))
	_, recorded, _, err := w.run(t)
	if err == nil || !strings.Contains(err.Error(), "evicting Pod shop/web-0") {
		t.Errorf("error is %v", err)
	}
	if len(recorded) != 1 || !strings.Contains(recorded[0], "more than one PodDisruptionBudget") {
		t.Errorf("events %q", recorded)
	}
}

func TestPodListenersOfAnotherPodIsIgnored(t *testing.T) {
	w := newWorld()
	c := fakeclient.New(t, interceptor.Funcs{}, w.Pod)
	r := &Reconciler{Client: c, APIReader: c, Clock: clock.RealClock{}}
	for name, uid := range map[string]types.UID{"of an earlier Pod of the same name": "earlier", "without owner": ""} {
		object := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(w.Pod), uid, "node-1")
		if uid == "" {
			object.OwnerReferences = nil
		}
		if requests := r.podListenersToController(t.Context(), object); len(requests) != 0 {
			t.Errorf("%s: %d requests", name, len(requests))
		}
	}
}
