//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// TestPodsRunWhileTheOperatorIsDown: running Pods are not affected, and a Pod that was created meanwhile starts when
// the operator is back.
func TestPodsRunWhileTheOperatorIsDown(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("before", map[string]map[string]string{"listener": byClass(class.Name)}))
	before := s.awaitPodListener(s.awaitReady("before"), "listener").IngressAddresses[0]
	operator := &appsv1.Deployment{}
	s.get(operator, client.ObjectKey{Namespace: operatorNamespace, Name: "listener-operator"})
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](0) })
	if _, err := await(s.timeoutContext(), &appsv1.Deployment{}, client.ObjectKeyFromObject(operator),
		func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 }); err != nil {
		t.Fatal(err)
	}
	s.create(pod("meanwhile", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(before, "before")
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](1) })
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("meanwhile"), "listener").IngressAddresses[0], "meanwhile")
	s.awaitAnswer(before, "before")
}

// TestAKilledOperatorKeepsItsLease: the container that replaces a killed one serves Pods without waiting until the old
// lease expires, because the leader is the Pod. After an expiry the lease would have another transition.
func TestAKilledOperatorKeepsItsLease(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	operator := s.operatorPod()
	before := s.operatorLease()
	restarts := operator.Status.ContainerStatuses[0].RestartCount
	s.killOnNode(operator.Spec.NodeName, "/operator")
	if _, err := await(s.timeoutContext(), &corev1.Pod{}, client.ObjectKeyFromObject(operator), func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount > restarts && isReady(p)
	}); err != nil {
		t.Fatal(err)
	}
	s.create(pod("after", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.awaitAnswer(s.awaitPodListener(s.awaitReady("after"), "listener").IngressAddresses[0], "after")
	after := s.operatorLease()
	if !strings.HasSuffix(*after.Spec.HolderIdentity, "_"+string(operator.UID)) || *after.Spec.HolderIdentity != *before.Spec.HolderIdentity {
		t.Errorf("the lease was held by %q and is held by %q", *before.Spec.HolderIdentity, *after.Spec.HolderIdentity)
	}
	if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions || !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
		t.Errorf("the lease was acquired again: it was %+v and is %+v", before.Spec, after.Spec)
	}
}

// operatorLease returns the lease of leader election.
func (s *scenario) operatorLease() *coordinationv1.Lease {
	s.Helper()
	lease := &coordinationv1.Lease{}
	s.get(lease, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
	return lease
}

// operatorPod waits until the operator's Pod is ready, and returns it.
func (s *scenario) operatorPod() (operator *corev1.Pod) {
	s.Helper()
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := api.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "operator"}); err != nil {
			return fmt.Errorf("listing the operator's Pods: %w", err)
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil && isReady(&pods.Items[i]) {
				operator = &pods.Items[i]
				return nil
			}
		}
		return errors.New("the operator has no ready Pod")
	})
	if err != nil {
		s.Fatal(err)
	}
	return operator
}

// killOnNode kills the programs of containers on a node whose command line starts like this.
func (s *scenario) killOnNode(node, command string) {
	s.Helper()
	if output, err := testbed.NodeCommand(s.ctx, nodeNumber(node), "pkill", "-KILL", "-f", "^"+command).CombinedOutput(); err != nil {
		s.Fatalf("killing %s on %s: %v: %s", command, node, err, output)
	}
}

// operatorPods returns the restart counts of the operator's Pods by uid.
func (s *scenario) operatorPods() map[string]int32 {
	s.Helper()
	var pods corev1.PodList
	if err := api.List(s.ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "operator"}); err != nil {
		s.Fatal(err)
	}
	restarts := map[string]int32{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) == 0 {
			continue
		}
		restarts[string(p.UID)] = p.Status.ContainerStatuses[0].RestartCount
	}
	return restarts
}

// awaitRestartedOn waits until those of the operator's Pods that are on a node, which has just started, have restarted:
// a later scenario would take that for a restart of its own.
func (s *scenario) awaitRestartedOn(node string, before map[string]int32) {
	s.Helper()
	options := &client.ListOptions{
		Namespace: operatorNamespace, LabelSelector: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/component": "operator"}),
	}
	for uid, restarts := range before {
		if _, err := watchUntil(s.timeoutContext(), &corev1.Pod{}, options, func(kind watch.EventType, p *corev1.Pod) bool {
			return string(p.UID) == uid && (kind == watch.Deleted || p.Spec.NodeName != node || isReady(p) && p.Status.ContainerStatuses[0].RestartCount > restarts)
		}); err != nil {
			s.Fatal(err)
		}
	}
}
