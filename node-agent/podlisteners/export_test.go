package podlisteners

import (
	"context"
	"time"
)

// SetObjectTimeout sets how long to wait for a PodListeners object that does not exist.
func (w *Watch) SetObjectTimeout(timeout time.Duration) { w.objectTimeout = timeout }

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
