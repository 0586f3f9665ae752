package listener_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// TestAFlapOfSecondsIsNotPublished: the Listener is reconciled while its load balancer, or its node, reports something
// else, and when it is back. Tests with a fake clock show what is published later.
func TestAFlapOfSecondsIsNotPublished(t *testing.T) {
	reported := func(addresses ...string) func(f *fixture, _ *corev1.Node) {
		return func(f *fixture, _ *corev1.Node) {
			var ingress []corev1.LoadBalancerIngress
			for _, a := range addresses {
				ingress = append(ingress, corev1.LoadBalancerIngress{IP: a})
			}
			f.assign(ingress...)
		}
	}
	internal := func(addresses ...string) func(f *fixture, node *corev1.Node) {
		return func(f *fixture, node *corev1.Node) {
			node.Status.Addresses = nil
			for _, a := range addresses {
				node.Status.Addresses = append(node.Status.Addresses, objects.InternalIP(a))
			}
			f.Expect(f.Status().Update(f.Context(), node)).To(Succeed())
		}
	}
	type report = func(*fixture, *corev1.Node)
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		first       report
		want        []string
		flaps       []report
	}{
		"load balancer without its address, with another one, with another order": {
			loadBalancer, reported("192.0.2.1", "192.0.2.2"), []string{"192.0.2.1", "192.0.2.2"},
			[]report{reported(), reported("192.0.2.3", "192.0.2.1", "192.0.2.2"), reported("192.0.2.2", "192.0.2.1")},
		},
		"node without its address, with another one in its place or in front of it": {
			nodePort, internal("10.9.0.1"), []string{"10.9.0.1"}, []report{internal(), internal("10.9.0.2"), internal("10.9.0.2", "10.9.0.1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A process that sees how the class is created expects load balancers to follow it for a while.
			f := newFixtureWith(t, settings{nodes: settling.NewNodes(clock.RealClock{})}, listenersv1alpha1.ListenerClassSpec{
				ServiceType: tc.serviceType, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
			})
			node := f.createNode("10.9.0.1")
			f.createVolume(node.Name)
			f.createListener(nil)
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
			tc.first(f, node)
			before := f.eventuallyAddresses(tc.want...)
			for _, flap := range tc.flaps {
				for _, change := range []report{flap, tc.first} {
					change(f, node)
					for range 2 { // when the Service has the second label, the status after the first one was written
						l, round := f.listener(), rand.String(8)
						f.change(l, func() { l.Labels = map[string]string{"round": round} })
						f.Eventually(func() string { return f.service().Labels["round"] }).Should(Equal(round))
					}
					f.Expect(f.listener().Status).To(Equal(before.Status))
				}
			}
		})
	}
}
