package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The pause after the Pods of a controller were restarted, before the same replicas are restarted again: an address may
// not settle. It doubles from the first to the last, and is the first one again after twice the last without a restart,
// or when the operator restarts. A change restarts every Pod of a controller once, without delay.
const (
	firstPause = 5 * time.Minute
	lastPause  = time.Hour
)

// restart is the time in which each Pod of a controller is restarted once.
type restart struct {
	// newest is the time of creation of the newest Pod at the beginning. Pods that were created later have replaced
	// others, or were added. Both are times of the API server, whose clock may differ.
	newest metav1.Time
	began  time.Time
	pause  time.Duration
}

// replaced reports whether a Pod was created since the restart began.
func (r *restart) replaced(pod *corev1.Pod) bool {
	return r != nil && pod.CreationTimestamp.After(r.newest.Time)
}

// pauseOf returns how long a Pod must not be evicted yet, or not a positive time.
func (r *restart) pauseOf(pod *corev1.Pod, now time.Time) time.Duration {
	if !r.replaced(pod) {
		return 0
	}
	return r.began.Add(r.pause).Sub(now)
}

// lastRestart returns the last restart of a controller, or nil if that was long ago.
func (r *Reconciler) lastRestart(req reconcile.Request) *restart {
	last, ok := r.restarts.Load(req)
	if ok && r.Clock.Since(last.(*restart).began) < 2*lastPause {
		return last.(*restart)
	}
	r.restarts.CompareAndDelete(req, last)
	return nil
}

// recordRestart records the eviction of a Pod of a controller, which has these Pods, and forgets restarts of long ago.
func (r *Reconciler) recordRestart(req reconcile.Request, pod *corev1.Pod, pods []corev1.Pod) {
	r.restarts.Range(func(key, _ any) bool { r.lastRestart(key.(reconcile.Request)); return true })
	last := r.lastRestart(req)
	if last != nil && !last.replaced(pod) {
		return // the restart goes on
	}
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	next := &restart{newest: newest.CreationTimestamp, began: r.Clock.Now(), pause: firstPause}
	if last != nil {
		next.pause = min(2*last.pause, lastPause)
	}
	r.restarts.Store(req, next)
}
