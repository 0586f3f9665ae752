package retry_test

import (
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/retry"
)

func TestDelaysAreShortAfterALongOutage(t *testing.T) {
	limiter := retry.Limiter[int]()
	if soon := limiter.When(0); soon > 100*time.Millisecond {
		t.Errorf("the first delay is %s", soon)
	}
	for item := range 1000 { // many fail at once
		for range 100 {
			if late := limiter.When(item); late > 30*time.Second {
				t.Fatalf("a delay is %s", late)
			}
		}
	}
}

func TestEarliestWaitIsTheShortestThatIsPositive(t *testing.T) {
	for _, tc := range []struct {
		waits []time.Duration
		want  time.Duration
	}{
		{nil, 0}, {[]time.Duration{0, 0}, 0}, {[]time.Duration{1, 0}, 1}, {[]time.Duration{0, 2}, 2}, {[]time.Duration{1, 2, 3}, 1}, {[]time.Duration{3, 2, 1}, 1},
		{[]time.Duration{-1, 2}, 2}, {[]time.Duration{2, -1}, 2}, {[]time.Duration{-1, -1}, 0},
	} {
		if got := retry.Earliest(tc.waits...); got != tc.want {
			t.Errorf("the earliest of %v is %d, want %d", tc.waits, got, tc.want)
		}
	}
}
