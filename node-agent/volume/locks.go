package volume

import "sync"

// locks is a mutex per volume. Only those in use are in memory.
type locks struct {
	mu    sync.Mutex
	inUse map[Target]*lock
}

type lock struct {
	mu    sync.Mutex
	users int
}

// lock locks a volume, and returns the function that unlocks it.
func (l *locks) lock(target Target) (unlock func()) {
	target.Namespace = "" // is not known to all callers
	l.mu.Lock()
	if l.inUse == nil {
		l.inUse = map[Target]*lock{}
	}
	used := l.inUse[target]
	if used == nil {
		used = &lock{}
		l.inUse[target] = used
	}
	used.users++
	l.mu.Unlock()

	used.mu.Lock()
	return func() {
		used.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if used.users--; used.users == 0 {
			delete(l.inUse, target)
		}
	}
}
