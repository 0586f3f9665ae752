//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// Running Pods are not affected, and a Pod that was created meanwhile starts when the operator is back.
func TestPodsRunWhileTheOperatorIsDown(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("before", byClass(class.Name)))
	_, before := s.awaitReachable("before")
	s.scaleOperator(0)
	s.create(pod("meanwhile", byClass(class.Name)))
	s.awaitAnswer(before, "before")
	s.scaleOperator(1)
	s.awaitReachable("meanwhile")
	s.awaitAnswer(before, "before")
}

// A StatefulSet is deleted without its Pod while the operator is away. When that is back, the Pod ends, and the next
// one gets the address.
func TestAKeptAddressStaysWhileTheOperatorIsDown(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	inline := byClass(class.Name)
	inline[names.AttributeKeep] = "true"
	volumes := map[string]corev1.Volume{
		"inline": objects.InlineVolume("listener", inline), "claim": objects.EphemeralVolume("listener", byClass(class.Name)),
	}
	before, listeners := map[string]listenersv1alpha1.IngressAddress{}, map[string]*listenersv1alpha1.Listener{}
	sets, pods := map[string]*appsv1.StatefulSet{}, map[string]*corev1.Pod{}
	create := func(kind string) {
		sets[kind] = statefulSet(kind, 1, nil)
		sets[kind].Spec.VolumeClaimTemplates, sets[kind].Spec.Template.Spec.Volumes = nil, []corev1.Volume{volumes[kind]}
		s.create(sets[kind])
	}
	for kind := range volumes {
		create(kind)
		pods[kind], before[kind] = s.awaitReachable(kind + "-0")
		listeners[kind] = s.awaitListener(kind+"-0-listener", 1)
	}
	s.scaleOperator(0)
	for _, set := range sets {
		s.removeAndAwait(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}
	s.scaleOperator(1)
	for kind := range volumes {
		mustAwait(s, &listenersv1alpha1.Listener{}, s.key(kind+"-0-listener"), func(l *listenersv1alpha1.Listener) bool { return len(l.OwnerReferences) == 0 })
		s.removeAndAwait(pods[kind])
		create(kind)
		_, after := s.awaitReachable(kind+"-0", pods[kind])
		if listener := s.awaitListener(kind+"-0-listener", 1); listener.UID != listeners[kind].UID || !cmp.Equal(before[kind], after) {
			t.Errorf("%s: the address was %+v, and is %+v; Listener %+v", kind, before[kind], after, listener)
		}
	}
}

// The container that replaces a killed one serves Pods without waiting until the old lease expires, because the leader
// is the Pod. After an expiry the lease would have another transition.
func TestAKilledOperatorKeepsItsLease(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	before := s.operatorLease()
	operator, awaitRestart := s.killOperator()
	awaitRestart()
	s.create(pod("after", byClass(class.Name)))
	s.awaitReachable("after")
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
	return mustGet(s, &coordinationv1.Lease{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
}

// operatorPod waits until the operator's Pod is ready, and returns it.
func (s *scenario) operatorPod() (operator *corev1.Pod) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		pods, err := podsOf(ctx, "operator")
		for i := range pods {
			if pods[i].DeletionTimestamp == nil && isReady(&pods[i]) {
				operator = &pods[i]
				return nil
			}
		}
		return errors.Join(errors.New("the operator has no ready Pod"), err)
	})
	return operator
}

// killOperator kills the program of the operator's Pod, which it returns, with a function that waits until the
// container that replaces it is ready.
func (s *scenario) killOperator() (operator *corev1.Pod, awaitRestart func()) {
	s.Helper()
	operator = s.operatorPod()
	s.killOnNode(operator.Spec.NodeName, "/operator")
	return operator, func() {
		s.Helper()
		mustAwait(s, &corev1.Pod{}, client.ObjectKeyFromObject(operator), func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].RestartCount > operator.Status.ContainerStatuses[0].RestartCount && isReady(p)
		})
	}
}

// killOnNode kills the programs of containers on a node whose command line starts like this.
func (s *scenario) killOnNode(node, command string) {
	s.Helper()
	if output, err := testbed.NodeCommand(s.ctx, nodeNumber(node), "pkill", "-KILL", "-f", "^"+command).CombinedOutput(); err != nil {
		s.Fatalf("killing %s on %s: %v: %s", command, node, err, output)
	}
}

// scaleOperator scales the operator, and waits until it has stopped if that is to zero.
func (s *scenario) scaleOperator(replicas int32) {
	s.Helper()
	operator := mustGet(s, &appsv1.Deployment{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
	s.patch(operator, func() { operator.Spec.Replicas = &replicas })
	if replicas > 0 {
		return
	}
	s.eventually(func(ctx context.Context) error { // its Pods do not count as replicas while they end
		pods, err := podsOf(ctx, "operator")
		if len(pods) > 0 {
			return fmt.Errorf("the operator has %d Pods", len(pods))
		}
		return err
	})
}

// operatorPods returns the restart counts of the operator's Pods by uid.
func (s *scenario) operatorPods() map[string]int32 {
	s.Helper()
	pods, err := podsOf(s.ctx, "operator")
	s.must(err)
	restarts := map[string]int32{}
	for _, p := range pods {
		if p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) > 0 {
			restarts[string(p.UID)] = p.Status.ContainerStatuses[0].RestartCount
		}
	}
	return restarts
}

// awaitRestartedOn waits until those of the operator's Pods that are on a node, which has just started, have restarted:
// a later scenario would take that for a restart of its own.
func (s *scenario) awaitRestartedOn(node string, before map[string]int32) {
	s.Helper()
	options := &client.ListOptions{
		Namespace: operatorNamespace, LabelSelector: labels.SelectorFromSet(labels.Set{componentLabel: "operator"}),
	}
	for uid, restarts := range before {
		if _, err := watchUntil(s.timeoutContext(), &corev1.Pod{}, options, func(kind watch.EventType, p *corev1.Pod) bool {
			return string(p.UID) == uid && (kind == watch.Deleted || p.Spec.NodeName != node || isReady(p) && p.Status.ContainerStatuses[0].RestartCount > restarts)
		}); err != nil {
			s.Fatal(err)
		}
	}
}
