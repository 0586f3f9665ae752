//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// After a power cut the volume directories are still filled, and the same Pods run again at their addresses.
func TestANodeRestartsWithItsPods(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p, own := s.awaitReachable("broker-0")
	node := nodeOf(p)
	refused, ownOfRefused := s.refuseLater(p.Spec.NodeName)
	s.must(testbed.StopNode(s.ctx, node))
	if _, err := request(s.timeoutContext(), own, "/whoami"); err == nil {
		t.Error("the Pod answers although its node is stopped")
	}
	s.must(testbed.StartNode(s.ctx, node))
	s.awaitAnswer(own, "broker-0")
	if after := s.awaitReady("broker-0"); after.UID != p.UID {
		t.Errorf("the Pod was replaced: its uid was %s and is %s", p.UID, after.UID)
	}
	s.checkFilesAt(own)
	s.awaitAnswer(ownOfRefused, refused.Name)
	if after := s.awaitReady(refused.Name); after.UID != refused.UID {
		t.Errorf("the Pod that would be refused today was replaced: its uid was %s and is %s", refused.UID, after.UID)
	}
	s.checkFilesAt(ownOfRefused)
	s.must(testbed.Ready(s.timeoutContext()))
}

// refuseLater returns a Pod with an inline volume and its address, whose StatefulSet is deleted without it, and whose
// class no longer permits such volumes.
func (s *scenario) refuseLater(node string) (*corev1.Pod, listenersv1alpha1.IngressAddress) {
	s.Helper()
	class := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{"inline": unpinned()})["inline"]
	set := statefulSet("cache", 1, nil)
	set.Spec.VolumeClaimTemplates, set.Spec.Template.Spec.NodeSelector = nil, onNode(node)
	set.Spec.Template.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", byClass(class.Name))}
	s.create(set)
	p, own := s.awaitReachable("cache-0")
	s.remove(set, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	s.patch(class, func() { class.Spec.PinnedNodePorts = true })
	s.awaitEvent("Pod", p.Name, listenersv1alpha1.ReasonInvalidVolume, "the next Pod will be refused")
	return p, own
}

// A running Pod is not affected, and the volume of another Pod can be mounted.
func TestTheKubeletRestarts(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p := s.awaitReady("broker-0")
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	s.must(errors.Join(testbed.StopKubelet(s.ctx, nodeOf(p)), testbed.StartKubelet(s.ctx, nodeOf(p))))
	s.awaitAnswer(own, "broker-0")
	next := pod("next", byClass(class.Name))
	next.Spec.NodeSelector = onNode(p.Spec.NodeName)
	s.create(next)
	s.awaitReachable("next")
	s.checkNotRestarted(p)
}

// Addresses that changed while no agent ran on the node are written when it runs again.
func TestAnAgentUpdatesVolumesAfterItsRestart(t *testing.T) {
	s := newScenario(t)
	spec := loadBalanced()
	spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
	class := s.createClass(spec)
	s.create(pod("web", byClass(class.Name)))
	service := mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool { return nodePort(service, "http") > 0 })
	s.assignAddress(service, "192.0.2.30")
	p := s.awaitReady("web")
	through := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(nodeOf(p)), Ports: map[string]int32{"http": nodePort(service, "http")}}
	s.awaitAnswer(through, "web")

	agent := s.agentOn(p.Spec.NodeName)
	s.remove(agent, client.GracePeriodSeconds(0)) // killed without a graceful shutdown
	s.assignAddress(service, "192.0.2.40")
	s.awaitNewAgent(agent)
	want := listenersv1alpha1.IngressAddress{Address: "192.0.2.40", Ports: map[string]int32{"http": 8080, "echo": 9090}}
	s.awaitFilesAt(through, want)
}

// A Pod is force-deleted while the kubelet is stopped, and its directory is removed when the kubelet runs again.
func TestADeletedPodIsCleanedUpWhenTheKubeletRestarts(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", byClass(class.Name)))
	p := s.awaitReady("web")
	s.must(testbed.StopKubelet(s.ctx, nodeOf(p)))
	s.removeAndAwait(p, client.GracePeriodSeconds(0))
	mustAwaitDeleted(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	s.must(testbed.StartKubelet(s.ctx, nodeOf(p)))
	s.awaitPodDirRemoved(p)
}

// TestANodeGetsItsLabelBackFromANewAgent: another client has removed the label of the driver, and the remedy is
// followed to the letter.
func TestANodeGetsItsLabelBackFromANewAgent(t *testing.T) {
	s := newScenario(t)
	key := client.ObjectKey{Name: testbed.NodeName(testbed.Nodes()[0])}
	node := mustAwait(s, &corev1.Node{}, key, isLabelled)
	agent := s.agentOn(node.Name)
	s.patch(node, func() { delete(node.Labels, names.TopologyKey) })
	missing := reasons.Of(reasons.NodeLabelMissing)
	_, command, found := strings.Cut(missing.For("", node.Name), "kubectl ")
	if !found {
		t.Fatalf("the remedy has no command: %s", missing.Remedy)
	}
	_, err := kubectl(s.ctx, strings.Fields(command)...)
	s.must(err)
	s.awaitNewAgent(agent)
	mustAwait(s, node, key, isLabelled)
}

// isLabelled reports whether a node has the label by which the scheduler finds the node of a pinned volume.
func isLabelled(node *corev1.Node) bool { return node.Labels[names.TopologyKey] == node.Name }

// agentOn returns the Pod of the node agent on a node.
func (s *scenario) agentOn(node string) *corev1.Pod {
	s.Helper()
	agents, err := podsOf(s.ctx, "node-agent")
	for i := range agents {
		if agents[i].Spec.NodeName == node && agents[i].DeletionTimestamp == nil {
			return &agents[i]
		}
	}
	s.Fatalf("no agent on %s: %v", node, err)
	return nil
}

// awaitNewAgent waits until another agent than the given one is ready on its node.
func (s *scenario) awaitNewAgent(old *corev1.Pod) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		agents, err := podsOf(ctx, "node-agent")
		for i := range agents {
			if a := &agents[i]; a.Spec.NodeName == old.Spec.NodeName && a.UID != old.UID && isReady(a) {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("no new agent on %s", old.Spec.NodeName), err)
	})
}
