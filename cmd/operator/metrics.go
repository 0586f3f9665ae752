package main

import "github.com/prometheus/client_golang/prometheus"

func (m *metricsCertificate) expiry() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "listener_operator_metrics_certificate_expiry_timestamp_seconds",
		Help: "When the serving certificate for metrics expires, in seconds since 1970. It is 0 if the certificate " +
			"cannot be read.",
	}, func() float64 {
		pair, err := m.get(nil)
		if err != nil || pair.Leaf == nil {
			return 0
		}
		return float64(pair.Leaf.NotAfter.Unix())
	})
}
