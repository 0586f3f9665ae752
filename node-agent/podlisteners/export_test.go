package podlisteners

// Waiters returns the number of PodListeners objects for which calls of Addresses wait.
func (w *Watch) Waiters() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}
