package listener

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestStatusReportsAddressesAndConditions(t *testing.T) {
	const (
		nodePort     = listenersv1alpha1.ServiceTypeNodePort
		loadBalancer = listenersv1alpha1.ServiceTypeLoadBalancer
		clusterIP    = listenersv1alpha1.ServiceTypeClusterIP
		accepted     = listenersv1alpha1.ReasonAccepted
		assigned     = listenersv1alpha1.ReasonAddressesAssigned
		notAccepted  = listenersv1alpha1.ReasonNotAccepted
	)
	previous := &listenersv1alpha1.ListenerStatus{
		ServiceName: ptr.To("web"), NodePorts: map[string]int32{"http": 30080}, ObservedGeneration: 2,
		IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)},
	}
	for name, tc := range map[string]struct {
		state     *state
		addresses []listenersv1alpha1.IngressAddress
		accepted  string // reason
		ready     string // reason
		message   string // part of the message of Accepted if that is false, or else of Ready
		noService bool   // the status has no service name
	}{
		"node ports of the nodes that volumes are pinned to or were mounted on, sorted by name": {
			state: newState(nodePort).with(newNode("b", "10.0.0.1"), newNode("a", "10.0.0.2"), newNode("c", "10.0.0.3"),
				newVolume("pv-1", lastMountedOn("b")), newVolume("pv-2", pinnedTo("a"))),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080), ipAddress("10.0.0.1", 30080)},
			accepted:  accepted, ready: assigned, message: "reachable at 10.0.0.2 and 1 more",
		},
		"current mount takes precedence over the last mount": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1"), newPod("1", corev1.PodPending)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"Pod that was deleted does not mount, although its PodListeners exists": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", lastMountedOn("a")), newMount("1", "b", "pv-1")),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"pinned node takes precedence over mounts": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newNode("c", "10.0.0.3"),
				newVolume("pv-1", pinnedTo("a")), newMount("1", "b", "pv-1"), newPod("1", corev1.PodRunning), newVolume("pv-2", func(pv *corev1.PersistentVolume) {
					pinnedTo("a")(pv)
					lastMountedOn("c")(pv)
				})),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"volume mounted by several Pods": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", nil), newMount("1", "b", "pv-1"), newMount("2", "a", "pv-1"), newPod("1", corev1.PodRunning), newPod("2", corev1.PodRunning)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080), ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"Pod that mounts a volume which does not exist any more": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newMount("1", "a", "pv-1"), newPod("1", corev1.PodRunning)).
				change(func(s *state) {
					another := newMount("2", "b", "pv-2") // a Pod with a volume of this Listener and one of another one
					another.Spec.Listeners["another"] = listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, PersistentVolumeName: "pv-3", ListenerName: "another"}
					s.others = append(s.others, another, newPod("2", corev1.PodRunning), newVolume("pv-2", pinnedTo("a")))
				}),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"Pods with the label of the Listener, before the PodListeners of Stackable's operator are written again": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newNode("c", "10.0.0.3"), newNode("d", "10.0.0.4"),
				newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", func(*corev1.PersistentVolume) {})),
				newMount("1", "", ""), newLabelledPod("1", "a", "pvc-1", corev1.PodRunning),
				newMount("2", "b", "pv-1"), newLabelledPod("2", "b", "pvc-1", corev1.PodRunning),
				newLabelledPod("3", "c", "pvc-1", corev1.PodSucceeded), newLabelledPod("4", "d", "another", corev1.PodRunning), newLabelledPod("5", "", "pvc-1", corev1.PodPending)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080), ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"Pod with the label of another Listener, or without one, before its PodListeners are written": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"),
				newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", func(*corev1.PersistentVolume) {}))).change(func(s *state) {
				other := newLabelledPod("1", "a", "pvc-1", corev1.PodRunning)
				other.Labels = map[string]string{names.PodMountLabel("another-uid"): "another"}
				s.others = append(s.others, other)
			}),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"finished Pod does not mount": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", lastMountedOn("a")), newMount("1", "a", "pv-1"), newMount("2", "b", "pv-1"), newPod("1", corev1.PodFailed), newPod("2", corev1.PodRunning)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"volume of a finished Pod stays reserved for the next Pod": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", ""),
				newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodFailed)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"ephemeral volume of a finished Pod": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodSucceeded),
				newClaim("pvc-2", "2"), newVolume("pv-2", boundTo("pvc-2", lastMountedOn("b"))), newMount("2", "b", "pv-2"), newPod("2", corev1.PodRunning)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.2", 30080)}, accepted: accepted, ready: assigned,
		},
		"ephemeral volume of a deleted Pod": {
			state:    newState(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", "1"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a")))),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"volume of a deleted claim": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"), newVolume("pv-1", boundTo("pvc-1", lastMountedOn("a"))),
				newClaim("pvc-2", ""), newVolume("pv-2", boundTo("pvc-2", func(pv *corev1.PersistentVolume) {
					lastMountedOn("b")(pv)
					pv.Spec.ClaimRef.UID = "deleted-claim-of-this-name"
				}))),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"pinned volume of a finished Pod": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newClaim("pvc-1", "1"),
				newVolume("pv-1", boundTo("pvc-1", pinnedTo("a"))), newMount("1", "a", "pv-1"), newPod("1", corev1.PodSucceeded)),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"volume of another driver with our labels": {
			state: newState(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", func(pv *corev1.PersistentVolume) {
				lastMountedOn("a")(pv)
				pv.Spec.CSI.Driver = "other.example.com"
			}), newMount("1", "a", "pv-1"), newPod("1", corev1.PodRunning)),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods,
		},
		"host ports of the Pods that mount volumes": {
			state: newState(clusterIP).with(newNode("a", "10.0.0.1"), newNode("b", "10.0.0.2"),
				newVolume("pv-1", nil), newMount("1", "b", "pv-1"), newHostPortPod("1", "b", 8081),
				newVolume("pv-2", nil), newMount("2", "a", "pv-2"), newHostPortPod("2", "a", 8082)).change(withHostPorts),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 8082), ipAddress("10.0.0.2", 8081)},
			accepted:  accepted, ready: assigned,
		},
		"no host ports": {
			state: newState(clusterIP).with(newNode("a", "10.0.0.1"),
				newVolume("pv-1", nil), newMount("1", "a", "pv-1"), newHostPortPod("1", "a", 0)).change(withHostPorts),
			accepted: accepted, ready: listenersv1alpha1.ReasonNoHostPorts, message: `Pod shop/web-1 declares no hostPort for "http" (80/TCP)`,
		},
		"host port of a node whose Pod is being replaced": {
			state: newState(clusterIP).with(newNode("a", "10.0.0.1"), newVolume("pv-1", pinnedTo("a"))).change(withHostPorts).change(func(s *state) {
				s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 8081)}}
			}),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 8081)}, accepted: accepted, ready: assigned,
		},
		"node ports while no Pod of a class that changed to host ports has one": {
			state: newState(clusterIP).with(newNode("a", "10.0.0.1"),
				newVolume("pv-1", nil), newMount("1", "a", "pv-1"), newHostPortPod("1", "a", 0)).change(withHostPorts).change(func(s *state) {
				s.service.Spec.Type, s.service.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
			}),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)}, accepted: accepted, ready: assigned,
		},
		"one of two nodes does not exist": {
			state:     newState(nodePort).with(newNode("a", "10.0.0.1"), newVolume("pv-1", lastMountedOn("gone")), newVolume("pv-2", lastMountedOn("a"))),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)},
			accepted:  accepted, ready: assigned, message: "left out: gone (Node does not exist)",
		},
		"no node with an address": {
			state:    newState(nodePort).with(newVolume("pv-1", lastMountedOn("gone")), objects.Node("mute"), newVolume("pv-2", lastMountedOn("mute"))),
			accepted: accepted, ready: listenersv1alpha1.ReasonNodesMissing,
			message: "gone (Node does not exist), mute (neither a valid IP address nor a valid host name)",
		},
		"never mounted": {
			state: newState(nodePort), accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForPods, message: "no Pod has mounted",
		},
		"no node ports": {
			state:    newState(nodePort).change(func(s *state) { s.service.Spec.Ports[0].NodePort = 0 }),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForNodePorts, message: "Service shop/web has no node ports",
		},
		"load balancer": {
			state: newState(loadBalancer).change(func(s *state) {
				s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
			}),
			addresses: []listenersv1alpha1.IngressAddress{ipAddress("203.0.113.1", 80)}, accepted: accepted, ready: assigned,
		},
		"no load balancer address with a loadBalancerClass": {
			state:    newState(loadBalancer).change(func(s *state) { s.class.Spec.LoadBalancerClass = ptr.To("example.com/lb") }),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForLoadBalancer, message: `loadBalancerClass "example.com/lb", which ListenerClass some-class sets`,
		},
		"no load balancer address": {
			state: newState(loadBalancer), accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForLoadBalancer, message: "the cluster's default load balancer",
		},
		"cluster IP": {
			state:     newState(clusterIP),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
		"cluster IP with a configured cluster domain": {
			state: newState(clusterIP).change(func(s *state) {
				s.configuration = &operatorv1alpha1.ListenerOperator{
					ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName},
					Spec:       operatorv1alpha1.ListenerOperatorSpec{ClusterDomain: "example.org"},
				}
			}),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.example.org", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
		"no cluster IP": {
			state: newState(clusterIP).change(func(s *state) {
				s.class.Spec.PreferredAddressType, s.service.Spec.ClusterIPs = listenersv1alpha1.PreferredAddressTypeIP, nil
			}),
			accepted: accepted, ready: listenersv1alpha1.ReasonWaitingForClusterIP, message: "no cluster IP",
		},
		"terminating Service": {
			state: newState(clusterIP).change(func(s *state) {
				s.service.DeletionTimestamp, s.service.Finalizers = ptr.To(metav1.Now()), []string{"example.com/cleanup"}
			}),
			accepted: accepted, ready: listenersv1alpha1.ReasonServiceTerminating, message: "is being deleted",
		},
		"no class set": {
			state:    newState(nodePort).change(func(s *state) { s.service, s.listener.Spec.ClassName = nil, nil }),
			accepted: listenersv1alpha1.ReasonClassNotSet, ready: notAccepted, message: "spec.className is not set", noService: true,
		},
		"class that does not exist": {
			state:    newState(nodePort).change(func(s *state) { s.service, s.class = nil, nil }),
			accepted: listenersv1alpha1.ReasonClassNotFound, ready: notAccepted, message: `ListenerClass "some-class" does not exist`, noService: true,
		},
		"deleted class, existing Service": {
			state:     newState(nodePort).change(func(s *state) { s.class, s.listener.Status = nil, previous }),
			addresses: previous.IngressAddresses, accepted: listenersv1alpha1.ReasonClassNotFound, ready: assigned, message: "do not change",
		},
		"deleted class, deleted Service": {
			state:    newState(nodePort).change(func(s *state) { s.class, s.service, s.listener.Status = nil, nil, previous }),
			accepted: listenersv1alpha1.ReasonClassNotFound, ready: notAccepted, noService: true,
		},
		"no ports": {
			state:    newState(clusterIP).change(func(s *state) { s.service, s.listener.Spec.Ports = nil, nil }),
			accepted: listenersv1alpha1.ReasonNoPorts, ready: notAccepted, message: "spec.ports is empty", noService: true,
		},
		"invalid overrides, existing Service": {
			state: newState(clusterIP).change(func(s *state) {
				s.listener.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Service",` +
					`"metadata":{"name":"web","namespace":"shop"},"spec":{"externalIPs":["192.0.2.1"]}}`)}}
			}),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  listenersv1alpha1.ReasonInvalidOverrides, ready: assigned, message: "only a ListenerClass may set spec.externalIPs; remove it",
		},
		"foreign Service": {
			state: newState(clusterIP).change(func(s *state) {
				s.service.OwnerReferences, s.listener.Status = nil, previous
			}),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, message: "Service shop/web already exists and has no controller", noService: true,
		},
		"Service of a deleted Listener of the same name": {
			state:    newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].UID = "old" }),
			accepted: accepted, ready: listenersv1alpha1.ReasonServiceTerminating, message: "is being deleted, and will then be created again", noService: true,
		},
		"Service of a deleted Listener of another name": {
			state: newState(clusterIP).change(func(s *state) {
				s.service.OwnerReferences[0].UID, s.service.OwnerReferences[0].Name = "old", "shop"
			}),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, message: "is controlled by Listener shop with UID old", noService: true,
		},
		"Service that the Listener owns but does not control": {
			state:    newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].Controller = nil }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"Service of a Listener of another API group": {
			state:    newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].APIVersion = "gateway.example/v1" }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"Service of another kind of owner": {
			state:    newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].Kind = "PodListeners" }),
			accepted: listenersv1alpha1.ReasonForeignService, ready: notAccepted, noService: true,
		},
		"Service of a Listener of another API version": {
			state:     newState(clusterIP).change(func(s *state) { s.service.OwnerReferences[0].APIVersion = "listeners.stackable.tech/v1" }),
			addresses: []listenersv1alpha1.IngressAddress{{Address: "web.shop.svc.cluster.local", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 80}}},
			accepted:  accepted, ready: assigned,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.reconcile(t, 1, interceptor.Funcs{}, nil)
			if o.err != nil {
				t.Fatal(o.err)
			}
			status := o.listener.Status
			if tc.addresses == nil {
				tc.addresses = []listenersv1alpha1.IngressAddress{} // never null
			}
			if diff := cmp.Diff(tc.addresses, status.IngressAddresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if got := status.ServiceName == nil; got != tc.noService {
				t.Errorf("status without a service name: got %t, want %t", got, tc.noService)
			}
			if len(status.Conditions) != 2 || status.ObservedGeneration != 3 {
				t.Fatalf("got conditions %v of generation %d", status.Conditions, status.ObservedGeneration)
			}
			reasons := []string{status.Conditions[0].Reason, status.Conditions[1].Reason}
			if diff := cmp.Diff([]string{tc.accepted, tc.ready}, reasons); diff != "" {
				t.Errorf("reasons of Accepted and Ready (-want +got):\n%s", diff)
			}
			condition := status.Conditions[1]
			if status.Conditions[0].Status == metav1.ConditionFalse {
				condition = status.Conditions[0]
			}
			if !strings.Contains(condition.Message, tc.message) {
				t.Errorf("message is %q, want %q in it", condition.Message, tc.message)
			}
			// That a new Listener waits for its Pods, or has all its addresses, needs no event.
			expected := tc.ready == listenersv1alpha1.ReasonWaitingForPods || tc.ready == assigned && tc.accepted == accepted &&
				!strings.Contains(condition.Message, "left out") && !strings.Contains(condition.Message, "previous exposure")
			if expected == (len(o.events) > 0) {
				t.Errorf("got events %q", o.events)
			}
		})
	}
}

// The event about them is on the class, which many Listeners may share.
func TestIgnoredSettingsOfTheClassAreInTheCondition(t *testing.T) {
	o := newState(listenersv1alpha1.ServiceTypeLoadBalancer).change(func(s *state) { s.class.Spec.PinnedNodePorts = true }).reconcile(t, 1, interceptor.Funcs{}, nil)
	accepted := o.condition(listenersv1alpha1.ListenerAccepted)
	if o.err != nil || accepted.Status != metav1.ConditionTrue || !strings.Contains(accepted.Message, "; pinnedNodePorts of ListenerClass some-class has no effect: ") {
		t.Errorf("error %v, condition %+v", o.err, accepted)
	}
	for _, e := range o.events {
		if strings.Contains(e, "has no effect") {
			t.Errorf("event %q", e)
		}
	}
}

func TestNodePortsStayInStatusWhenTheClassIsDeleted(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeNodePort)
	s.class = nil
	s.listener.Status = &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30080}, IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
	if diff := cmp.Diff(map[string]int32{"http": 30080}, o.listener.Status.NodePorts); diff != "" || o.err != nil {
		t.Errorf("error %v, node ports (-want +got):\n%s", o.err, diff)
	}
}

func TestNodePortsAreReportedForNodePortClassesOnly(t *testing.T) {
	for serviceType, want := range map[listenersv1alpha1.ServiceType]map[string]int32{
		listenersv1alpha1.ServiceTypeNodePort:     {"http": 30080},
		listenersv1alpha1.ServiceTypeLoadBalancer: nil,
		listenersv1alpha1.ServiceTypeClusterIP:    nil,
	} {
		s := newState(serviceType)
		s.service.Spec.Ports[0].NodePort = 30080 // Services of type LoadBalancer have node ports, too
		o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
		if diff := cmp.Diff(want, o.listener.Status.NodePorts); diff != "" || o.err != nil {
			t.Errorf("%s: error %v, node ports (-want +got):\n%s", serviceType, o.err, diff)
		}
	}
}

func TestServiceIsNotApplied(t *testing.T) {
	for name, change := range map[string]func(s *state){
		"foreign Service": func(s *state) { s.service.OwnerReferences = nil },
		"terminating Service": func(s *state) {
			s.service.DeletionTimestamp, s.service.Finalizers = ptr.To(metav1.Now().Rfc3339Copy()), []string{"example.com/cleanup"}
		},
		"Service of an earlier Listener": func(s *state) { s.service.OwnerReferences[0].UID = "old" },
		"Listener that is not accepted":  func(s *state) { s.listener.Spec.Ports[0].Port = 0 },
		"class that does not exist":      func(s *state) { s.class = nil },
		"terminating Listener": func(s *state) {
			s.listener.DeletionTimestamp, s.listener.Finalizers = ptr.To(metav1.Now()), []string{"foregroundDeletion"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(listenersv1alpha1.ServiceTypeClusterIP).change(change)
			o := s.reconcile(t, 1, interceptor.Funcs{Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				t.Errorf("%v was applied", o)
				return nil
			}}, nil)
			if o.err != nil {
				t.Fatal(o.err)
			}
			if diff := cmp.Diff(s.service, o.service, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion")); diff != "" {
				t.Errorf("service (-before +after):\n%s", diff)
			}
		})
	}
}

// The controller must not apply its Service over a foreign one that is missing in a stale cache.
func TestForeignServiceMissingInTheCacheIsNotModified(t *testing.T) {
	s := newState(listenersv1alpha1.ServiceTypeClusterIP).change(func(s *state) { s.service = nil })
	exists := apierrors.NewConflict(corev1.Resource("services"), key.Name, errors.New("a Service of this name exists"))
	intercept, _ := countWrites(0, exists)
	create := intercept.Apply
	intercept.Apply = func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		if version := o.(interface{ GetResourceVersion() string }).GetResourceVersion(); version != "1" {
			t.Errorf("a Service that was not observed is applied to version %q, want one that only a new object can have", version)
		}
		return create(ctx, c, o, options...)
	}
	if o := s.reconcile(t, 1, intercept, nil); !apierrors.IsConflict(o.err) {
		t.Errorf("error %v, want the conflict, after which the Listener is reconciled again", o.err)
	}
}

// kubectl get prints the summary.
func TestSummaryHasAddressRootReasonAndNodes(t *testing.T) {
	missing := newState(listenersv1alpha1.ServiceTypeClusterIP).change(func(s *state) { s.class = nil })
	kept := newState(listenersv1alpha1.ServiceTypeNodePort).change(func(s *state) {
		s.class = nil
		s.listener.Status = &listenersv1alpha1.ListenerStatus{
			NodePorts: map[string]int32{"http": 30080}, IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)},
			Summary: listenersv1alpha1.ListenerSummary{Nodes: "node-1"},
		}
	})
	waiting := newState(listenersv1alpha1.ServiceTypeLoadBalancer)
	nodes := newState(listenersv1alpha1.ServiceTypeNodePort).with(
		newNode("node-1", "10.0.0.1"), newNode("node-2", "10.0.0.2"),
		newVolume("pv-1", pinnedTo("node-1")), newVolume("pv-2", pinnedTo("node-2")),
	)
	for name, tc := range map[string]struct {
		state *state
		want  listenersv1alpha1.ListenerSummary
	}{
		"of nodes":                      {nodes, listenersv1alpha1.ListenerSummary{Address: "10.0.0.1:30080 +1", Reason: "AddressesAssigned", Nodes: "node-1,node-2"}},
		"waiting":                       {waiting, listenersv1alpha1.ListenerSummary{Reason: "WaitingForLoadBalancer"}},
		"without a class":               {missing, listenersv1alpha1.ListenerSummary{Reason: "ClassNotFound"}},
		"with addresses, but not class": {kept, listenersv1alpha1.ListenerSummary{Address: "10.0.0.1:30080", Reason: "ClassNotFound", Nodes: "node-1"}},
	} {
		o := tc.state.reconcile(t, 1, interceptor.Funcs{}, nil)
		if diff := cmp.Diff(tc.want, o.listener.Status.Summary); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEndpointsListTheFirstAddressesOfEachPort(t *testing.T) {
	many := make([]listenersv1alpha1.IngressAddress, 12)
	for i := range many {
		many[i] = ipAddress(fmt.Sprintf("10.0.0.%d", i+1), 80)
	}
	for name, tc := range map[string]struct {
		addresses []listenersv1alpha1.IngressAddress
		want      map[string]string
	}{
		"none": {nil, nil},
		"two ports, one of them of both addresses": {
			[]listenersv1alpha1.IngressAddress{
				{Address: "2001:db8::1", Ports: map[string]int32{"http": 80, "admin": 81}},
				{Address: "node-1.example.com", Ports: map[string]int32{"http": 30080}},
			},
			map[string]string{"http": "[2001:db8::1]:80,node-1.example.com:30080", "admin": "[2001:db8::1]:81"},
		},
		"twelve": {many, map[string]string{
			"http": "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80,10.0.0.4:80,10.0.0.5:80,10.0.0.6:80,10.0.0.7:80,10.0.0.8:80,10.0.0.9:80,10.0.0.10:80",
		}},
	} {
		if diff := cmp.Diff(tc.want, endpoints(tc.addresses)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	pinned := newState(listenersv1alpha1.ServiceTypeNodePort).with(newNode("node-1", "10.0.0.1"), newVolume("pv-1", pinnedTo("node-1")))
	o := pinned.reconcile(t, 1, interceptor.Funcs{}, nil)
	if got := o.listener.Status.Endpoints["http"]; got != "10.0.0.1:30080" {
		t.Errorf("the status has %q", got)
	}
}

// Nobody can do anything about these rejections. They need neither a condition nor an event, and are no reason to
// request a Service without its node ports.
func TestListenerDoesNotChangeWhileNoServiceCanBeCreated(t *testing.T) {
	terminating := apierrors.NewForbidden(corev1.Resource("services"), key.Name, errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	// The message of Kubernetes 1.36.
	starting := apierrors.NewForbidden(corev1.Resource("services"), key.Name, errors.New("cannot set blockOwnerDeletion in this case because cannot find "+
		`RESTMapping for APIVersion listeners.stackable.tech/v1alpha1 Kind Listener: no matches for kind "Listener" in version "listeners.stackable.tech/v1alpha1"`))
	for name, rejection := range map[string]error{"the namespace is being deleted": terminating, "the API server has just started": starting} {
		t.Run(name, func(t *testing.T) {
			status := &listenersv1alpha1.ListenerStatus{
				ServiceName: ptr.To(key.Name), NodePorts: map[string]int32{"http": 30080}, Endpoints: map[string]string{"http": "10.0.0.9:30080"}, ObservedGeneration: 3,
				IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)},
				Conditions:       []metav1.Condition{{Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: "Some", LastTransitionTime: metav1.Now().Rfc3339Copy()}},
			}
			s := newState(listenersv1alpha1.ServiceTypeNodePort).change(func(s *state) { s.service, s.listener.Status = nil, status })
			intercept, writes := countWrites(0, rejection)
			o := s.reconcile(t, 1, intercept, nil)
			if !errors.Is(o.err, rejection) {
				t.Errorf("error %v", o.err)
			}
			if diff := cmp.Diff([]string{"apply Service"}, *writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if len(o.events) > 0 {
				t.Errorf("events %q", o.events)
			}
		})
	}
}

func TestRejectedServiceIsReportedAndRetried(t *testing.T) {
	rejection := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), key.Name, nil)
	rejection.ErrStatus.Message = "provided port is already allocated"
	intercept, _ := countWrites(0, rejection)
	o := newState(listenersv1alpha1.ServiceTypeClusterIP).change(func(s *state) { s.service = nil }).reconcile(t, 1, intercept, nil)
	if !apierrors.IsInvalid(o.err) {
		t.Errorf("got error %v, want the rejection, so that the reconciliation is retried", o.err)
	}
	accepted := o.condition(listenersv1alpha1.ListenerAccepted)
	if accepted.Reason != listenersv1alpha1.ReasonServiceRejected || !strings.Contains(accepted.Message, "provided port is already allocated") {
		t.Errorf("got condition %v", accepted)
	}
	if diff := cmp.Diff([]string{"Warning ServiceRejected " + accepted.Message}, o.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestConditionsDoNotChangeWhileTheAPIServerIsUnavailable(t *testing.T) {
	intercept, _ := countWrites(0, apierrors.NewServiceUnavailable("busy"))
	s := newState(listenersv1alpha1.ServiceTypeClusterIP)
	before := []metav1.Condition{{
		Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}}
	s.listener.Status = &listenersv1alpha1.ListenerStatus{ObservedGeneration: 2, Conditions: before}
	o := s.reconcile(t, 1, intercept, nil)
	if !apierrors.IsServiceUnavailable(o.err) {
		t.Errorf("got error %v, want ServiceUnavailable", o.err)
	}
	if status := o.listener.Status; status.IngressAddresses == nil || status.ObservedGeneration != 2 {
		t.Errorf("got status %v", status)
	}
	if diff := cmp.Diff(before, o.listener.Status.Conditions); diff != "" || len(o.events) > 0 {
		t.Errorf("events %v, conditions (-before +after):\n%s", o.events, diff)
	}
}

func TestClusterDomainIsThatOfTheConfigurationOrOfTheResolver(t *testing.T) {
	for name, tc := range map[string]struct{ configured, resolver, want string }{
		"both unknown":                   {"", "", "cluster.local"},
		"default, and unknown":           {"cluster.local", "", "cluster.local"},
		"default, which stands for both": {"cluster.local", "k8s.example.com", "k8s.example.com"},
		"no configuration":               {"", "k8s.example.com", "k8s.example.com"},
		"configured":                     {"one.example", "k8s.example.com", "one.example"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(listenersv1alpha1.ServiceTypeClusterIP)
			if tc.configured != "" {
				s.configuration = &operatorv1alpha1.ListenerOperator{
					ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}, Spec: operatorv1alpha1.ListenerOperatorSpec{ClusterDomain: tc.configured},
				}
			}
			o := s.reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { r.ClusterDomain = tc.resolver })
			if diff := cmp.Diff([]string{"web.shop.svc." + tc.want + "map[http:80]"}, o.addresses()); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSecondReconciliationWritesNothing(t *testing.T) {
	for name, s := range map[string]*state{
		"NodePort":  newState(listenersv1alpha1.ServiceTypeNodePort),
		"ClusterIP": newState(listenersv1alpha1.ServiceTypeClusterIP),
		"NodePort without node ports": newState(listenersv1alpha1.ServiceTypeNodePort).change(func(s *state) {
			s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"type":"ClusterIP"}}`)
			s.service.Spec.Ports[0].NodePort = 0
		}),
	} {
		intercept, writes := countWrites(-1, nil)
		o := s.with(newNode("a", "10.0.0.1"), newVolume("pv", lastMountedOn("a"))).reconcile(t, 3, intercept, nil)
		events := 0
		if len(o.listener.Status.IngressAddresses) == 0 {
			events = 1 // that there is no address
		}
		if diff := cmp.Diff([]string{"apply Service", "apply status"}, *writes); diff != "" || len(o.events) != events || o.err != nil {
			t.Errorf("%s: error %v, events %q, writes in three reconciliations (-want +got):\n%s", name, o.err, o.events, diff)
		}
	}
}
