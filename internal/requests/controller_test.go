package requests

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestDelaysAreShortAfterALongOutage(t *testing.T) {
	limiter := newLimiter()
	if soon := limiter.When(reconcile.Request{}); soon > 100*time.Millisecond {
		t.Errorf("the first delay is %s", soon)
	}
	for n := range 1000 { // many fail at once
		item := request("shop", n)
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
		if got := Earliest(tc.waits...); got != tc.want {
			t.Errorf("the earliest of %v is %d, want %d", tc.waits, got, tc.want)
		}
	}
}

func TestNothingIsLeftOfAWaitIfTheClockOfTheAPIServerDiffers(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ age, want time.Duration }{
		{0, time.Minute}, {time.Second, 59 * time.Second}, {time.Minute, 0}, {time.Hour, 0}, {-time.Second, 0}, {-time.Hour, 0},
	} {
		if got := Left(metav1.NewTime(now.Add(-tc.age)), time.Minute, now); got != tc.want {
			t.Errorf("%s is left of an object that is %s old, want %s", got, tc.age, tc.want)
		}
	}
}

func request(namespace string, n int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(n)}}
}
