package listener_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
					all[accepted(&listeners.Items[i]).Reason]++
				}
				delete(all, "") // of those without a status
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
				if accepted(l).Status == metav1.ConditionTrue {
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
