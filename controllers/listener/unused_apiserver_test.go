package listener_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
)

// After a StatefulSet was scaled down, its claims still exist, and one of them is pinned.
func TestAddressesOfClaimsThatNoPodMountsAreLeftOut(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType:                  nodePort,
		ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
	})
	l := f.createListener(nil)
	var nodes []*corev1.Node
	var volumes []*corev1.PersistentVolume
	for i := range 3 {
		node := f.createNodeAs(metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", f.key.Namespace, i)}, fmt.Sprintf("10.4.0.%d", i))
		nodes, volumes = append(nodes, node), append(volumes, f.createVolume(node.Name))
	}
	pinned := volumes[2]
	f.change(pinned, func() { pinned.Spec.NodeAffinity = claim.NodeAffinity(nodes[2].Name) })
	start := func(i int) *corev1.Pod { return f.createPod(fmt.Sprintf("web-%d", i), nodes[i], volumes[i]) }
	start(0)
	others := []*corev1.Pod{start(1), start(2)}
	f.eventuallyAddresses("10.4.0.0", "10.4.0.1", "10.4.0.2")

	for _, pod := range others {
		f.Expect(f.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
	}
	l = f.eventuallyAddresses("10.4.0.0")
	f.Expect(l.Status.UnusedNodes).To(Equal([]string{nodes[1].Name, nodes[2].Name}))
	f.Expect(l.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring(nodes[1].Name+" (no Pod on it mounts the Listener)"))))
	f.Expect(l.Status.Summary.Nodes).To(Equal(nodes[0].Name))
	f.Expect(claim.VolumeNodes(volumes[1])).To(Equal([]string{nodes[1].Name}))

	start(2)
	f.eventuallyAddresses("10.4.0.0", "10.4.0.2")
}
