package eviction

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// SetupWithManager registers the controller and its watches. Of the two workers, a namespace has one.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	isOutdated := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return changesOf(o.(*listenersv1alpha1.PodListeners)) != ""
	})
	changed := predicates.Changed(func(pod *corev1.Pod) any { return []any{claim.PodReady(pod), pod.Status.Phase} })
	return requests.Controller(mgr, "restart", 2).
		Watches(&listenersv1alpha1.PodListeners{}, handler.EnqueueRequestsFromMapFunc(r.podListenersToController), builder.WithPredicates(isOutdated)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.podToController), builder.WithPredicates(predicates.NotInInitialList(), changed)).
		Complete(requests.Requeue(mgr, "restart", r))
}

// podListenersToController maps the PodListeners of an outdated Pod to the controller of the Pod.
func (r *Reconciler) podListenersToController(ctx context.Context, o client.Object) []reconcile.Request {
	pod, err := podOf(ctx, r.Client, o.(*listenersv1alpha1.PodListeners))
	if err != nil {
		log.FromContext(ctx).Error(err, "Reading from the cache")
	}
	if pod == nil {
		return nil // there is nothing to restart
	}
	r.waiting.add(request(pod), o.GetName())
	return []reconcile.Request{request(pod)}
}

// podToController maps a Pod to its controller, if that has outdated Pods.
func (r *Reconciler) podToController(_ context.Context, o client.Object) []reconcile.Request {
	req := request(o.(*corev1.Pod))
	if len(r.waiting.podListeners(req)) == 0 {
		return nil
	}
	return []reconcile.Request{req}
}

// request returns the request for the controller of a Pod, or for a Pod that has none.
func request(pod *corev1.Pod) reconcile.Request {
	uid := pod.UID
	if owner := metav1.GetControllerOf(pod); owner != nil {
		uid = owner.UID
	}
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: string(uid)}}
}

// waiting has the names of the PodListeners of outdated Pods, by their controllers. For these, events of their other
// Pods matter. After a restart of the operator, the watch of PodListeners fills it again.
type waiting struct {
	mu          sync.Mutex
	controllers map[reconcile.Request]sets.Set[string]
}

func (w *waiting) add(req reconcile.Request, podListeners string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controllers == nil {
		w.controllers = map[reconcile.Request]sets.Set[string]{}
	}
	if w.controllers[req] == nil {
		w.controllers[req] = sets.New[string]()
	}
	w.controllers[req].Insert(podListeners)
}

// remove removes a Pod that is not outdated any more.
func (w *waiting) remove(req reconcile.Request, podListeners string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controllers[req].Delete(podListeners); len(w.controllers[req]) == 0 {
		delete(w.controllers, req)
	}
}

// podListeners returns the names of the PodListeners of a controller's outdated Pods, sorted.
func (w *waiting) podListeners(req reconcile.Request) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sets.List(w.controllers[req])
}
