// Package metric reads metrics.
//
// Only tests may import it.
package metric

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// Value returns the sum of the series of a registered counter or gauge, which all tests of a binary share.
func Value(t testing.TB, name string) (sum float64) {
	t.Helper()
	for _, value := range Series(t, name) {
		sum += value
	}
	return sum
}

// Series returns the series of a registered counter or gauge. Their keys are the values of the labels, in the order of
// the names of the labels, with spaces in between.
func Series(t testing.TB, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	series := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			series[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return series
}
