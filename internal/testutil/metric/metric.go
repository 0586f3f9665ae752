// Package metric reads metrics.
//
// Only tests may import it.
package metric

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// Value returns the sum of the series of a registered counter or gauge, which all tests of a binary share.
func Value(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
