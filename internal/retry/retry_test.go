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
