package listener_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// sharing returns a class that shares an address, with a range of so many ports.
func sharing(first, size int32) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: loadBalancer,
		LoadBalancer: &listenersv1alpha1.LoadBalancer{
			Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: fmt.Sprintf("%d-%d", first, first+size-1)},
		},
		ServiceAnnotations: map[string]string{"metallb.io/allow-shared-ip": "all", "metallb.io/loadBalancerIPs": "192.0.2.1"},
	}
}

// eventuallySharedPorts waits until the Service has the numbers in the status, and returns them.
func (f *fixture) eventuallySharedPorts() map[string]int32 {
	f.Helper()
	var numbers map[string]int32
	f.Eventually(func(g Gomega) {
		service := &corev1.Service{}
		g.Expect(f.Get(f.Context(), f.key, service)).To(Succeed())
		g.Expect(service.DeletionTimestamp).To(BeNil())
		numbers = map[string]int32{}
		for _, p := range service.Spec.Ports {
			numbers[p.Name] = p.Port
		}
		l := f.listener()
		g.Expect(l.Status).NotTo(BeNil())
		g.Expect(l.Status.SharedPorts).To(Equal(numbers))
	}).Should(Succeed())
	return numbers
}

// The Service stays, and its numbers follow. Those that are not used any more are available.
func TestAClassBeginsAndCeasesToShareAnAddress(t *testing.T) {
	spec := sharing(9200, 1)
	shared := spec.LoadBalancer
	spec.LoadBalancer = nil
	f := newFixture(t, spec)
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonWaitingForLoadBalancer)
	f.assign(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	f.eventuallyAddresses("192.0.2.1")
	uid := f.service().UID
	ports := func() map[string]int32 { return f.listener().Status.IngressAddresses[0].Ports }
	f.Expect(ports()).To(Equal(map[string]int32{"http": 80}))

	f.change(f.class, func() { f.class.Spec.LoadBalancer = shared })
	f.Expect(f.eventuallySharedPorts()).To(Equal(map[string]int32{"http": 9200}))
	f.Expect(f.service().Spec.Ports[0].TargetPort).To(Equal(intstr.FromInt32(80)))
	f.Expect(f.service().Annotations).To(HaveKeyWithValue("metallb.io/allow-shared-ip", "all"))
	f.Expect(f.listener().Status.NodePorts).To(BeNil())
	f.Eventually(ports).Should(Equal(map[string]int32{"http": 9200}))
	f.key.Name = "waiting"
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonSharedPortsExhausted)

	f.key.Name = "web"
	f.change(f.class, func() { f.class.Spec.LoadBalancer = nil })
	f.Eventually(ports).Should(Equal(map[string]int32{"http": 80}))
	f.Expect(f.listener().Status.SharedPorts).To(BeNil())
	f.Expect(f.service().UID).To(Equal(uid))
	f.Expect(f.service().Spec.Ports[0].TargetPort).To(Equal(intstr.FromInt32(80)))

	f.change(f.class, func() { f.class.Spec.LoadBalancer = shared })
	f.Eventually(func() int { // one of the two gets the number
		n := 0
		for _, f.key.Name = range []string{"web", "waiting"} {
			n += len(f.listener().Status.SharedPorts)
		}
		return n
	}).Should(Equal(1))
}

// A namespace whose quota allows three load balancers reserves three of twenty numbers, whatever it creates, and the
// others are for the Listeners of another namespace.
func TestNumbersOfListenersBeyondAQuotaAreFree(t *testing.T) {
	const first, size, allowed = 9300, 20, 3
	f := newFixture(t, sharing(first, size))
	quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services.loadbalancers": resource.MustParse(fmt.Sprint(allowed))}}}
	quota.Namespace, quota.Name = f.key.Namespace, "load-balancers"
	f.Expect(f.Create(t.Context(), quota)).To(Succeed())
	// What the controller of quotas, which does not run here, writes first.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"services.loadbalancers": resource.MustParse("0")}}
	f.Expect(f.Status().Update(t.Context(), quota)).To(Succeed())
	for i := range size {
		f.key.Name = fmt.Sprint("web-", i)
		f.createListener(nil)
	}
	having := func(namespace string) (n int) {
		var listeners listenersv1alpha1.ListenerList
		f.Expect(f.List(t.Context(), &listeners, client.InNamespace(namespace))).To(Succeed())
		for _, l := range listeners.Items {
			if l.Status != nil && len(l.Status.SharedPorts) > 0 {
				n++
			}
		}
		return n
	}
	for i := range size {
		f.key.Name = fmt.Sprint("web-", i)
		f.Eventually(func(g Gomega) {
			accepted := meta.FindStatusCondition(conditionsOf(f.listener()), listenersv1alpha1.ListenerAccepted)
			g.Expect(accepted).NotTo(BeNil())
		}).Should(Succeed())
	}
	f.Expect(having(f.key.Namespace)).To(Equal(allowed))

	other := apiserver.Namespace(t)
	for i := range size - allowed {
		f.key = client.ObjectKey{Namespace: other, Name: fmt.Sprint("web-", i)}
		f.createListener(nil)
	}
	for i := range size - allowed {
		f.key.Name = fmt.Sprint("web-", i)
		f.eventuallySharedPorts()
	}
}

// A Listener beyond the limit of its class waits until its namespace has fewer, or may have more. Other namespaces are
// not affected.
func TestANamespaceHasAsManyNumbersAsItMay(t *testing.T) {
	shared := sharing(9400, 10)
	shared.LoadBalancer.Sharing.MaxPortsPerNamespace = ptr.To[int32](2)
	nodePorts := listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "30060-30069", MaxPortsPerNamespace: ptr.To[int32](2)},
	}
	for name, spec := range map[string]listenersv1alpha1.ListenerClassSpec{"shared address": shared, "node ports": nodePorts} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, spec)
			namespace := f.key.Namespace
			reasons := func() map[string]int {
				f.collectGarbage(namespace)
				all := map[string]int{}
				var listeners listenersv1alpha1.ListenerList
				f.Expect(f.List(t.Context(), &listeners, client.InNamespace(namespace))).To(Succeed())
				for i := range listeners.Items {
					if accepted := meta.FindStatusCondition(conditionsOf(&listeners.Items[i]), listenersv1alpha1.ListenerAccepted); accepted != nil {
						all[accepted.Reason]++
					}
				}
				return all
			}
			for i := range 5 { // at the same time
				f.key.Name = fmt.Sprint("web-", i)
				f.createListener(nil)
			}
			f.Eventually(reasons).Should(Equal(map[string]int{listenersv1alpha1.ReasonAccepted: 2, listenersv1alpha1.ReasonPortLimitReached: 3}))
			f.key = client.ObjectKey{Namespace: apiserver.Namespace(t), Name: "web"}
			f.createListener(nil)
			f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)

			var listeners listenersv1alpha1.ListenerList
			f.Expect(f.List(t.Context(), &listeners, client.InNamespace(namespace))).To(Succeed())
			for i := range listeners.Items {
				l := &listeners.Items[i]
				if meta.IsStatusConditionTrue(conditionsOf(l), listenersv1alpha1.ListenerAccepted) {
					f.Expect(f.Delete(t.Context(), l)).To(Succeed())
					break
				}
			}
			f.Eventually(reasons).Should(Equal(map[string]int{listenersv1alpha1.ReasonAccepted: 2, listenersv1alpha1.ReasonPortLimitReached: 2}))
			f.change(f.class, func() {
				if f.class.Spec.NodePorts != nil {
					f.class.Spec.NodePorts.MaxPortsPerNamespace = ptr.To[int32](3)
				} else {
					f.class.Spec.LoadBalancer.Sharing.MaxPortsPerNamespace = ptr.To[int32](3)
				}
			})
			f.Eventually(reasons).Should(Equal(map[string]int{listenersv1alpha1.ReasonAccepted: 3, listenersv1alpha1.ReasonPortLimitReached: 1}))
		})
	}
}

// collectGarbage deletes the Services of Listeners that do not exist, as the garbage collector does: also one that the
// operator creates again because its cache still has the Listener.
func (f *fixture) collectGarbage(namespace string) {
	var services corev1.ServiceList
	f.Expect(f.List(f.Context(), &services, client.InNamespace(namespace))).To(Succeed())
	var listeners listenersv1alpha1.ListenerList
	f.Expect(f.List(f.Context(), &listeners, client.InNamespace(namespace))).To(Succeed())
	for i := range services.Items {
		service := &services.Items[i]
		if !slices.ContainsFunc(listeners.Items, func(l listenersv1alpha1.Listener) bool { return metav1.IsControlledBy(service, &l) }) {
			f.Expect(client.IgnoreNotFound(f.Delete(f.Context(), service))).To(Succeed())
		}
	}
}

// conditionsOf returns the conditions of a Listener, which may have no status.
func conditionsOf(l *listenersv1alpha1.Listener) []metav1.Condition {
	if l.Status == nil {
		return nil
	}
	return l.Status.Conditions
}
