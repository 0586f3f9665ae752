package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// policy returns the NetworkPolicy of the Listener, or nil.
func (f *fixture) policy() *networkingv1.NetworkPolicy {
	policy := &networkingv1.NetworkPolicy{}
	err := f.Get(f.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: f.key.Name + "-allowed-clients"}, policy)
	if !apierrors.IsNotFound(err) {
		f.Expect(err).NotTo(HaveOccurred())
		return policy
	}
	return nil
}

// admitted returns the ranges that the NetworkPolicy of the Listener admits to its first port, and how many rules it
// has.
func (f *fixture) admitted() (ranges []string, port int32, rules int) {
	policy := f.policy()
	if policy == nil || len(policy.Spec.Ingress) == 0 {
		return nil, 0, 0
	}
	for _, from := range policy.Spec.Ingress[0].From {
		if from.IPBlock != nil {
			ranges = append(ranges, from.IPBlock.CIDR)
		}
	}
	return ranges, policy.Spec.Ingress[0].Ports[0].Port.IntVal, len(policy.Spec.Ingress)
}

func TestPolicyFollowsAllowedClients(t *testing.T) {
	class := sameTarget()
	class.ServiceExternalTrafficPolicy = ptr.To(corev1.ServiceExternalTrafficPolicyLocal)
	class.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.0/24"}
	f := newFixture(t, class)
	f.createListener(nil)
	ports := f.eventuallyNodePorts(1)
	admits := func(rules int, ranges ...string) {
		t.Helper()
		f.Eventually(func(g Gomega) {
			got, port, n := f.admitted()
			g.Expect(got).To(Equal(ranges))
			g.Expect(port).To(Equal(ports["http"])) // which Kubernetes has allocated
			g.Expect(n).To(Equal(rules))
		}).Should(Succeed())
	}
	admits(2, "198.51.100.0/24")

	// What others change is restored.
	policy := f.policy()
	f.change(policy, func() { policy.Spec.Ingress[0].From = nil })
	admits(2, "198.51.100.0/24")
	f.Expect(f.Delete(t.Context(), policy)).To(Succeed())
	admits(2, "198.51.100.0/24")

	// The Listener restricts further, but not less.
	listener := f.listener()
	f.change(listener, func() { listener.Spec.AllowedClients = []listenersv1alpha1.CIDR{"198.51.100.7/32"} })
	admits(2, "198.51.100.7/32")
	f.change(listener, func() { listener.Spec.AllowedClients = []listenersv1alpha1.CIDR{"0.0.0.0/0"} })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonInvalidAllowedClients)
	admits(2, "198.51.100.7/32")
	f.change(listener, func() { listener.Spec.AllowedClients = nil })
	admits(2, "198.51.100.0/24")

	// Other ports are as a policy of the namespace says.
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "deny"}}
	f.Expect(f.Create(t.Context(), deny)).To(Succeed())
	admits(1, "198.51.100.0/24")
	f.Expect(f.Delete(t.Context(), deny)).To(Succeed())
	admits(2, "198.51.100.0/24")

	// A load balancer restricts clients by itself, and then all may.
	f.change(f.class, func() { f.class.Spec.ServiceType, f.class.Spec.NodePorts = loadBalancer, nil })
	f.Eventually(func() []string { return f.service().Spec.LoadBalancerSourceRanges }).Should(Equal([]string{"198.51.100.0/24"}))
	f.Eventually(f.policy).Should(BeNil())
	f.change(f.class, func() { f.class.Spec.AllowedClients = nil })
	f.Eventually(func() []string { return f.service().Spec.LoadBalancerSourceRanges }).Should(BeEmpty())
}
