package requests

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

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
