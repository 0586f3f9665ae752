package result_test

import (
	"testing"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	values := []float64{40, 10, 30, 20}
	for q, want := range map[float64]float64{0: 10, 0.25: 10, 0.5: 20, 0.51: 30, 0.9: 40, 0.99: 40, 1: 40} {
		if got := result.Quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := result.Quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v", got)
	}
}
