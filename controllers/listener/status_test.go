package listener

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// TestStatus compares the whole status, and the events, with golden files.
func TestStatus(t *testing.T) {
	previous := &listenersv1alpha1.ListenerStatus{
		ServiceName: ptr.To("web"), NodePorts: map[string]int32{"http": 30080}, ObservedGeneration: 2,
		IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)}, Summary: listenersv1alpha1.ListenerSummary{Nodes: "node-1"},
	}
	for name, state := range map[string]*state{
		"host ports of the Pods that mount volumes": newState(clusterIP).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
			newVolume("pv-1", nil), newMount("1", "b", "pv-1"), newHostPortPod("1", "b", 8081),
			newVolume("pv-2", nil), newMount("2", "a", "pv-2"), newHostPortPod("2", "a", 8082)).change(withHostPorts),
		"no host ports": newState(clusterIP).with(newNode("a", "10.0.0.1"),
			newVolume("pv-1", nil), newMount("1", "a", "pv-1"), newHostPortPod("1", "a", 0)).change(withHostPorts),
		"host port of a node whose Pod is being replaced": newState(clusterIP).with(newNode("a", "10.0.0.1"), newVolume("pv-1", pinnedTo("a"))).change(withHostPorts).change(func(s *state) {
			s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 8081)}}
		}),
		"node ports while no Pod of a class that changed to host ports has one": newState(clusterIP).with(newNode("a", "10.0.0.1"),
			newVolume("pv-1", nil), newMount("1", "a", "pv-1"), newHostPortPod("1", "a", 0)).change(withHostPorts).change(func(s *state) {
			s.service.Spec.Type, s.service.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		}),
		"one of two nodes does not exist": newState(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", lastMountedOn("gone")), newVolume("pv-2", lastMountedOn("a"))),
		"no node with an address":         newState(nodePort).with(newVolume("pv-1", lastMountedOn("gone")), objects.Node("mute"), newVolume("pv-2", lastMountedOn("mute"))),
		"never mounted":                   newState(nodePort),
		"no node ports":                   newState(nodePort).change(func(s *state) { s.service.Spec.Ports[0].NodePort = 0 }),
		"load balancer": newState(loadBalancer).change(func(s *state) {
			s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		}),
		"no load balancer address with a loadBalancerClass": newState(loadBalancer).change(func(s *state) { s.class.Spec.LoadBalancerClass = ptr.To("example.com/lb") }),
		"no load balancer address":                          newState(loadBalancer),
		"node ports while there is no load balancer address": newState(loadBalancer).with(newNode("a", "10.0.0.9"), newVolume("pv", lastMountedOn("a"))).change(func(s *state) {
			s.service.Spec.Ports[0].NodePort, s.listener.Status = 30080, previous
		}),
		"no load balancer address because of its ports": newState(loadBalancer).change(func(s *state) {
			s.service.Status.Conditions = []metav1.Condition{{
				Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionTrue, Reason: corev1.LoadBalancerPortsErrorReason, Message: "TCP and UDP\x1b[31m",
			}}
		}),
		"no load balancer address because none is left": newState(loadBalancer).change(func(s *state) {
			s.service.Status.Conditions = []metav1.Condition{
				{Type: corev1.LoadBalancerPortsError, Status: metav1.ConditionFalse, Reason: "OK"},
				{Type: "cilium.io/IPAMRequestSatisfied", Status: metav1.ConditionFalse, Reason: "out_of_ips", Message: "All pools are exhausted"},
			}
		}),
		"load balancer that does not serve a port": newState(loadBalancer).change(func(s *state) {
			s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{IP: "203.0.113.1", Ports: []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 53, Protocol: corev1.ProtocolUDP, Error: ptr.To("example.com/NoUDP")}}},
				{IP: "203.0.113.2", Ports: []corev1.PortStatus{{Port: 53, Protocol: corev1.ProtocolUDP, Error: ptr.To("example.com/NoUDP")}}},
			}
		}),
		"load balancer with an address inside the cluster": newState(loadBalancer).change(func(s *state) {
			s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "gw.infra.svc.cluster.local"}}
		}),
		"cluster IP": newState(clusterIP),
		"cluster IP with a configured cluster domain": newState(clusterIP).change(func(s *state) {
			s.configuration = &operatorv1alpha1.ListenerOperator{
				ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName},
				Spec:       operatorv1alpha1.ListenerOperatorSpec{ClusterDomain: "example.org"},
			}
		}),
		"Pods": newState(clusterIP).change(withPods).change(func(s *state) { s.service.Spec.ClusterIP = corev1.ClusterIPNone }),
		"cluster IP of a class that changed to Pods": newState(clusterIP).change(withPods),
		"node ports of a class that changed to Pods": newState(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", pinnedTo("a"))).change(withPods).
			change(func(s *state) { s.class.Spec.ServiceType = clusterIP }),
		"Pods of a class that changed to node ports": newState(nodePort).change(func(s *state) {
			s.service.Spec.Type, s.service.Spec.ClusterIP, s.service.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, 0
		}),
		"load balancer of a class that changed to Pods": newState(loadBalancer).change(withPods).change(func(s *state) {
			s.class.Spec.ServiceType, s.service.Status.LoadBalancer.Ingress = clusterIP, []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		}),
		"Pods of a class that changed to cluster IP": newState(clusterIP).change(withHeadlessService),
		"Pods of a class that changed to IP addresses": newState(clusterIP).change(withHeadlessService).change(func(s *state) {
			s.class.Spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeIP
		}),
		"Pods of a class that changed to load balancer": newState(clusterIP).change(withHeadlessService).change(func(s *state) { s.class.Spec.ServiceType = loadBalancer }),
		"no cluster IP": newState(clusterIP).change(func(s *state) {
			s.class.Spec.PreferredAddressType, s.service.Spec.ClusterIPs = listenersv1alpha1.PreferredAddressTypeIP, nil
		}),
		"terminating Service":             newState(clusterIP).change(func(s *state) { terminating(s.service) }),
		"no class set":                    newState(nodePort).change(func(s *state) { s.service, s.listener.Spec.ClassName = nil, nil }),
		"class that does not exist":       newState(nodePort).change(func(s *state) { s.service, s.class = nil, nil }),
		"deleted class, existing Service": newState(nodePort).change(func(s *state) { s.class, s.listener.Status = nil, previous }),
		"deleted class, deleted Service":  newState(nodePort).change(func(s *state) { s.class, s.service, s.listener.Status = nil, nil, previous }),
		"no ports":                        newState(clusterIP).change(func(s *state) { s.service, s.listener.Spec.Ports = nil, nil }),
		"invalid overrides, existing Service": newState(clusterIP).change(func(s *state) {
			s.listener.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Service",` +
				`"metadata":{"name":"web","namespace":"shop"},"spec":{"externalIPs":["192.0.2.1"]}}`)}}
		}),
		"foreign Service": newState(clusterIP).change(func(s *state) { s.service.OwnerReferences, s.listener.Status = nil, previous }),
		"Service of a deleted Listener of the same name": newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].UID = "old" }),
		"Service of a deleted Listener of another name": newState(clusterIP).change(func(s *state) {
			s.service.OwnerReferences[0].UID, s.service.OwnerReferences[0].Name = "old", "shop"
		}),
		"Service that the Listener owns but does not control": newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].Controller = nil }),
		"Service of a Listener of another API group":          newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].APIVersion = "gateway.example/v1" }),
		"Service of another kind of owner":                    newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].Kind = "PodListeners" }),
		"Service of a Listener of another API version":        newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].APIVersion = "listeners.stackable.tech/v1" }),
	} {
		t.Run(name, func(t *testing.T) {
			o := state.reconcile(t, 1, interceptor.Funcs{}, nil)
			check.Must(t, o.err)
			for i := range o.listener.Status.Conditions {
				o.listener.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			if o.listener.Status.UnusedSince != nil {
				o.listener.Status.UnusedSince = ptr.To(metav1.Unix(0, 0))
			}
			golden.Compare(t, "status/"+strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-"), map[string]any{"status": o.listener.Status, "events": o.events})
		})
	}
}

// The Listener of an inline volume belongs to its Pod, which has no label before the Listener exists.
func TestTheFirstStatusHasTheNodeOfThePod(t *testing.T) {
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		node        string
		want        []string
	}{
		"of a class with node ports":    {nodePort, "node-1", []string{"10.0.0.1map[http:30080]"}},
		"of a class that needs no node": {clusterIP, "", []string{"web.shop.svc.cluster.localmap[http:80]"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newLabelledPod("0", tc.node, key.Name, corev1.PodPending) // the claim that the inline volume stands for
			pod.Labels = nil
			s := newState(tc.serviceType).with(pod, newNode("node-1", "10.0.0.1"))
			s.listener.Annotations = map[string]string{names.AnnotationClaim: s.listener.Name}
			s.listener.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
			got := s.reconcile(t, 1, interceptor.Funcs{}, nil)
			check.Must(t, got.err)
			check.Equal(t, "addresses", tc.want, got.addresses())
		})
	}
}
