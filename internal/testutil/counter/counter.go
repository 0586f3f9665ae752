// Package counter reads Prometheus counters.
//
// Only tests may import it.
package counter

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Value returns the sum of the series of a registered counter. Tests compare it with the value before, because all
// tests of a binary share it.
func Value(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
		return sum
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
