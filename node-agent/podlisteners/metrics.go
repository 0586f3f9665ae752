package podlisteners

import "github.com/prometheus/client_golang/prometheus"

func newRelists() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "listener_node_agent_relists_total",
		Help: "How often the agent listed all addresses again because its watch did not show what exists.",
	})
}
