// Package restart evicts Pods whose addresses have changed since they started, if their class says so. PodListeners
// record the addresses that a Pod started with, so nothing is forgotten when the operator restarts.
//
// It must never delete a Pod, nor evict one that nothing would replace, nor a second one of a controller before the
// first is replaced and ready, nor the successors of evicted Pods again and again, because an address does not settle.
package restart

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// Reconciler evicts Pods. The name of a request is the uid of the controller of Pods, or of a Pod that has none.
type Reconciler struct {
	Client client.Client
	// APIReader reads controllers and their Pods from the API server: the cache may not have the eviction before yet.
	APIReader client.Reader
	Events    events.EventRecorder
	Clock     clock.PassiveClock

	waiting  waiting
	restarts sync.Map
	// refusedSince has the time since which evictions of a controller's Pods are refused, by request.
	refusedSince sync.Map
}

const (
	// retryRefused is when a refused eviction is tried again: the API server does not say when. It doubles up to the
	// last one, because the cause is in the namespace, and must not delay the evictions of others.
	retryRefused     = 10 * time.Second
	lastRetryRefused = 5 * time.Minute
	// retryWaiting is when incomplete Pods are looked at again: the number that there should be is not watched.
	retryWaiting = time.Minute
)

// SetupWithManager registers the controller and its watches. Of the two workers, a namespace has one.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	isOutdated := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return changesOf(o.(*listenersv1alpha1.PodListeners)) != ""
	})
	changed := predicates.Changed(func(pod *corev1.Pod) any { return []any{claim.PodReady(pod), pod.Status.Phase} })
	b := requests.Controller(mgr, "restart", 2)
	requests.Watch(b, &listenersv1alpha1.PodListeners{}, r.podListenersToController, isOutdated)
	requests.Watch(b, &corev1.Pod{}, r.podToController, predicates.NotInInitialList(), changed)
	return b.Complete(requests.Requeue(mgr, "restart", r))
}

// Reconcile implements reconcile.Reconciler. A request has one worker at a time, which reads from the API server before
// each eviction: so no two Pods of a controller are evicted at a time.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	outdated, err := r.outdated(ctx, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(outdated) == 0 {
		r.refusedSince.Delete(req)
		return reconcile.Result{}, nil
	}
	set, err := r.replicaSet(ctx, req.Namespace, metav1.GetControllerOf(outdated[0].pod))
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case set == nil:
		return reconcile.Result{RequeueAfter: retryWaiting}, nil // to forget its Pods
	case set.unsupported != "":
		for i := range outdated {
			r.event(&outdated[i], listenersv1alpha1.ReasonNotEvicted, outdated[i].changes+
				"; it is not evicted, because "+set.unsupported)
		}
		return reconcile.Result{RequeueAfter: message.Repeat}, nil
	}
	last := r.lastRestart(req)
	next, blocked := set.next(outdated, last.replaced)
	if next == nil {
		log.FromContext(ctx).V(1).Info("Waiting with the next eviction", "reason", blocked)
		return reconcile.Result{RequeueAfter: retryWaiting}, nil
	}
	now := r.Clock.Now()
	if wait := last.pauseOf(next.pod, now); wait > 0 {
		r.event(next, listenersv1alpha1.ReasonEvictionDelayed,
			fmt.Sprintf("%s; the Pods of its controller were evicted for "+
				"an earlier change, so this one is not evicted before %s; find out why the address does not settle",
				next.changes, now.Add(wait).UTC().Format(time.RFC3339)))
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	evicted, err := r.evict(ctx, next)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !evicted:
		since, _ := r.refusedSince.LoadOrStore(req, now)
		return reconcile.Result{RequeueAfter: min(max(now.Sub(since.(time.Time)), retryRefused), lastRetryRefused)}, nil
	}
	r.refusedSince.Delete(req)
	r.recordRestart(req, next.pod, set.pods)
	return reconcile.Result{RequeueAfter: retryWaiting}, nil
}

type outdatedPod struct {
	pod     *corev1.Pod
	changes string
}

// outdated returns the outdated Pods of a controller, or the one Pod, and forgets the others.
func (r *Reconciler) outdated(ctx context.Context, req reconcile.Request) ([]outdatedPod, error) {
	var outdated []outdatedPod
	for _, name := range r.waiting.podListeners(req) {
		object, key := &listenersv1alpha1.PodListeners{}, types.NamespacedName{Namespace: req.Namespace, Name: name}
		if err := r.Client.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PodListeners %s: %w", key, err)
		}
		changes := changesOf(object)
		switch pod, err := podOf(ctx, r.Client, object); {
		case err != nil:
			return nil, err
		case changes == "" || pod == nil || request(pod) != req:
			r.waiting.remove(req, name)
		default:
			outdated = append(outdated, outdatedPod{pod, changes})
		}
	}
	return outdated, nil
}

func podOf(ctx context.Context, reader client.Reader, object *listenersv1alpha1.PodListeners) (*corev1.Pod, error) {
	if len(object.OwnerReferences) == 0 {
		return nil, nil //nolint:nilnil // the object is being replaced
	}
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.OwnerReferences[0].Name}
	return lookup.WithUID(ctx, reader, key, listenersv1alpha1.PodUID(object.Name), &corev1.Pod{})
}

// evict evicts a Pod, and reports whether it is gone. A PodDisruptionBudget that does not permit it is no error.
func (r *Reconciler) evict(ctx context.Context, next *outdatedPod) (evicted bool, _ error) {
	key := client.ObjectKeyFromObject(next.pod)
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(next.pod.UID))},
	}
	err := r.Client.SubResource("eviction").Create(ctx, next.pod, eviction)
	switch {
	case err == nil:
		evictions.WithLabelValues("evicted").Inc()
		log.FromContext(ctx).Info("Evicted a Pod", "Pod", key, "reason", next.changes)
		r.event(next, listenersv1alpha1.ReasonAddressChanged,
			next.changes+"; the Pod is evicted, as its ListenerClass states")
		return true, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, err // another Pod has the name, or the Pod has changed; requests.Requeue looks again
	}
	evictions.WithLabelValues("refused").Inc()
	r.event(next, listenersv1alpha1.ReasonEvictionRefused,
		fmt.Sprintf("%s; the eviction is refused, and repeated: %v", next.changes, err))
	if apierrors.IsTooManyRequests(err) {
		return false, nil
	}
	return false, fmt.Errorf("evicting Pod %s: %w", key, err)
}

func (r *Reconciler) event(outdated *outdatedPod, reason, text string) {
	r.Events.Eventf(outdated.pod, nil, reasons.EventType(reason), reason, "Evict", "%s",
		message.Printable(text, message.MaxEvent))
}

// changesOf returns which addresses of a Pod have changed since it started, or "".
func changesOf(object *listenersv1alpha1.PodListeners) string {
	var changes []string
	for _, volume := range object.Spec.NeedsRestart() {
		changes = append(changes, fmt.Sprintf("the address in volume %q was %s when the Pod started, and is %s now",
			volume, columns.Address(object.Spec.StartAddresses[volume]),
			columns.Address(object.Spec.Listeners[volume].IngressAddresses)))
	}
	return strings.Join(changes, "; ")
}

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
