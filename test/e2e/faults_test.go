//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// podDir is where a node's kubelet keeps a Pod, as the host sees it.
func podDir(p *corev1.Pod) string {
	return filepath.Join(testbed.KubeletDir(nodeOf(p)), "pods", string(p.UID))
}

// nothingLeft waits until the kubelet's directory has nothing of the Pod.
func (s *story) nothingLeft(p *corev1.Pod) {
	s.Helper()
	err := eventually(s.within(), func(context.Context) error {
		_, err := os.Stat(podDir(p))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s still exists", podDir(p)), err)
	})
	if err != nil {
		var left []string
		_ = filepath.WalkDir(podDir(p), func(path string, _ fs.DirEntry, _ error) error {
			left = append(left, strings.TrimPrefix(path, podDir(p)))
			return nil
		})
		s.Errorf("%v: %v", err, left)
	}
}

// agentOn returns the node agent's Pod on a node.
func (s *story) agentOn(node string) *corev1.Pod {
	s.Helper()
	var agents corev1.PodList
	if err := api.List(s.ctx, &agents, client.InNamespace(operatorSpace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"}); err != nil {
		s.Fatalf("listing the agents: %v", err)
	}
	for i := range agents.Items {
		if agents.Items[i].Spec.NodeName == node && agents.Items[i].DeletionTimestamp == nil {
			return &agents.Items[i]
		}
	}
	s.Fatalf("no agent on %s", node)
	return nil
}

// agentBack waits until an agent other than the given one is ready on its node.
func (s *story) agentBack(gone *corev1.Pod) {
	s.Helper()
	err := eventually(s.within(), func(ctx context.Context) error {
		var agents corev1.PodList
		if err := api.List(ctx, &agents, client.InNamespace(operatorSpace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"}); err != nil {
			return err
		}
		for i := range agents.Items {
			if a := &agents.Items[i]; a.Spec.NodeName == gone.Spec.NodeName && a.UID != gone.UID && isReady(a) {
				return nil
			}
		}
		return fmt.Errorf("no new agent on %s", gone.Spec.NodeName)
	})
	if err != nil {
		s.Fatal(err)
	}
}

// TestANodeRestartsWithItsPods: after a power cut the volume directories are still filled, and the same Pods run again at
// their addresses.
func TestANodeRestartsWithItsPods(t *testing.T) {
	s := tell(t)
	class := s.class(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p := s.running("broker-0")
	own := s.told(p, "listener").IngressAddresses[0]
	s.answers(own, "broker-0")
	node := nodeOf(p)
	if err := testbed.StopNode(s.ctx, node); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(s.within(), own, "/whoami"); err == nil {
		t.Error("the Pod answers from a node without power")
	}
	if err := testbed.StartNode(s.ctx, node); err != nil {
		t.Fatal(err)
	}
	s.answers(own, "broker-0")
	if after := s.running("broker-0"); after.UID != p.UID {
		t.Errorf("the Pod was replaced: its uid was %s and is %s", p.UID, after.UID)
	}
	if diff := cmp.Diff(wantFiles("listener", own), s.files(own)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := testbed.Ready(s.within()); err != nil {
		t.Error(err)
	}
}

// TestTheKubeletRestarts: nothing happens to the Pod, and the next Pod can be mounted.
func TestTheKubeletRestarts(t *testing.T) {
	s := tell(t)
	class := s.class(pinned())
	s.create(statefulSet("broker", 1, byClass(class.Name)))
	p := s.running("broker-0")
	own := s.told(p, "listener").IngressAddresses[0]
	if err := errors.Join(testbed.StopKubelet(s.ctx, nodeOf(p)), testbed.StartKubelet(s.ctx, nodeOf(p))); err != nil {
		t.Fatal(err)
	}
	s.answers(own, "broker-0")
	next := pod("next", map[string]map[string]string{"listener": byClass(class.Name)})
	next.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Spec.NodeName}
	s.create(next)
	s.answers(s.told(s.running("next"), "listener").IngressAddresses[0], "next")
	if after := s.running("broker-0"); after.UID != p.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the first Pod was restarted")
	}
}

// TestAnAgentThatWasAwayCatchesUp: addresses that changed while no agent ran on the node are written when it comes
// back.
func TestAnAgentThatWasAwayCatchesUp(t *testing.T) {
	s := tell(t)
	spec := loadBalanced()
	spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
	class := s.class(spec)
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	service := mustAwait(s, &corev1.Service{}, "web-listener", func(service *corev1.Service) bool { return nodePort(service, "http") > 0 })
	s.assign(service, "192.0.2.30")
	p := s.running("web")
	through := listenersv1alpha1.IngressAddress{Address: testbed.NodeIP(nodeOf(p)), Ports: map[string]int32{"http": nodePort(service, "http")}}
	s.answers(through, "web")

	agent := s.agentOn(p.Spec.NodeName)
	s.remove(agent, client.GracePeriodSeconds(0)) // killed without a chance to finish
	s.assign(service, "192.0.2.40")
	s.agentBack(agent)
	want := listenersv1alpha1.IngressAddress{Address: "192.0.2.40", Ports: map[string]int32{"http": 8080, "echo": 9090}}
	if err := eventually(s.within(), func(context.Context) error {
		if diff := cmp.Diff(wantFiles("listener", want), s.files(through)); diff != "" {
			return fmt.Errorf("files (-want +got):\n%s", diff)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestAPodThatIsGoneWhenTheKubeletReturns: the Pod is force-deleted while the kubelet is stopped; afterwards nothing of
// it is left on the node.
func TestAPodThatIsGoneWhenTheKubeletReturns(t *testing.T) {
	s := tell(t)
	class := s.class(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	p := s.running("web")
	if err := testbed.StopKubelet(s.ctx, nodeOf(p)); err != nil {
		t.Fatal(err)
	}
	s.remove(p, client.GracePeriodSeconds(0))
	mustAwaitGone(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	mustAwaitGone(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)))
	if err := testbed.StartKubelet(s.ctx, nodeOf(p)); err != nil {
		t.Fatal(err)
	}
	s.nothingLeft(p)
}

// TestAPodMayMakeAMessOfItsVolume: what a Pod that runs as root leaves in its volume never leads outside of it, and
// never holds up the Pod's end.
func TestAPodMayMakeAMessOfItsVolume(t *testing.T) {
	t.Parallel()
	s := tell(t)
	space := &corev1.Namespace{}
	s.get(space, client.ObjectKey{Name: s.namespace})
	s.patch(space, func() { space.Labels["pod-security.kubernetes.io/enforce"] = "privileged" })
	class := s.class(unpinned())
	p := pod("messy", map[string]map[string]string{"listener": byClass(class.Name)})
	p.Spec.SecurityContext = nil
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
	p.Spec.Containers[0].Args = []string{"mess"}
	s.create(p)
	p = s.running("messy")
	s.answers(s.told(p, "listener").IngressAddresses[0], "messy")
	s.remove(p)
	mustAwaitGone(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	s.nothingLeft(p)
}

// TestAPodMayBeDeletedWhileItIsMounted: a Pod whose mount waits for an address that never comes can be deleted.
func TestAPodMayBeDeletedWhileItIsMounted(t *testing.T) {
	t.Parallel()
	s := tell(t)
	class := s.class(loadBalanced())
	p := pod("web", map[string]map[string]string{"listener": byClass(class.Name)})
	s.create(p)
	s.event("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress)
	p = mustAwait(s, &corev1.Pod{}, "web", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	s.remove(p)
	mustAwaitGone(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	mustAwaitGone(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	s.nothingLeft(p)
}

// TestANodeThatIsGoneHoldsUpNobody: the addresses of a lost node are left out, those of the others stay.
func TestANodeThatIsGoneHoldsUpNobody(t *testing.T) {
	s := tell(t)
	class := s.class(unpinned())
	s.bootstrap(class.Name)
	nodes := testbed.Nodes()
	lost := nodes[len(nodes)-1] + 1
	if err := testbed.StartNode(s.ctx, lost); err != nil { // joins as a new node
		t.Fatal(err)
	}
	for i, node := range []int{nodes[0], lost} {
		p := pod(fmt.Sprintf("web-%d", i), map[string]map[string]string{"listener": byName("bootstrap")})
		p.Spec.NodeName = "" // the scheduler has to choose, or nobody provisions the volume
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: testbed.NodeName(node)}
		s.create(p)
		s.running(p.Name)
	}
	s.listener("bootstrap", 2)
	if err := testbed.DeleteNode(s.ctx, lost); err != nil {
		t.Fatal(err)
	}
	l := s.listener("bootstrap", 1)
	if got := l.Status.IngressAddresses[0].Address; got != testbed.NodeIP(nodes[0]) {
		t.Errorf("the address that is left is %s, want that of %s", got, testbed.NodeName(nodes[0]))
	}
	s.answers(l.Status.IngressAddresses[0], "web-0")
	// What the lost node's kubelet can no longer do.
	s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: s.namespace}}, client.GracePeriodSeconds(0))
}

// TestTheOperatorMayBeAway: what happened meanwhile is done when it is back, and what runs is not disturbed.
func TestTheOperatorMayBeAway(t *testing.T) {
	s := tell(t)
	class := s.class(unpinned())
	s.create(pod("before", map[string]map[string]string{"listener": byClass(class.Name)}))
	before := s.told(s.running("before"), "listener").IngressAddresses[0]
	operator := &appsv1.Deployment{}
	s.get(operator, client.ObjectKey{Namespace: operatorSpace, Name: "listener-operator"})
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](0) })
	if _, err := await(s.within(), &appsv1.Deployment{}, client.ObjectKeyFromObject(operator),
		func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 }); err != nil {
		t.Fatal(err)
	}
	s.create(pod("meanwhile", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.answers(before, "before")
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](1) })
	s.answers(s.told(s.running("meanwhile"), "listener").IngressAddresses[0], "meanwhile")
	s.answers(before, "before")
}

// TestWhatIsInstalledIsRepaired: what somebody deletes or changes comes back as it should be, and running Pods do not
// notice.
func TestWhatIsInstalledIsRepaired(t *testing.T) {
	s := tell(t)
	class := s.class(unpinned())
	agents := &appsv1.DaemonSet{}
	s.get(agents, client.ObjectKey{Namespace: operatorSpace, Name: names.NodeAgent})
	s.patch(agents, func() { agents.Spec.Template.Spec.Containers[0].Args = []string{"--nonsense"} })
	if _, err := await(s.within(), &appsv1.DaemonSet{}, client.ObjectKeyFromObject(agents), func(d *appsv1.DaemonSet) bool {
		return !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--nonsense") && d.Status.ObservedGeneration == d.Generation &&
			d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled && d.Status.NumberReady == d.Status.DesiredNumberScheduled
	}); err != nil {
		t.Fatal(err)
	}
	driver, storage := &storagev1.CSIDriver{}, &storagev1.StorageClass{}
	for _, o := range []client.Object{driver, storage} {
		s.get(o, client.ObjectKey{Name: names.Driver})
		s.remove(o)
	}
	if _, err := await(s.within(), &storagev1.CSIDriver{}, client.ObjectKeyFromObject(driver), func(d *storagev1.CSIDriver) bool { return d.UID != driver.UID }); err != nil {
		t.Error(err)
	}
	if _, err := await(s.within(), &storagev1.StorageClass{}, client.ObjectKeyFromObject(storage), func(c *storagev1.StorageClass) bool { return c.UID != storage.UID }); err != nil {
		t.Error(err)
	}
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	s.answers(s.told(s.running("web"), "listener").IngressAddresses[0], "web")
}

// TestTheKindsOfThePeerAreTakenOver: its definitions name a conversion webhook, which is gone with it; deploying takes
// it away. One that somebody else wrote does not stay without anybody noticing.
func TestTheKindsOfThePeerAreTakenOver(t *testing.T) {
	s := tell(t)
	s.convertedBy(peer)
	if err := deploy(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.convertedByNobody()
	s.convertedBy("somebody-else")
	if err := deploy(s.ctx); err == nil {
		t.Error("the webhook of somebody else went unnoticed")
	}
	kind := &apiextensionsv1.CustomResourceDefinition{}
	s.get(kind, ofPeer)
	s.patch(kind, func() {
		kind.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	if err := deploy(s.ctx); err != nil {
		t.Error(err)
	}
}

// peer is the name in which the peer writes definitions.
const peer = "listener-operator"

// ofPeer is the definition of a kind that the peer has, too.
var ofPeer = client.ObjectKey{Name: "listeners.listeners.stackable.tech"}

// convertedBy makes it a definition with a webhook, in the way in which the peer does: whole, by force, in the name of
// the owner.
func (s *story) convertedBy(owner string) {
	s.Helper()
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	s.get(kind, ofPeer)
	spec, _, err := unstructured.NestedMap(kind.Object, "spec")
	if err != nil {
		s.Fatal(err)
	}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"service": map[string]any{
			"namespace": "stackable-operators", "name": "listener-operator", "port": int64(8443), "path": "/convert/" + ofPeer.Name,
		}},
	}}
	kind.Object = map[string]any{
		"apiVersion": kind.GetAPIVersion(), "kind": kind.GetKind(), "metadata": map[string]any{"name": ofPeer.Name}, "spec": spec,
	}
	if err := api.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(kind), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		s.Fatal(err)
	}
}

// convertedByNobody fails if the definition that was the peer's still names its webhook.
func (s *story) convertedByNobody() {
	s.Helper()
	kind := &apiextensionsv1.CustomResourceDefinition{}
	s.get(kind, ofPeer)
	if conversion := kind.Spec.Conversion; conversion == nil || conversion.Strategy != apiextensionsv1.NoneConverter || conversion.Webhook != nil {
		s.Errorf("the definition still converts: %+v", conversion)
	}
}
