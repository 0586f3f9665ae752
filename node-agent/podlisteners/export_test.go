package podlisteners

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// SetObjectTimeout sets how long to wait for a PodListeners object that does not exist.
func (w *Watch) SetObjectTimeout(timeout time.Duration) { w.objectTimeout = timeout }

// SetLagTimeout sets how long an object that exists may take to arrive by the watch.
func (w *Watch) SetLagTimeout(timeout time.Duration) { w.lagTimeout = timeout }

// Objects returns the number of objects in the cache.
func (w *Watch) Objects() int { return len(w.objects.List()) }

// Relists returns how often all objects were listed again.
func (w *Watch) Relists() float64 {
	var m dto.Metric
	_ = w.relists.Write(&m)
	return m.GetCounter().GetValue()
}

// Waiters returns the number of PodListeners objects for which calls of Addresses wait.
func (w *Watch) Waiters() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}

// SetCheckInterval sets how often all published volumes are checked.
func (s *Syncer) SetCheckInterval(interval time.Duration) { s.checkInterval = interval }

// Check checks all published volumes once, asynchronously.
func (s *Syncer) Check(ctx context.Context) { s.check(ctx) }

// Receive does what an event with an object does.
func (w *Watch) Receive(o *listenersv1alpha1.PodListeners) error {
	if _, err := trim(o); err != nil {
		return err
	}
	if err := w.objects.Add(o); err != nil {
		return err
	}
	w.changed(o)
	return nil
}

// Sync updates the volumes of the Pod of an object.
func (s *Syncer) Sync(ctx context.Context, o *listenersv1alpha1.PodListeners) error {
	return s.sync(ctx, cache.MetaObjectToName(o))
}

// List lists all objects of the node.
func (w *Watch) List(ctx context.Context) (*listenersv1alpha1.PodListenersList, error) {
	list, err := w.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.(*listenersv1alpha1.PodListenersList), nil
}
