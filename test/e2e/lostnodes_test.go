//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

func pinnedBy(pinning listenersv1alpha1.Pinning) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, Pinning: &pinning}
}

// identity is what clients and consumers know of a replica besides the address of its node.
type identity struct {
	Listener, Service types.UID
	Ports             map[string]int32
}

// brokerReplica is the first Pod of the StatefulSet "broker", with the address that it reads.
type brokerReplica struct {
	pod     *corev1.Pod
	address listenersv1alpha1.IngressAddress
	identity
}

// awaitReplica waits until the Pod is ready and answers clients outside the cluster at the address in its files.
func (s *scenario) awaitReplica(before ...*corev1.Pod) brokerReplica {
	s.Helper()
	r := brokerReplica{pod: s.awaitReady("broker-0", before...)}
	r.address = s.awaitPodListener(r.pod, "listener").IngressAddresses[0]
	if want := testbed.NodeIP(nodeOf(r.pod)); r.address.Address != want {
		s.Errorf("the Pod on %s has the address %s, want %s", r.pod.Spec.NodeName, r.address.Address, want)
	}
	s.awaitAnswer(r.address, "broker-0")
	s.checkFilesAt(r.address)
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key("listener-broker-0"), func(l *listenersv1alpha1.Listener) bool {
		r.Listener = l.UID
		return l.Status != nil && len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == r.address.Address
	})
	service := mustGet(s, &corev1.Service{}, s.key("listener-broker-0"))
	r.Service, r.Ports = service.UID, r.address.Ports
	return r
}

// awaitMoved waits until the replica runs on another node, with the same identity, and its volume is pinned there.
func (s *scenario) awaitMoved(before brokerReplica) brokerReplica {
	s.Helper()
	after := s.awaitReplica(before.pod)
	if after.pod.Spec.NodeName == before.pod.Spec.NodeName {
		s.Fatalf("the Pod is on %s again", after.pod.Spec.NodeName)
	}
	if diff := cmp.Diff(before.identity, after.identity); diff != "" {
		s.Errorf("what clients know (-before +after):\n%s", diff)
	}
	s.awaitPinned(after.pod.Spec.NodeName)
	for _, o := range []struct{ kind, name string }{{"PersistentVolumeClaim", "listener-broker-0"}, {"Pod", "broker-0"}} {
		s.awaitEvent(o.kind, o.name, listenersv1alpha1.ReasonVolumeMoved, before.pod.Spec.NodeName, after.pod.Spec.NodeName)
	}
	s.awaitCondition("listener-broker-0", listenersv1alpha1.ListenerNodesAvailable, metav1.ConditionTrue, listenersv1alpha1.ReasonVolumeMoved)
	return after
}

// awaitPinned waits until the volume of the replica is bound and pinned to a node.
func (s *scenario) awaitPinned(node string) {
	s.Helper()
	pvc := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("listener-broker-0"))
	mustAwait(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: pvc.Spec.VolumeName}, func(pv *corev1.PersistentVolume) bool {
		return pv.Status.Phase == corev1.VolumeBound && slices.Equal(claim.PinnedNodes(pv), []string{node})
	})
	mustAwait(s, &corev1.PersistentVolumeClaim{}, s.key(pvc.Name), func(pvc *corev1.PersistentVolumeClaim) bool { return pvc.Status.Phase == corev1.ClaimBound })
}

// cordon cordons nodes until the function that it returns is called, or the test ends.
func (s *scenario) cordon(nodes ...int) (uncordon func()) {
	s.Helper()
	set := func(unschedulable bool) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
		for _, n := range nodes {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: testbed.NodeName(n)}}
			if err := api.Patch(context.Background(), node, patch); err != nil { // the test's context has ended in Cleanup
				s.Errorf("cordoning %s: %v", node.Name, err)
			}
		}
	}
	set(true)
	uncordon = sync.OnceFunc(func() { set(false) })
	s.Cleanup(uncordon)
	return uncordon
}

// startNode starts a node that joins as a new one, and returns its number and a function that deletes it, as the end of
// the test does.
func (s *scenario) startNode() (node int, deleteNode func() error) {
	s.Helper()
	nodes := testbed.Nodes()
	node = nodes[len(nodes)-1] + 1
	s.must(testbed.StartNode(s.ctx, node))
	deleteNode = sync.OnceValue(func() error { return testbed.DeleteNode(context.Background(), node) })
	s.Cleanup(func() { _ = deleteNode() })
	return node, deleteNode
}

// A node is deleted for good. Nobody does anything, and the Pod that was pinned to it starts on another node, with the
// same Listener, Service and node port.
func TestAPodOfALostNodeStartsElsewhere(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinnedBy(listenersv1alpha1.Pinning{
		Policy: listenersv1alpha1.PinningPolicyRequired, ReleaseAfter: &metav1.Duration{Duration: 15 * time.Second},
	}))
	others := testbed.Nodes()
	lost, deleteNode := s.startNode()
	uncordon := s.cordon(others...)
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	before := s.awaitReplica()
	uncordon()
	if got := nodeOf(before.pod); got != lost {
		t.Fatalf("the Pod is on node %d, want %d", got, lost)
	}
	s.must(deleteNode())
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "listener-broker-0", listenersv1alpha1.ReasonNodeLost, before.pod.Spec.NodeName))
	s.awaitCondition("listener-broker-0", listenersv1alpha1.ListenerNodesAvailable, metav1.ConditionFalse, listenersv1alpha1.ReasonNodeLost)
	s.awaitMoved(before)
}

// The volume of a Pod is pinned to its node before the Pod has an address, and that node is deleted. The Pod starts on
// another node when there is an address.
func TestAPodWhoseMountWaitsLeavesALostNode(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinnedBy(listenersv1alpha1.Pinning{
		Policy: listenersv1alpha1.PinningPolicyRequired, ReleaseAfter: &metav1.Duration{Duration: 15 * time.Second},
	}))
	others := testbed.Nodes()
	lost, deleteNode := s.startNode()
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "listener-broker-0"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	s.create(foreign) // so that the Listener has no address
	uncordon := s.cordon(others...)
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	s.awaitEvent("Pod", "broker-0", listenersv1alpha1.ReasonWaitingForAddress, "Service "+s.namespace+"/listener-broker-0 already exists")
	s.awaitPinned(testbed.NodeName(lost))
	waiting := mustGet(s, &corev1.Pod{}, s.key("broker-0"))
	uncordon()
	s.must(deleteNode())
	s.awaitEvent("PersistentVolumeClaim", "listener-broker-0", listenersv1alpha1.ReasonNodeLost, waiting.Spec.NodeName)
	s.remove(foreign)
	after := s.awaitReplica(waiting)
	if after.pod.Spec.NodeName == waiting.Spec.NodeName {
		t.Fatalf("the Pod is on %s again", waiting.Spec.NodeName)
	}
	s.awaitPinned(after.pod.Spec.NodeName)
	s.awaitEvent("PersistentVolumeClaim", "listener-broker-0", listenersv1alpha1.ReasonVolumeMoved, waiting.Spec.NodeName, after.pod.Spec.NodeName)
}

// Without releaseAfter, the annotation of the claim releases the volume of a lost node.
func TestAVolumeIsReleasedByHand(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	before := s.awaitReplica()
	claim := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("listener-broker-0"))
	s.patch(claim, func() {
		// Creation times have seconds. A request concerns volumes that were created before it.
		claim.Annotations[names.AnnotationRelease] = time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	})
	s.awaitEvent("PersistentVolumeClaim", claim.Name, listenersv1alpha1.ReasonReleaseRefused, "broker-0", before.pod.Spec.NodeName)
	s.cordon(nodeOf(before.pod))
	s.remove(before.pod)
	after := s.awaitMoved(before)
	s.remove(after.pod) // the request is not carried out again
	if again := s.awaitReplica(after.pod); again.pod.Spec.NodeName != after.pod.Spec.NodeName {
		t.Errorf("the Pod moved from %s to %s", after.pod.Spec.NodeName, again.pod.Spec.NodeName)
	}
}

// The Pod starts on another node as soon as its own does not take it any more.
func TestAPreferredVolumeLeavesACordonedNode(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(pinnedBy(listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyPreferred}))
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	before := s.awaitReplica()
	s.remove(before.pod)
	again := s.awaitReplica(before.pod)
	if again.pod.Spec.NodeName != before.pod.Spec.NodeName {
		t.Fatalf("the Pod left %s, which takes it, for %s", before.pod.Spec.NodeName, again.pod.Spec.NodeName)
	}
	s.cordon(nodeOf(before.pod))
	s.remove(again.pod)
	s.awaitMoved(again)
}

// Only the scheduler knows that the node has no room for the Pod.
func TestAPreferredVolumeLeavesAFullNode(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinnedBy(listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyPreferred}))
	set := statefulSet("broker", 1, byClass(class.Name))
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "blocker"}},
		}},
	}}
	s.create(set)
	before := s.awaitReplica()
	scale := func(replicas int32) {
		s.patch(set, func() { set.Spec.Replicas = ptr.To(replicas) })
	}
	scale(0)
	mustAwaitDeleted(s, &corev1.Pod{}, client.ObjectKeyFromObject(before.pod))
	blocker := podWith("blocker")
	blocker.Spec.NodeSelector = onNode(before.pod.Spec.NodeName)
	s.create(blocker)
	s.awaitReady("blocker")
	scale(1)
	s.awaitMoved(before)
}

// An administrator deletes the PersistentVolume of a running Pod, and its finalizers. The claim does not stay Lost, and
// the address does not change.
func TestAVolumeDeletedByHandIsCreatedAgain(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	before := s.awaitReplica()
	claim := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("listener-broker-0"))
	pv := mustGet(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: claim.Spec.VolumeName})
	old := pv.UID
	s.remove(pv)
	s.patch(pv, func() { pv.Finalizers = nil })
	mustAwait(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: claim.Spec.VolumeName}, func(pv *corev1.PersistentVolume) bool { return pv.UID != old })
	s.awaitEvent("PersistentVolumeClaim", claim.Name, listenersv1alpha1.ReasonVolumeRestored, claim.Spec.VolumeName)
	s.awaitPinned(before.pod.Spec.NodeName)
	s.awaitAnswer(before.address, "broker-0")
	s.remove(before.pod)
	after := s.awaitReplica(before.pod)
	if diff := cmp.Diff(before.identity, after.identity); diff != "" || after.address.Address != before.address.Address {
		t.Errorf("the address was %+v and is %+v; what clients know (-before +after):\n%s", before.address, after.address, diff)
	}
	// Nothing keeps the new volume when the claim is deleted.
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "broker", Namespace: s.namespace}}
	s.remove(set)
	s.remove(claim)
	mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: claim.Spec.VolumeName})
	mustAwaitDeleted(s, &corev1.Service{}, s.key("listener-broker-0"))
}

// The address of a deleted node is removed, and the others stay.
func TestADeletedNodeDoesNotAffectOtherAddresses(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.createBootstrapListener(class.Name)
	nodes := testbed.Nodes()
	lost, deleteNode := s.startNode()
	for i, node := range []int{nodes[0], lost} {
		p := pod(fmt.Sprintf("web-%d", i), byName("bootstrap"))
		p.Spec.NodeName = "" // the volume is provisioned only if the scheduler selects the node
		p.Spec.NodeSelector = onNode(testbed.NodeName(node))
		s.create(p)
		s.awaitReady(p.Name)
	}
	s.awaitListener("bootstrap", 2)
	s.must(deleteNode())
	l := s.awaitListener("bootstrap", 1)
	if got := l.Status.IngressAddresses[0].Address; got != testbed.NodeIP(nodes[0]) {
		t.Errorf("the remaining address is %s, want that of %s", got, testbed.NodeName(nodes[0]))
	}
	s.awaitAnswer(l.Status.IngressAddresses[0], "web-0")
	// The deleted node's kubelet cannot confirm the deletion of its Pod. Kubernetes' garbage collector of Pods may be
	// faster: it waits 40 seconds from when it first missed a node of this name, maybe in an earlier test.
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: s.namespace}}
	s.must(client.IgnoreNotFound(api.Delete(s.ctx, orphan, client.GracePeriodSeconds(0))))
}
