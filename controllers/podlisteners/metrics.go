package podlisteners

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// withdrawn counts objects that would have misled a node agent, or would have let it wait for a Pod that is leaving.
var withdrawn = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "listener_operator_withdrawn_podlisteners_total",
	Help: "Number of PodListeners that the operator deleted, because they did not match their Pod, or the Pod was " +
		"deleted before it had an address.",
})

// repairedPods counts repairs of labels, which are at most one a second for a Pod.
var repairedPods = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "listener_operator_repaired_pod_labels_total",
	Help: "Number of times that the operator added labels of Listeners again, which something had removed from a Pod.",
})

func init() { metrics.Registry.MustRegister(withdrawn, repairedPods) }
