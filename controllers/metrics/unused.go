package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// unusedDays are the numbers of days after which a Listener without Pods counts.
var unusedDays = []int{1, 7, 30}

// unusedListeners has the Listeners that no Pod mounts, and that take something from others. Event handlers keep it
// current. It is safe for concurrent use.
type unusedListeners struct {
	reader client.Reader
	clock  clock.PassiveClock

	mu     sync.Mutex
	unused map[types.NamespacedName]unused
}

// unused is what a Listener holds by its class, and since when no Pod has mounted it.
type unused struct {
	class, holds string
	since        time.Time
}

func newUnusedListeners(reader client.Reader, c clock.PassiveClock) *unusedListeners {
	return &unusedListeners{reader: reader, clock: c, unused: map[types.NamespacedName]unused{}}
}

// setListener handles a change of a Listener.
func (u *unusedListeners) setListener(ctx context.Context, listener *listenersv1alpha1.Listener, exists bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := client.ObjectKeyFromObject(listener)
	delete(u.unused, key)
	if !exists || listener.Status == nil || listener.Status.UnusedSince == nil || listener.Status.ServiceName == nil {
		return
	}
	class, err := lookup.Get(ctx, u.reader, client.ObjectKey{Name: listener.Class()}, &listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return
	}
	if holds := backends.All().Of(class).ScarceOf(class); holds != "" {
		u.unused[key] = unused{class.Name, holds, listener.Status.UnusedSince.Time}
	}
}

// collect takes time for each Listener that no Pod mounts.
func (u *unusedListeners) collect(collected chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	type series struct {
		class, holds string
		days         int
	}
	counts, now := map[series]int{}, u.clock.Now()
	for _, l := range u.unused {
		for _, days := range unusedDays {
			s := series{l.class, l.holds, days}
			counts[s] += 0 // present at zero
			if now.Sub(l.since) >= time.Duration(days)*24*time.Hour {
				counts[s]++
			}
		}
	}
	for s, n := range counts {
		collected <- prometheus.MustNewConstMetric(unusedCount, prometheus.GaugeValue, float64(n), s.class, s.holds, strconv.Itoa(s.days))
	}
}
