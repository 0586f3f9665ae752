package eviction

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The pause after the Pods of a controller were restarted, before the same replicas are restarted again. It doubles
// from the first to the last, and is the first one again after twice the last without a restart.
const (
	firstPause = 5 * time.Minute
	lastPause  = time.Hour
)

// pauses bound how often an address that does not settle restarts Pods. A change restarts every Pod of a controller
// once, without delay; a Pod that was created since has to wait. They are lost when the operator restarts, and the
// bound then starts again.
type pauses struct {
	clock clock.PassiveClock
	last  sync.Map // the last restart, by request
}

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

// of returns the last restart of a controller, or nil if that was long ago.
func (p *pauses) of(req reconcile.Request) *restart {
	if last, ok := p.last.Load(req); ok && p.clock.Since(last.(*restart).began) < 2*lastPause {
		return last.(*restart)
	}
	p.last.Delete(req)
	return nil
}

// until returns when a Pod of a controller may be evicted.
func (p *pauses) until(req reconcile.Request, pod *corev1.Pod) time.Time {
	if last := p.of(req); last.replaced(pod) {
		return last.began.Add(last.pause)
	}
	return p.clock.Now()
}

// record records that a Pod of a controller was evicted, which has these Pods. It forgets controllers that had no
// restart for long.
func (p *pauses) record(req reconcile.Request, pod *corev1.Pod, pods []corev1.Pod) {
	p.last.Range(func(key, _ any) bool { p.of(key.(reconcile.Request)); return true })
	last := p.of(req)
	if last != nil && !last.replaced(pod) {
		return // the restart goes on
	}
	next := &restart{began: p.clock.Now(), pause: firstPause}
	if last != nil {
		next.pause = min(2*last.pause, lastPause)
	}
	next.newest = slices.MaxFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }).CreationTimestamp
	p.last.Store(req, next)
}
