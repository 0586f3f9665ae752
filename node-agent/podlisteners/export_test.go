package podlisteners

// Waiters is how many volumes wait for addresses.
func (w *Watch) Waiters() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}
