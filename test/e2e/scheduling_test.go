//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
)

// A Pod for a node without an agent is not bound to it, and others start elsewhere. When the agent of the node is
// there, the Pod starts at once.
func TestNoPodStartsOnANodeBeforeItsAgent(t *testing.T) {
	s := newScenario(t)
	driver := mustGet(s, &storagev1.CSIDriver{}, client.ObjectKey{Name: names.Driver})
	if driver.Spec.PreventPodSchedulingIfMissing == nil {
		t.Skip("needs CSIDriver.spec.preventPodSchedulingIfMissing, which is on by default as of Kubernetes 1.37")
	}
	config, class := s.configuration(), s.createClass(unpinned())
	node := testbed.NodeName(testbed.Nodes()[0])
	awaitAgent := func(registered bool) {
		t.Helper()
		mustAwait(s, &storagev1.CSINode{}, client.ObjectKey{Name: node}, func(n *storagev1.CSINode) bool {
			return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == names.Driver }) == registered
		})
	}
	s.patch(config, func() { config.Spec.NodeAgent.Affinity = notOn(node) })
	t.Cleanup(func() {
		s := s.within(t)
		s.ctx = context.WithoutCancel(s.ctx)
		s.patch(config, func() { config.Spec.NodeAgent.Affinity = nil })
	})
	awaitAgent(false)

	early := pod("early", byClass(class.Name))
	early.Spec.NodeSelector = onNode(node)
	s.create(early)
	mustAwait(s, &corev1.Pod{}, s.key("early"), func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, names.Driver+" CSI driver is not installed on the node")
		})
	})
	s.create(pod("elsewhere", byClass(class.Name)))
	if p, _ := s.awaitReachable("elsewhere"); p.Spec.NodeName == node {
		t.Errorf("a Pod runs on %s, which has no agent", node)
	}

	s.patch(config, func() { config.Spec.NodeAgent.Affinity = nil })
	awaitAgent(true)
	s.awaitReachable("early")
}
