package listener

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// withRange makes the class one with a range of node ports.
func withRange(numbers string) func(*state) {
	return func(s *state) { s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Range: numbers} }
}

// newListenerState returns a new Listener with a port.
func newListenerState(numbers string) *state {
	return newState(nodePort).change(withRange(numbers)).change(func(s *state) { s.service = nil })
}

// limitNodePorts limits the node ports of a namespace.
func limitNodePorts(perNamespace int32) func(*state) {
	return func(s *state) { s.class.Spec.NodePorts.MaxPortsPerNamespace = &perNamespace }
}

// serviceIn returns a Service of another Listener, in a namespace, with node ports.
func serviceIn(namespace string, numbers ...int32) *corev1.Service {
	service := otherService(numbers...)
	service.Namespace, service.Name = namespace, "other"
	return service
}

func TestNodePortsOfARange(t *testing.T) {
	reserving := func(now, last map[string]int32) *listenersv1alpha1.Listener {
		return &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "reserving"},
			Status:     &listenersv1alpha1.ListenerStatus{NodePorts: now, LastNodePorts: last, IngressAddresses: []listenersv1alpha1.IngressAddress{}},
		}
	}
	for name, tc := range map[string]struct {
		state     *state
		allocator allocator
		requests  []map[string]int64
		ports     map[string]int32 // in the status
		reason    string           // of Accepted
	}{
		"one number":        {state: newListenerState("31500-31500"), requests: []map[string]int64{{"http": 31500}}, ports: map[string]int32{"http": 31500}, reason: "Accepted"},
		"used by a Service": {state: newListenerState("31500-31501").with(otherService(31500)), requests: []map[string]int64{{"http": 31501}}, ports: map[string]int32{"http": 31501}, reason: "Accepted"},
		"reserved by a Listener whose Service does not exist": {
			state: newListenerState("31500-31501").with(reserving(map[string]int32{"http": 31501}, nil)), requests: []map[string]int64{{"http": 31500}},
			ports: map[string]int32{"http": 31500}, reason: "Accepted",
		},
		"not reserved by a Listener whose Service has another type": {
			state: newListenerState("31501-31501").with(reserving(nil, map[string]int32{"http": 31501})), requests: []map[string]int64{{"http": 31501}},
			ports: map[string]int32{"http": 31501}, reason: "Accepted",
		},
		"used by a Service that is not in the cache yet": {
			state: newListenerState("31500-31501").with(otherService(31500)), allocator: allocator{reject: inUse(31501)},
			requests: []map[string]int64{{"http": 31501}}, reason: "ServiceRejected",
		},
		"exhausted": {state: newListenerState("31500-31501").with(otherService(31500, 31501)), reason: "NodePortsExhausted"},
		"the namespace has as many as it may have": {
			state: newListenerState("31500-31509").change(limitNodePorts(2)).with(serviceIn(key.Namespace, 31500, 31501)), reason: "PortLimitReached",
		},
		"the namespace has as many as it may have, with one that is not in the range": {
			state:    newListenerState("31500-31500").change(limitNodePorts(2)).with(serviceIn(key.Namespace, 31501, 31502)),
			requests: []map[string]int64{{"http": 31500}}, ports: map[string]int32{"http": 31500}, reason: "Accepted",
		},
		"other namespaces have as many as one may have": {
			state:    newListenerState("31500-31502").change(limitNodePorts(2)).with(otherService(31500, 31501)),
			requests: []map[string]int64{{"http": 31502}}, ports: map[string]int32{"http": 31502}, reason: "Accepted",
		},
		"the limit is lower than what the Listener has": {
			state:    newDeletedServiceState().change(withRange("30080-30081")).change(limitNodePorts(1)),
			requests: []map[string]int64{{"http": 30080, "admin": 30081}}, ports: map[string]int32{"http": 30080, "admin": 30081}, reason: "Accepted",
		},
		"the limit is lower than what the Listener had when it had node ports": {
			state: newDeletedServiceState().change(withRange("30080-30081")).change(limitNodePorts(1)).change(func(s *state) {
				s.listener.Status.NodePorts, s.listener.Status.LastNodePorts = nil, s.listener.Status.NodePorts
			}),
			reason: "PortLimitReached",
		},
		"kept although it is not in the range": {
			state:    newDeletedServiceState().change(withRange("31500-31501")),
			requests: []map[string]int64{{"http": 30080, "admin": 30081}}, ports: map[string]int32{"http": 30080, "admin": 30081}, reason: "Accepted",
		},
		"another one of the range if the last one is used": {
			state: newDeletedServiceState().change(withRange("31500-31500")).with(otherService(30080)), allocator: allocator{reject: inUse(30080)},
			requests: []map[string]int64{{"http": 30080, "admin": 30081}, {"http": 31500, "admin": 30081}}, ports: map[string]int32{"http": 31500, "admin": 30081}, reason: "Accepted",
		},
		"a port that is added": {
			state: newState(nodePort).change(withRange("31500-31500")).change(func(s *state) {
				s.listener.Spec.Ports = append(s.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "new", Port: 81})
			}),
			requests: []map[string]int64{{"new": 31500}}, reason: "Accepted",
		},
		"not needed by a Service that has node ports": {
			state:    newState(nodePort).change(withRange("31500-31500")).with(otherService(31500)),
			requests: []map[string]int64{{}}, ports: map[string]int32{"http": 30080}, reason: "Accepted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.operator(t, tc.allocator.funcs())
			observePorts(t, o.Reconciler)
			if _, err := o.try(key); (err != nil) != (tc.reason == "ServiceRejected") {
				t.Fatal(err)
			}
			listener := o.listener()
			if diff := cmp.Diff(tc.requests, tc.allocator.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if pending := o.held.Registry.Begin(key).Reserved(listenersv1alpha1.WaitingKindNodePort); tc.reason == "ServiceRejected" && len(pending) > 0 {
				t.Errorf("no other Listener can get the rejected %v", pending)
			}
			if diff := cmp.Diff(tc.ports, listener.Status.NodePorts); diff != "" && tc.ports != nil {
				t.Errorf("node ports (-want +got):\n%s", diff)
			}
			if accepted := meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted); accepted.Reason != tc.reason {
				t.Errorf("got %+v", accepted)
			}
			expectWaiting(t, listener.Status.WaitingFor, listenersv1alpha1.WaitingKindNodePort, tc.reason)
		})
	}
}
