package listener

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// idleLater is a period after which it is reported that no Pod mounts the Listener. Tests of other periods ignore it.
const idleLater = 24 * time.Hour

// operator is a Reconciler on a fake API server with the objects of a state. Its clock is fake, and its periods are
// those of production, except idleLater.
type operator struct {
	*Reconciler
	t        *testing.T
	backends backends.List
	api      client.WithWatch // of the test
	client   client.WithWatch // of the Reconciler
	recorder *events.FakeRecorder
	now      *clocktesting.FakePassiveClock
	writes   *[]string // of the Reconciler, as far as they reach the API server
}

func (s *state) operator(t *testing.T, intercept interceptor.Funcs) *operator {
	t.Helper()
	counting, writes := countWrites(-1, nil)
	o := &operator{
		t: t, backends: s.backends, api: s.newClient(t), recorder: events.NewFakeRecorder(1000),
		now: clocktesting.NewFakePassiveClock(time.Now()), writes: writes,
	}
	o.client = interceptor.NewClient(interceptor.NewClient(o.api, counting), intercept)
	o.restart()
	o.settler.Idle = idleLater
	return o
}

// newReconciler returns a Reconciler for a cluster that serves all kinds of the backends.
func newReconciler(list backends.List, c client.WithWatch, recorder events.EventRecorder) *Reconciler {
	r := &Reconciler{Client: fakeclient.Cached(c, "operators"), Events: recorder, Backends: list}
	r.initialize(clock.RealClock{})
	for _, backend := range list {
		for _, kind := range backend.Kinds() {
			r.reader.Kinds.Readers[kind.GroupVersionKind] = servedKind{c, kind.Version}
		}
	}
	return r
}

// restart replaces the process of the operator by one that knows only what the API server has.
func (o *operator) restart() {
	before := o.Reconciler
	o.Reconciler = newReconciler(o.backends, o.client, o.recorder)
	o.settler.Nodes, o.settler.Started = settling.NewNodes(o.now), sync.OnceValue(o.now.Now)
	o.settler.Clock = o.now
	if before != nil {
		o.settler.Idle = before.settler.Idle
	}
}

// try reconciles a Listener as the API server has it, and returns the requested requeue.
func (o *operator) try(listener client.ObjectKey) (time.Duration, error) {
	o.t.Helper()
	l := &listenersv1alpha1.Listener{}
	if err := o.api.Get(o.t.Context(), listener, l); err != nil {
		o.t.Fatal(err)
	}
	result, err := o.Reconcile(o.t.Context(), l)
	if result.RequeueAfter > idleLater/2 {
		result.RequeueAfter = 0
	}
	return result.RequeueAfter, err
}

// reconcile reconciles a Listener without an error, and returns how it is then.
func (o *operator) reconcile(name string) *listenersv1alpha1.Listener {
	o.t.Helper()
	if _, err := o.try(client.ObjectKey{Namespace: key.Namespace, Name: name}); err != nil {
		o.t.Fatal(err)
	}
	return get[listenersv1alpha1.Listener](o, name)
}

// reconcileAfter advances the clock, reconciles, and returns the requested requeue and the writes.
func (o *operator) reconcileAfter(d time.Duration) (requeueAfter time.Duration, writes []string) {
	o.t.Helper()
	o.now.SetTime(o.now.Now().Add(d))
	before := len(*o.writes)
	requeueAfter, err := o.try(key)
	if err != nil {
		o.t.Fatal(err)
	}
	return requeueAfter, (*o.writes)[before:]
}

func (o *operator) listener() *listenersv1alpha1.Listener {
	o.t.Helper()
	return get[listenersv1alpha1.Listener](o, key.Name)
}

// find returns an object of the Listener's namespace, or of none, or nil.
func find[T any, O interface {
	*T
	client.Object
}](o *operator, name string) O {
	o.t.Helper()
	object, namespaced := O(new(T)), client.ObjectKey{Namespace: key.Namespace, Name: name}
	switch any(object).(type) {
	case *corev1.Node, *corev1.PersistentVolume, *listenersv1alpha1.ListenerClass:
		namespaced.Namespace = ""
	}
	if err := o.api.Get(o.t.Context(), namespaced, object); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		o.t.Fatal(err)
	}
	return object
}

// get is find for an object that exists.
func get[T any, O interface {
	*T
	client.Object
}](o *operator, name string) O {
	o.t.Helper()
	object := find[T, O](o, name)
	if object == nil {
		o.t.Fatalf("%T %s does not exist", object, name)
	}
	return object
}

// change changes an object, and lets the watches of Nodes and classes see it.
func change[T any, O interface {
	*T
	client.Object
}](o *operator, name string, change func(O)) {
	o.t.Helper()
	object := get[T, O](o, name)
	o.observe(object)
	change(object)
	changed := object.DeepCopyObject().(client.Object) // the response to the first update has the previous status
	if err := o.api.Update(o.t.Context(), object); err != nil {
		o.t.Fatal(err)
	}
	changed.SetResourceVersion(object.GetResourceVersion())
	switch any(object).(type) {
	case *corev1.Service, *corev1.Node, *networkingv1.Ingress:
		if err := o.api.Status().Update(o.t.Context(), changed); err != nil {
			o.t.Fatal(err)
		}
	}
	o.observe(changed)
}

func (o *operator) observe(object client.Object) {
	switch object := object.(type) {
	case *corev1.Node:
		o.nodeToListeners(o.t.Context(), object)
	case *listenersv1alpha1.ListenerClass:
		o.classToListeners(o.t.Context(), object)
	}
}

func (o *operator) create(objects ...client.Object) {
	o.t.Helper()
	o.each(objects, func(ctx context.Context, object client.Object) error { return o.api.Create(ctx, object) })
}

func (o *operator) delete(objects ...client.Object) {
	o.t.Helper()
	o.each(objects, func(ctx context.Context, object client.Object) error { return o.api.Delete(ctx, object) })
}

func (o *operator) each(objects []client.Object, do func(context.Context, client.Object) error) {
	o.t.Helper()
	for _, object := range objects {
		if err := do(o.t.Context(), object); err != nil {
			o.t.Fatal(err)
		}
	}
}

// wantRequeue checks the requeue that a reconciliation after d requests.
func (o *operator) wantRequeue(d, requeueAfter time.Duration) {
	o.t.Helper()
	if got, _ := o.reconcileAfter(d); got != requeueAfter {
		o.t.Errorf("got a requeue after %s, want %s", got, requeueAfter)
	}
}

// events returns the events since the last call.
func (o *operator) events() (all []string) {
	for len(o.recorder.Events) > 0 {
		all = append(all, <-o.recorder.Events)
	}
	return all
}
