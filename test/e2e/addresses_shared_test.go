//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Several Pods share a Listener that publishes only those that are ready. Its addresses answer each request while a Pod
// restarts, and while a node is drained. When a node dies, those of the other nodes answer each request as soon as
// Kubernetes has noticed.
func TestASharedAddressLosesNoRequests(t *testing.T) {
	if *faults != "all" {
		t.Skip("needs the flag -faults=all, because it takes two minutes")
	}
	s := newScenario(t)
	dying, _ := s.startNode()
	class := s.createClass(unpinned())
	s.create(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName: &class.Name, Ports: []listenersv1alpha1.ListenerPort{port("http", 8080, corev1.ProtocolTCP)},
			PublishNotReadyAddresses: ptr.To(false),
		},
	})
	set := statefulSet("web", 4, byName("shared"))
	spread(set)
	// A Pod that ends continues to answer until each node has noticed.
	template := &set.Spec.Template.Spec
	template.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	template.TerminationGracePeriodSeconds = ptr.To[int64](10)
	s.create(set)
	byNode := map[int]*corev1.Pod{}
	for i := range 4 {
		p := s.awaitReady(fmt.Sprintf("web-%d", i))
		byNode[nodeOf(p)] = p
	}
	var shared []listenersv1alpha1.IngressAddress
	for _, a := range s.awaitListener("shared", 4).Status.IngressAddresses {
		if a.Address != testbed.NodeIP(dying) {
			shared = append(shared, a)
		}
	}
	s.awaitAnswersInARow(shared)

	s.checkNoneLost("a Pod restarts", shared, func() {
		s.remove(byNode[1])
		byNode[1] = s.awaitReady(byNode[1].Name, byNode[1])
	})
	s.checkNoneLost("a node is drained", shared, func() {
		uncordon := s.cordon(2)
		s.must(api.SubResource("eviction").Create(s.ctx, byNode[2], &policyv1.Eviction{}))
		s.awaitReplaced(byNode[2])
		uncordon()
		s.awaitReady(byNode[2].Name, byNode[2])
	})

	s.must(testbed.StopNode(s.ctx, dying))
	mustAwait(s, &corev1.Pod{}, client.ObjectKeyFromObject(byNode[dying]), func(p *corev1.Pod) bool { return !isReady(p) })
	s.awaitAnswersInARow(shared)
	s.checkNoneLost("a node is dead", shared, func() { s.awaitAnswersInARow(shared) })
}

// awaitReplaced waits until another Pod of a Pod's name exists.
func (s *scenario) awaitReplaced(p *corev1.Pod) {
	s.Helper()
	mustAwait(s, &corev1.Pod{}, client.ObjectKeyFromObject(p), func(again *corev1.Pod) bool { return again.UID != p.UID })
}

// inARow is the number of requests to an address that prove that it leads to Pods which answer: a Service with a dead
// Pod among four passes with a probability of 1 : 5,000.
const inARow = 30

// awaitAnswersInARow waits until each of the addresses answers many requests in a row, because nodes follow a Service
// with a delay that no watch shows.
func (s *scenario) awaitAnswersInARow(addresses []listenersv1alpha1.IngressAddress) {
	s.Helper()
	for _, a := range addresses {
		s.eventually(func(ctx context.Context) error {
			for range inARow {
				if _, err := request(ctx, a, "/whoami"); err != nil {
					return fmt.Errorf("from outside, %s: %w", a.Address, err)
				}
			}
			return nil
		})
	}
}

// checkNoneLost requests the addresses again and again while something happens, and reports requests without an answer.
func (s *scenario) checkNoneLost(what string, addresses []listenersv1alpha1.IngressAddress, happens func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	var requests, lost atomic.Int64
	var last atomic.Value
	for _, a := range addresses {
		running.Go(func() {
			wait.UntilWithContext(ctx, func(context.Context) {
				// With the context of the scenario: a request that was sent has to be answered.
				if _, err := requestWith(s.ctx, patientClient, a, "/whoami"); err != nil {
					lost.Add(1)
					last.Store(fmt.Sprintf("%s: %v", a.Address, err))
				}
				requests.Add(1)
			}, 10*time.Millisecond)
		})
	}
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	defer stop() // also if what happens ends the scenario
	happens()
	stop()
	s.Logf("%s: %d of %d requests lost", what, lost.Load(), requests.Load())
	if lost.Load() > 0 {
		s.Errorf("while %s, %d of %d requests are lost; the last one: %v", what, lost.Load(), requests.Load(), last.Load())
	}
	if requests.Load() < inARow {
		s.Errorf("while %s, there are only %d requests", what, requests.Load())
	}
}
