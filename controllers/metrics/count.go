package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// count counts objects by the values of labels. An object counts once for each of its sets of values. A set that no
// object has any more stays at zero, as Prometheus expects.
type count struct {
	gauge  *prometheus.GaugeVec
	labels func(client.Object) [][]string

	mu sync.Mutex
	// counted are the sets with which an object counts, by uid.
	counted map[types.UID][][]string
}

func newCount(gauge *prometheus.GaugeVec, labels func(client.Object) [][]string) *count {
	return &count{gauge: gauge, labels: labels, counted: map[types.UID][][]string{}}
}

// handler returns the handler of the events of an informer.
func (c *count) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.set(o, true) },
		UpdateFunc: func(_, o any) { c.set(o, true) },
		DeleteFunc: func(o any) { c.set(o, false) },
	}
}

// set counts an object as it is now, or not any more.
func (c *count) set(o any, exists bool) {
	if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := object.GetUID()
	for _, values := range c.counted[uid] {
		c.gauge.WithLabelValues(values...).Dec()
	}
	delete(c.counted, uid)
	if !exists {
		return
	}
	if sets := c.labels(object); len(sets) > 0 {
		c.counted[uid] = sets
		for _, values := range sets {
			c.gauge.WithLabelValues(values...).Inc()
		}
	}
}
