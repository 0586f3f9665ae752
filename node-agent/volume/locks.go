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
	used, release := l.use(target)
	used.mu.Lock()
	return func() {
		used.mu.Unlock()
		release()
	}
}

// tryLock is lock if the volume is not locked, and returns false otherwise.
func (l *locks) tryLock(target Target) (unlock func(), ok bool) {
	used, release := l.use(target)
	if !used.mu.TryLock() {
		release()
		return nil, false
	}
	return func() {
		used.mu.Unlock()
		release()
	}, true
}

// use returns the lock of a volume, which stays in memory until release is called.
func (l *locks) use(target Target) (used *lock, release func()) {
	target.Namespace = "" // is not known to all callers
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse == nil {
		l.inUse = map[Target]*lock{}
	}
	used = l.inUse[target]
	if used == nil {
		used = &lock{}
		l.inUse[target] = used
	}
	used.users++
	return used, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if used.users--; used.users == 0 {
			delete(l.inUse, target)
		}
	}
}
