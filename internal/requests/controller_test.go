package requests

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func TestANamespaceWithManyRequestsDelaysOthersByOne(t *testing.T) {
	queue := newQueue("", newLimiter())
	defer queue.ShutDown()
	for n := range 10_000 {
		queue.Add(request("busy", n))
	}
	queue.Add(request("quiet", 0))
	queue.Add(request("quiet", 1))
	queue.Add(request("other", 0))
	var got []reconcile.Request
	for range 6 {
		next, _ := queue.Get()
		queue.Done(next)
		got = append(got, next)
	}
	want := []reconcile.Request{
		request("busy", 0), request("quiet", 0), request("other", 0), request("busy", 1), request("quiet", 1), request("busy", 2),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestARequestThatComesBackWaitsForItsTurn: a namespace whose requests are added again while they are processed does
// not keep the workers.
func TestARequestThatComesBackWaitsForItsTurn(t *testing.T) {
	queue := newQueue("", newLimiter())
	defer queue.ShutDown()
	queue.Add(request("busy", 0))
	next, _ := queue.Get()
	queue.Add(request("quiet", 0))
	queue.Add(next)
	queue.Add(next)
	queue.Done(next)
	if got, _ := queue.Get(); got != request("quiet", 0) {
		t.Errorf("got %v before the request of the other namespace", got)
	}
	if got, _ := queue.Get(); got != next {
		t.Errorf("got %v instead of the request that was added again", got)
	}
	queue.Done(next)
	if queue.Len() != 0 {
		t.Errorf("%d requests are left", queue.Len())
	}
}

func TestEveryRequestIsHandedOutOnce(t *testing.T) {
	queue := newQueue("", newLimiter())
	defer queue.ShutDown()
	want := map[reconcile.Request]int{}
	for n := range 1000 {
		r := request(fmt.Sprint(n%7), n%100)
		queue.Add(r)
		want[r] = 1
	}
	got := map[reconcile.Request]int{}
	for queue.Len() > 0 {
		next, _ := queue.Get()
		queue.Done(next)
		got[next]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
