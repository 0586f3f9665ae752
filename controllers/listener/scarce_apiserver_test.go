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
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// scarce is something that each Listener of a class needs for itself.
type scarce struct {
	class  listenersv1alpha1.ListenerClassSpec
	values []string // all that there are
	// exhausted is the reason, and a part of the message, if none is left.
	exhausted, message string
	// of returns what the Listener of the fixture has, or "".
	of func(*gateways) string
	// object returns the object by which the Listener has it.
	object func(*gateways) client.Object
	// occupy returns an object of others that has the third one. It may be nil.
	occupy func(*gateways) client.Object
	// more lets there be another one.
	more func(*gateways)
	left string // the label of the metric, or ""
	// inStatus means that the status has it, so that it outlives an object that is deleted while the operator is away.
	inStatus bool
}

func values(format string, first, count int) (all []string) {
	for i := range count {
		all = append(all, fmt.Sprintf(format, first+i))
	}
	return all
}

func scarceThings() map[string]scarce {
	meta := func(g *gateways, suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name + suffix}
	}
	service := func(g *gateways) client.Object { return &corev1.Service{ObjectMeta: meta(g, "")} }
	// ofService returns a number of the Service, if the status has it, too.
	ofService := func(number func(corev1.ServicePort) int32, status func(*listenersv1alpha1.ListenerStatus) map[string]int32) func(*gateways) string {
		return func(g *gateways) string {
			s := &corev1.Service{}
			l := g.listener()
			if err := g.Get(g.Context(), g.key, s); err != nil || l.Status == nil || number(s.Spec.Ports[0]) == 0 || status(l.Status)["http"] != number(s.Spec.Ports[0]) {
				return ""
			}
			return fmt.Sprint(number(s.Spec.Ports[0]))
		}
	}
	parent := func(g *gateways) (*gatewayv1.Namespace, gatewayv1.ObjectName) {
		return ptr.To[gatewayv1.Namespace](metav1.NamespaceDefault), gatewayv1.ObjectName(g.edge)
	}
	changeClass := func(change func(*listenersv1alpha1.ListenerClassSpec)) func(*gateways) {
		return func(g *gateways) { g.change(g.class, func() { change(&g.class.Spec) }) }
	}
	ports := gatewayClass(listenersv1alpha1.GatewayRouteKindTCP, "")
	ports.Gateway.PortRange = "20000-20006" // of which the Gateway itself has the first
	return map[string]scarce{
		"node ports": {
			class:  listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "30040-30045"}}, // Kubernetes allocates such low numbers last
			values: values("%d", 30040, 6), exhausted: listenersv1alpha1.ReasonNodePortsExhausted, left: "NodePort", inStatus: true, object: service,
			of:     ofService(func(p corev1.ServicePort) int32 { return p.NodePort }, func(s *listenersv1alpha1.ListenerStatus) map[string]int32 { return s.NodePorts }),
			occupy: func(g *gateways) client.Object { return g.occupy(30042) },
			more:   changeClass(func(c *listenersv1alpha1.ListenerClassSpec) { c.NodePorts.Range = "30040-30046" }),
		},
		"ports of a shared address": {
			class: sharing(9000, 6), values: values("%d", 9000, 6), exhausted: listenersv1alpha1.ReasonSharedPortsExhausted, left: "SharedPort", inStatus: true, object: service,
			of:   ofService(func(p corev1.ServicePort) int32 { return p.Port }, func(s *listenersv1alpha1.ListenerStatus) map[string]int32 { return s.SharedPorts }),
			more: changeClass(func(c *listenersv1alpha1.ListenerClassSpec) { c.LoadBalancer = sharing(9000, 7).LoadBalancer }),
		},
		"cluster IPs": { // without the first and the last address
			class: routedClass("10.97.0.16/29"), values: values("10.97.0.%d", 17, 6), exhausted: listenersv1alpha1.ReasonClusterIPsExhausted, inStatus: true, object: service,
			message: "other Services and Listeners have all of 10.97.0.16/29; add a range to spec.clusterIPs.cidrs of ListenerClass class-",
			of:      func(g *gateways) string { return g.clusterIP() },
			occupy: func(g *gateways) client.Object {
				g.createServiceCIDR("10.97.0.0/20")
				s := &corev1.Service{ObjectMeta: meta(g, "-foreign"), Spec: corev1.ServiceSpec{ClusterIP: "10.97.0.19", Ports: []corev1.ServicePort{{Port: 80}}}}
				g.Expect(g.Create(g.Context(), s)).To(Succeed())
				return s
			},
			more: changeClass(func(c *listenersv1alpha1.ListenerClassSpec) {
				c.ClusterIPs.CIDRs = []listenersv1alpha1.CIDR{"10.97.0.24/31", "10.97.0.16/29"}
			}),
		},
		"listeners of a Gateway": {
			class: gatewayClass(listenersv1alpha1.GatewayRouteKindTCP, ""), values: values("tcp-%d", 0, 6),
			exhausted: listenersv1alpha1.ReasonNoGatewayListener, message: "/web-foreign has it",
			of:     func(g *gateways) string { return g.sections()[g.key.Name+"-http"] },
			object: func(g *gateways) client.Object { return &gatewayv1.TCPRoute{ObjectMeta: meta(g, "-http")} },
			occupy: func(g *gateways) client.Object { return g.createForeignRoute(g.key.Namespace, "tcp-2") },
			more: func(g *gateways) {
				gateway := &gatewayv1.Gateway{}
				g.Expect(g.api.Get(g.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: g.edge}, gateway)).To(Succeed())
				gateway.Spec.Listeners = append(gateway.Spec.Listeners, gatewayListener("tcp-6", gatewayv1.TCPProtocolType, 9006))
				g.Expect(g.api.Update(g.Context(), gateway)).To(Succeed())
			},
		},
		"ports of a Gateway": {
			class: ports, values: values("%d", 20001, 6), exhausted: listenersv1alpha1.ReasonGatewayPortsExhausted,
			message: "is left for port http: its other listeners have all of 20000-20006",
			of: func(g *gateways) string {
				if port := g.ports()[g.key.Name+"-tcp/http"]; port != 0 {
					return fmt.Sprint(port)
				}
				return ""
			},
			object: func(g *gateways) client.Object { return &gatewayv1.ListenerSet{ObjectMeta: meta(g, "-tcp")} },
			occupy: func(g *gateways) client.Object {
				set := &gatewayv1.ListenerSet{ObjectMeta: meta(g, "-foreign")}
				set.Spec.ParentRef.Namespace, set.Spec.ParentRef.Name = parent(g)
				set.Spec.Listeners = []gatewayv1.ListenerEntry{{Name: "x", Port: 20003, Protocol: gatewayv1.UDPProtocolType}}
				g.Eventually(func() error { return g.api.Create(g.Context(), set) }).Should(Succeed())
				return set
			},
			more: changeClass(func(c *listenersv1alpha1.ListenerClassSpec) { c.Gateway.PortRange = "20000-20007" }),
		},
	}
}

// As many Listeners as there are, created at the same time in two namespaces, each have one, which stays when its
// object is deleted and when the operator restarts, although others wait for one. These get each that is free.
func TestListenersOfAllNamespacesHaveOneEach(t *testing.T) {
	for name, s := range scarceThings() {
		t.Run(name, func(t *testing.T) {
			g := newGateways(t, listenersv1alpha1.GatewayRouteKindTCP)
			crds.Install(t, g.Client, append(gatewayKinds(), crds.ListenerSets)...)
			listeners := []gatewayv1.Listener{gatewayListener("own", gatewayv1.UDPProtocolType, 20000)}
			for i := range 6 {
				listeners = append(listeners, gatewayListener(fmt.Sprint("tcp-", i), gatewayv1.TCPProtocolType, gatewayv1.PortNumber(9000+i))) //nolint:gosec // few
			}
			g.allowListenerSets(g.createGateway(listeners...), gatewayv1.NamespacesFromAll)
			g.change(g.class, func() {
				if g.class.Spec = s.class; s.class.Gateway != nil {
					g.class.Spec.Gateway = s.class.Gateway.DeepCopy()
					g.class.Spec.Gateway.ParentRefs[0].Name = g.edge
				}
			})
			namespaces, free := []string{g.key.Namespace, apiserver.Namespace(t)}, len(s.values)
			has := func(key client.ObjectKey) func() string {
				return func() string {
					g.key = key
					return s.of(g)
				}
			}
			remove := func(o client.Object) { g.Expect(client.IgnoreNotFound(g.Delete(t.Context(), o))).To(Succeed()) }
			var foreign client.Object
			if s.occupy != nil {
				foreign = s.occupy(g)
				free--
			}
			left := func(want int) {
				t.Helper()
				if s.left != "" {
					g.Eventually(func() int { return g.left(g.class.Name, s.left) }).Should(Equal(want))
				}
			}
			left(free)

			before, holders := map[client.ObjectKey]string{}, map[string]client.ObjectKey{}
			var keys []client.ObjectKey
			for i := range free {
				g.key = client.ObjectKey{Namespace: namespaces[i%2], Name: fmt.Sprint("web-", i)}
				g.createListener(nil)
				keys = append(keys, g.key)
			}
			for _, key := range keys {
				g.Eventually(has(key)).Should(BeElementOf(s.values))
				before[key] = s.of(g)
				g.Expect(holders).NotTo(HaveKey(before[key]))
				holders[before[key]] = key
			}
			left(0)
			waits := func(name string) client.ObjectKey {
				g.key = client.ObjectKey{Namespace: namespaces[1], Name: name}
				g.createListener(nil)
				g.eventually(listenersv1alpha1.ListenerAccepted, s.exhausted)
				g.Expect(s.of(g)).To(BeEmpty())
				return g.key
			}
			waiting := []client.ObjectKey{waits("first")}
			g.Expect(accepted(g.listener()).Message).To(ContainSubstring(s.message))

			for _, key := range keys {
				g.key = key
				remove(s.object(g))
				g.Eventually(has(key)).Should(Equal(before[key]))
			}
			stopProcess(t)
			if g.key = keys[0]; s.inStatus {
				remove(s.object(g))
			}
			g.start(settings{})
			for _, key := range keys {
				g.Eventually(has(key)).Should(Equal(before[key]))
			}
			g.Eventually(g.idle).Should(BeTrue())
			g.Expect(has(waiting[0])()).To(BeEmpty())
			if foreign != nil {
				remove(foreign)
				g.Eventually(has(waiting[0])).Should(Equal(s.values[2]))
				waiting = nil
			}

			// As many that wait get one as there are free ones, one after the other.
			for len(waiting) < 3 {
				waiting = append(waiting, waits(fmt.Sprint("later-", len(waiting))))
			}
			for _, g.key = range keys[:2] {
				remove(&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name}})
			}
			served := func() (served int) {
				for _, g.key = range keys[:2] { // also what the operator has applied again, as the garbage collector does
					remove(s.object(g))
				}
				for _, key := range waiting {
					if has(key)() != "" {
						served++
					}
				}
				return served
			}
			g.Eventually(served).Should(Equal(2))
			g.Eventually(g.idle).Should(BeTrue())
			g.Expect(served()).To(Equal(2))

			s.more(g)
			g.Eventually(served).Should(Equal(3))
			for _, key := range keys[2:] {
				g.Expect(has(key)()).To(Equal(before[key]))
			}
		})
	}
}

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
