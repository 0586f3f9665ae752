package certificates_test

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var many = flag.Int("requests", 500, "how many requests a namespace has at once, whose decisions are measured")

// One namespace has them all before the operator starts, and another one comes last, with one.
func TestATenantWithManyRequestsDelaysNobody(t *testing.T) {
	const (
		before   = 50      // that may be decided before the other one: each worker may have begun some
		memory   = 4 << 10 // bytes for each request
		overhead = 32 << 20
	)
	w, neighbour := newWorld(t), newWorld(t)
	pod, other := w.pod("web-0", "own@"+names.Driver), neighbour.pod("web-0", "own@"+names.Driver)
	w.publish(pod, map[string]string{"own": "web-0:203.0.113.7"})
	neighbour.publish(other, map[string]string{"own": "web-0:203.0.113.7"})
	stub := w.newRequest(pod, names.Signer, nil)
	creators := errgroup.Group{}
	creators.SetLimit(16)
	for range *many {
		creators.Go(func() error { return w.Create(t.Context(), stub.DeepCopy()) })
	}
	w.Expect(creators.Wait()).To(Succeed())
	last := neighbour.request(other, names.Signer, nil)

	heap := heapInUse()
	start := time.Now()
	w.start(clock.RealClock{})
	neighbour.issued(last)
	waited := time.Since(start)
	var all certificatesv1.PodCertificateRequestList
	w.Eventually(func() (decided int, _ error) {
		err := w.List(t.Context(), &all, client.InNamespace(w.Namespace))
		for i := range all.Items {
			decided += min(len(all.Items[i].Status.Conditions), 1)
		}
		return decided, err
	}).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Equal(*many))
	took := time.Since(start)
	earlier := 0
	for i := range all.Items {
		if version(t, &all.Items[i]) < version(t, last) {
			earlier++
		}
	}
	all.Items = nil
	grown := heapInUse() - heap
	t.Logf("%d requests were decided within %s, %.0f a second; that of the other namespace after %s, after %d others; the heap grew by %d KiB",
		*many, took.Round(time.Millisecond), float64(*many)/took.Seconds(), waited.Round(time.Millisecond), earlier, grown>>10)
	if earlier > before {
		t.Errorf("the other namespace waited for %d requests", earlier)
	}
	if grown > overhead+int64(*many)*memory {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// version returns when an object was last written.
func version(t *testing.T, o client.Object) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	check.Must(t, err)
	return v
}

func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc) //nolint:gosec // a size
}
