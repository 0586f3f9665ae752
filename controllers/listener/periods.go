package listener

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// periods is since when a state of Listeners lasts, by their UID. They start again after a restart, and expire.
type periods struct {
	*cache.Expiring
	clock clock.PassiveClock
}

func newPeriods(c clock.PassiveClock) periods { return periods{cache.NewExpiring(), c} }

type period struct {
	state string
	since time.Time
}

// age returns for how long a Listener has been in a state: 0, unless the last call named the same state.
func (p periods) age(listener types.UID, state string) time.Duration {
	if last, ok := p.Get(listener); ok && last.(period).state == state {
		return p.clock.Since(last.(period).since)
	}
	p.Set(listener, period{state, p.clock.Now()}, time.Hour)
	return 0
}
