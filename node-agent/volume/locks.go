package volume

import "sync"

// locks are one mutex for each volume that is being worked on.
type locks struct {
	mu   sync.Mutex
	held map[Target]*lock
}

type lock struct {
	mu    sync.Mutex
	users int
}

// lock locks one volume, and returns what unlocks it.
func (l *locks) lock(target Target) (unlock func()) {
	target.Namespace = "" // not everyone who works on the volume knows it
	l.mu.Lock()
	if l.held == nil {
		l.held = map[Target]*lock{}
	}
	one := l.held[target]
	if one == nil {
		one = &lock{}
		l.held[target] = one
	}
	one.users++
	l.mu.Unlock()

	one.mu.Lock()
	return func() {
		one.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, target)
		}
	}
}
