package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// neverExpiring are times by which a lease is only ever passed on by a release, or within a Pod.
var neverExpiring = electionTimes{lease: 3 * time.Hour, renew: 2 * time.Hour, retry: 10 * time.Millisecond}

func TestLeaderOnOpenShiftSurvivesARestartOfTheAPIServer(t *testing.T) {
	// OpenShift's conventions demand one minute, and tolerate a clock skew of half a minute.
	times := election(true)
	if survives := times.renew - times.retry; survives < time.Minute {
		t.Errorf("the leader survives %s only", survives)
	}
	if want := (electionTimes{137 * time.Second, 107 * time.Second, 26 * time.Second}); times != want {
		t.Errorf("times are %v, want %v", times, want)
	}
	if defaults := election(false); defaults.lease >= times.lease || defaults.lease <= defaults.renew || defaults.renew <= defaults.retry {
		t.Errorf("on other clusters, times are %v", defaults)
	}
}

func TestARestartedContainerKeepsTheLeaseOfItsPod(t *testing.T) {
	namespace := leaseOfAKilledOperator(t, "operator-0_uid-0")
	restarted := startCandidate(t, namespace, "operator-0", "uid-0")
	restarted.awaitElected(t)
	lease := readLease(t, namespace)
	if got := *lease.Spec.HolderIdentity; got != "operator-0_uid-0" {
		t.Errorf("the lease is held by %q", got)
	}
	if *lease.Spec.LeaseTransitions != 7 {
		t.Errorf("there were %d transitions, want the 7 from before", *lease.Spec.LeaseTransitions)
	}
}

func TestAnotherPodWaitsForTheLeaseOfAKilledOperator(t *testing.T) {
	// Also a Pod of the same name, as a StatefulSet would have it.
	namespace := leaseOfAKilledOperator(t, "operator-0_uid-0")
	other := startCandidate(t, namespace, "operator-0", "uid-1")
	for range 5 { // attempts, with any of which a Pod with the lease would be elected
		select {
		case <-other.attempts:
		case <-time.After(apiserver.Timeout):
			t.Fatal("the other Pod does not try to be elected")
		}
	}
	select {
	case <-other.mgr.Elected():
		t.Error("another Pod was elected before the lease expired")
	default:
	}
}

func TestALeaderThatEndsReleasesItsLeaseAfterItsControllers(t *testing.T) {
	namespace := leaseOfAKilledOperator(t, "operator-0_uid-0")
	leader := startCandidate(t, namespace, "operator-0", "uid-0")
	leader.awaitElected(t)
	next := startCandidate(t, namespace, "operator-1", "uid-1")
	<-next.attempts

	leader.cancel()
	<-leader.ending
	if got := *readLease(t, namespace).Spec.HolderIdentity; got != "operator-0_uid-0" {
		t.Errorf("while a controller of the leader still runs, the lease is held by %q", got)
	}
	close(leader.mayEnd)
	next.awaitElected(t)
	if lease := readLease(t, namespace); *lease.Spec.HolderIdentity != "operator-1_uid-1" || *lease.Spec.LeaseTransitions != 8 {
		t.Errorf("after the leader has ended, the lease is %+v", lease.Spec)
	}
}

// leaseOfAKilledOperator creates a namespace with a lease that was renewed just now, and returns its name.
func leaseOfAKilledOperator(t *testing.T, holder string) string {
	t.Helper()
	namespace := apiserver.Namespace(t)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(neverExpiring.lease.Seconds())), LeaseTransitions: ptr.To[int32](7),
			AcquireTime: &now, RenewTime: &now,
		},
	}
	check.Must(t, apiserver.Client(t).Create(t.Context(), lease))
	return namespace
}

func readLease(t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	check.Must(t, apiserver.Client(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: names.Operator}, lease))
	return lease
}

// candidate is an operator with a single controller, which takes its time to end.
type candidate struct {
	mgr      manager.Manager
	cancel   context.CancelFunc
	attempts chan struct{} // receives from each reading of the lease
	ending   chan struct{} // closed when the controller was told to end
	mayEnd   chan struct{}
}

// startCandidate runs an operator until the test ends.
func startCandidate(t *testing.T, namespace, pod, uid string) *candidate {
	t.Helper()
	c := &candidate{attempts: make(chan struct{}), ending: make(chan struct{}), mayEnd: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	config := apiserver.Config(t)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := inner.RoundTrip(r)
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases/"+names.Operator) {
				select {
				case c.attempts <- struct{}{}:
				default:
				}
			}
			return response, err
		})
	})
	mgr, err := newManager(config, Options{
		Namespace: namespace, LeaderElection: true, PodName: pod, PodUID: uid, MetricsAddress: "0", HealthAddress: "0",
	}, neverExpiring)
	check.Must(t, err)
	c.mgr = mgr
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		close(c.ending)
		<-c.mayEnd
		return nil
	}))
	check.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- c.mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-c.mayEnd:
		default:
			close(c.mayEnd)
		}
		if err := <-done; err != nil {
			t.Error("running the manager: ", err)
		}
	})
	return c
}

func (c *candidate) awaitElected(t *testing.T) {
	t.Helper()
	select {
	case <-c.mgr.Elected():
	case <-time.After(apiserver.Timeout):
		t.Fatal("it is not elected")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
