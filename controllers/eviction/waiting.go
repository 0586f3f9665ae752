package eviction

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiting has the controllers with outdated Pods, for which events of their other Pods matter. After a restart of the
// operator, the watch of PodListeners fills it again.
type waiting struct {
	mu          sync.Mutex
	controllers map[reconcile.Request]*waitingController
}

// waitingController has the names of the PodListeners of a controller's outdated Pods, and the time since which their
// evictions are refused, or zero.
type waitingController struct {
	podListeners sets.Set[string]
	refusedSince time.Time
}

// add adds an outdated Pod of a controller.
func (w *waiting) add(req reconcile.Request, podListeners string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.controllers == nil {
		w.controllers = map[reconcile.Request]*waitingController{}
	}
	if w.controllers[req] == nil {
		w.controllers[req] = &waitingController{podListeners: sets.New[string]()}
	}
	w.controllers[req].podListeners.Insert(podListeners)
}

// remove removes a Pod that is not outdated any more.
func (w *waiting) remove(req reconcile.Request, podListeners string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.controllers[req]; c != nil {
		if c.podListeners.Delete(podListeners); len(c.podListeners) == 0 {
			delete(w.controllers, req)
		}
	}
}

// podListeners returns the names of the PodListeners of a controller's outdated Pods, sorted.
func (w *waiting) podListeners(req reconcile.Request) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.controllers[req]; c != nil {
		return slices.Sorted(maps.Keys(c.podListeners))
	}
	return nil
}

// refused records that an eviction was refused, and returns how long to wait until the next one: as long as evictions
// have been refused before. A zero time records that one was not.
func (w *waiting) refused(req reconcile.Request, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.controllers[req]
	if c == nil {
		return retryRefused
	}
	if c.refusedSince.IsZero() || now.IsZero() {
		c.refusedSince = now
	}
	return min(max(now.Sub(c.refusedSince), retryRefused), lastRetryRefused)
}
