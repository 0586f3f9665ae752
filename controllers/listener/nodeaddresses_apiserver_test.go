package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// The address of a dead node stays published, because nobody knows whether the node returns.
func TestAListenerFollowsWhatItsNodeAdvertisesAndWhetherItIsReady(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(nil)
	node := f.createNode("10.3.0.1")
	f.createVolume(node.Name)
	f.eventuallyAddresses("10.3.0.1")

	f.change(node, func() { node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "198.51.100.7"} })
	f.eventuallyAddresses("198.51.100.7")

	f.change(node, func() { node.Annotations[names.AnnotationAdvertisedAddress] = "198.51.100.7:30080" })
	l := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonInvalidNodeAddress)
	f.Expect(l.Status.IngressAddresses).To(BeEmpty())
	f.Expect(observe.Condition(l, listenersv1alpha1.ListenerReady).Message).To(ContainSubstring(`"198.51.100.7:30080" is neither an IP address nor a host name`))
	f.change(node, func() { delete(node.Annotations, names.AnnotationAdvertisedAddress) })
	f.eventuallyAddresses("10.3.0.1")

	ready := func(status corev1.ConditionStatus) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		f.Expect(f.Status().Update(t.Context(), node)).To(Succeed())
	}

	ready(corev1.ConditionUnknown)
	l = f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonNodesNotReady)
	f.Expect(l.Status.IngressAddresses).To(HaveLen(1))
	f.Expect(l.Status.Summary.Reason).To(Equal(listenersv1alpha1.ReasonNodesNotReady))

	ready(corev1.ConditionTrue)
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned)
}

// The Pod of the node that is drained has not ended yet. Nodes are watched for it.
func TestANodeThatIsDrainedIsLeftOut(t *testing.T) {
	f := newFixture(t, ofType(nodePort))
	f.createListener(nil)
	first := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-1"}, "10.3.1.1")
	second := f.createNodeAs(metav1.ObjectMeta{Name: f.key.Namespace + "-2"}, "10.3.1.2")
	ends := f.createPod("web-1", first, f.createVolume(first.Name))
	f.createPod("web-2", second, f.createVolume(second.Name))
	f.eventuallyAddresses("10.3.1.1", "10.3.1.2")
	f.Expect(f.Delete(t.Context(), ends)).To(Succeed())
	f.change(first, func() { first.Spec.Unschedulable = true })
	l := f.eventuallyAddresses("10.3.1.2")
	f.Expect(observe.Condition(l, listenersv1alpha1.ListenerReady).Message).To(ContainSubstring(first.Name + " (is being drained)"))
	f.change(first, func() { first.Spec.Unschedulable = false })
	f.eventuallyAddresses("10.3.1.1", "10.3.1.2")
}

// A Service that prefers two families has the one of a cluster with one, and one that requires two is rejected.
func TestFamiliesOfAClusterWithASingleOne(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
	})
	f.createListener(nil)
	node := f.createNode("10.3.3.1", "fd00:3::3")
	f.createVolume(node.Name)
	l := f.eventuallyAddresses("10.3.3.1")
	f.Expect(l.Status.IPFamilies).To(Equal([]corev1.IPFamily{corev1.IPv4Protocol}))

	f.change(f.class, func() { f.class.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.eventuallyAddresses("10.3.3.1")
}

// The Service has the families of its class, and the addresses of a node are in the order of the Service.
func TestDualStackListenerHasAnAddressOfEachFamily(t *testing.T) {
	cfg := apiserver.DualStackConfig(t)
	c, err := client.New(cfg, client.Options{Scheme: apiserver.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	f := &fixture{
		World: &apiserver.World{T: t, Gomega: NewWithT(t), Client: c}, key: client.ObjectKey{Namespace: "default", Name: "web"},
		class: &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "dual-stack-"}, Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: nodePort, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		}},
	}
	f.SetDefaultEventuallyTimeout(apiserver.Timeout)
	f.Expect(c.Create(t.Context(), f.class)).To(Succeed())
	stopProcess(t)
	f.start(settings{config: cfg})
	t.Cleanup(func() { stopProcess(t) })
	f.createListener(nil)
	node := f.createNode("10.3.2.1", "fd00:3::1")
	f.createVolume(node.Name)

	l := f.eventuallyAddresses("fd00:3::1", "10.3.2.1")
	f.Expect(f.service().Spec.IPFamilies).To(Equal(f.class.Spec.IPFamilies))
	f.Expect(l.Status.IPFamilies).To(Equal(f.class.Spec.IPFamilies))

	// A Service can give up its second family.
	f.change(f.class, func() {
		f.class.Spec.IPFamilies, f.class.Spec.IPFamilyPolicy = f.class.Spec.IPFamilies[:1], ptr.To(corev1.IPFamilyPolicySingleStack)
	})
	f.eventuallyAddresses("fd00:3::1")

	// But it cannot change the first one.
	f.change(f.class, func() { f.class.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol} })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.eventuallyAddresses("fd00:3::1")
}
