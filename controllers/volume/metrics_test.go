package volume

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestWaitingClaimsAreCountedByReason(t *testing.T) {
	collector := &waitingCollector{desc: waitingClaimsMetric.desc}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	gather := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		return got
	}
	if got := gather(); len(got) > 0 {
		t.Errorf("while the provisioner does not run: %v", got)
	}
	list := func() []pendingClaim {
		return []pendingClaim{{reason: "ClassNotFound"}, {reason: "ClassNotFound"}, {reason: "InvalidName"}}
	}
	collector.list.Store(&list)
	got := gather()
	if got["ClassNotFound"] != 2 || got["InvalidName"] != 1 {
		t.Errorf("got %v", got)
	}
	if n, ok := got["InvalidClaim"]; !ok || n != 0 {
		t.Errorf("a frequent reason that no claim has is not present at zero: %v", got)
	}
}
