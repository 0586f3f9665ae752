package podlisteners

// Waiters is how many volumes wait for addresses.
func (w *Watch) Waiters() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}

// Remembered is how many Pods a Keeper remembers something of.
func (k *Keeper) Remembered() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.lost) + len(k.asked)
}
