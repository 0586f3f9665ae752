package settle

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Since has since when states last, by keys that name them. They start again after a restart, and expire.
type Since struct {
	*cache.Expiring
	Clock clock.PassiveClock
}

// Keys of Since, by the UID of a Listener or the name of a class.
type (
	Completed       types.UID // its addresses are complete, with this backend, while a previous exposure exists
	incomplete      types.UID // it publishes fewer addresses than it will have
	unpublished     types.UID // it has other addresses than the published ones
	Unresponsive    types.UID // nothing responds at its addresses
	usedNodes       types.UID // its Pods are on these nodes, while others are unused
	Deallocation    types.UID // of the node ports or cluster IPs of its deleted Service, for which it waits
	kept            types.UID // it is kept without a Pod, by these owners
	changedListener types.UID
	ChangedClass    string
	Reference       types.UID // an object that backends only read has this generation
)

type period struct {
	state string
	since time.Time
}

// Mark makes a key have been seen now.
func (x *Since) Mark(key any) { x.Set(key, period{since: x.Clock.Now()}, time.Hour) }

// Age returns for how long a key has had a state: 0, unless the last call named the same state.
func (x *Since) Age(key any, state string) time.Duration {
	if last, ok := x.Get(key); ok && last.(period).state == state {
		return x.Clock.Since(last.(period).since)
	}
	x.Set(key, period{state, x.Clock.Now()}, time.Hour)
	return 0
}

// Differs reports whether the last call for a key named another state.
func (x *Since) Differs(key any, state string) bool {
	last, known := x.Get(key)
	x.Age(key, state)
	return known && last.(period).state != state
}
