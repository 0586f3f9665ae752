package listener

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// newSharingState returns a new Listener of a class that shares an address, with two ports.
func newSharingState(numbers string) *state {
	return newState(listenersv1alpha1.ServiceTypeLoadBalancer).change(func(s *state) {
		s.class.Spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: numbers}}
		s.service = nil
		s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}
	})
}

// having gives the Listener numbers at a shared address.
func having(numbers map[string]int32) func(*state) {
	return func(s *state) {
		s.listener.Status = &listenersv1alpha1.ListenerStatus{SharedPorts: numbers, IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	}
}

// sharingListener returns a Listener in another namespace that has numbers at a shared address.
func sharingListener(numbers ...int32) *listenersv1alpha1.Listener {
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "sharing"},
		Status:     &listenersv1alpha1.ListenerStatus{SharedPorts: map[string]int32{}, IngressAddresses: []listenersv1alpha1.IngressAddress{}},
	}
	for i, number := range numbers {
		l.Status.SharedPorts[fmt.Sprint("port-", i)] = number
	}
	return l
}

// servedPort is a port of a Service.
type servedPort struct {
	Port   int32
	Target intstr.IntOrString
}

func TestListenersHavePortsOfTheirOwnAtASharedAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		state  *state
		ports  map[string]servedPort // of the Service
		stored map[string]int32      // in the status
		reason string                // of Accepted, if it is not Accepted
	}{
		"the only number": {
			state: newSharingState("9000-9000"),
			ports: map[string]servedPort{"http": {9000, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9000},
		},
		"another namespace has one": {
			state: newSharingState("9000-9001").with(sharingListener(9000)),
			ports: map[string]servedPort{"http": {9001, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9001},
		},
		"all are taken": {state: newSharingState("9000-9001").with(sharingListener(9000, 9001)), reason: "SharedPortsExhausted"},
		"the last one, also if it is not in the range": {
			state: newSharingState("9000-9001").change(having(map[string]int32{"http": 8000})),
			ports: map[string]servedPort{"http": {8000, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 8000},
		},
		"a port is added": {
			state: newSharingState("9000-9001").change(having(map[string]int32{"http": 9000})).change(func(s *state) {
				s.listener.Spec.Ports = append(s.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "admin", Port: 9000})
			}),
			ports:  map[string]servedPort{"http": {9000, intstr.FromInt32(80)}, "admin": {9001, intstr.FromInt32(9000)}},
			stored: map[string]int32{"http": 9000, "admin": 9001},
		},
		"a port is removed": {
			state: newSharingState("9000-9001").change(having(map[string]int32{"http": 9000, "admin": 9001})),
			ports: map[string]servedPort{"http": {9000, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9000},
		},
		"one number for both protocols": {
			state: newSharingState("9000-9000").change(func(s *state) {
				s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "dns-tcp", Port: 53}, {Name: "dns-udp", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}}
			}),
			ports:  map[string]servedPort{"dns-tcp": {9000, intstr.FromInt32(53)}, "dns-udp": {9000, intstr.FromInt32(53)}},
			stored: map[string]int32{"dns-tcp": 9000, "dns-udp": 9000},
		},
		"a target port of overrides": {
			state: newSharingState("9000-9000").change(func(s *state) {
				s.class.Spec.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec": {"ports": [{"port": 80, "targetPort": "web"}]}}`)}
			}),
			ports: map[string]servedPort{"http": {9000, intstr.FromString("web")}}, stored: map[string]int32{"http": 9000},
		},
		"another type of overrides": {
			state: newSharingState("9000-9000").change(func(s *state) {
				s.class.Spec.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec": {"type": "ClusterIP"}}`)}
			}),
			ports: map[string]servedPort{"http": {Port: 80}},
		},
		"no longer shared": {
			state: newSharingState("9000-9000").change(having(map[string]int32{"http": 9000})).change(func(s *state) { s.class.Spec.LoadBalancer = nil }),
			ports: map[string]servedPort{"http": {Port: 80}},
		},
		"shared while Routes are not admitted yet": {
			state: newRouteState().change(having(map[string]int32{"http": 9000, "admin": 9001})).change(func(s *state) {
				s.service.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			}),
			ports:  map[string]servedPort{"http": {9000, intstr.FromInt32(80)}, "admin": {9001, intstr.FromInt32(81)}},
			stored: map[string]int32{"http": 9000, "admin": 9001},
		},
		"without a class": {
			state:  newSharingState("").change(having(map[string]int32{"http": 9000})).change(func(s *state) { s.class = nil }),
			stored: map[string]int32{"http": 9000}, reason: "ClassNotFound",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { observePorts(t, r) })
			if o.err != nil {
				t.Fatal(o.err)
			}
			var ports map[string]servedPort
			if o.service != nil {
				ports = map[string]servedPort{}
				for _, p := range o.service.Spec.Ports {
					ports[p.Name] = servedPort{p.Port, p.TargetPort}
				}
			}
			if diff := cmp.Diff(tc.ports, ports); diff != "" {
				t.Errorf("ports of the Service (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.stored, o.listener.Status.SharedPorts); diff != "" {
				t.Errorf("numbers in the status (-want +got):\n%s", diff)
			}
			if tc.reason == "" {
				tc.reason = listenersv1alpha1.ReasonAccepted
			}
			if accepted := meta.FindStatusCondition(o.listener.Status.Conditions, listenersv1alpha1.ListenerAccepted); accepted.Reason != tc.reason {
				t.Errorf("condition %+v", accepted)
			}
		})
	}
}

// A Service never has a number that is not in the status, whichever write fails.
func TestNumbersAreStoredBeforeTheServiceHasThem(t *testing.T) {
	want := []string{"apply status", "apply Service", "apply status"}
	for n := range len(want) + 1 {
		intercept, writes := countWrites(n, errors.New("the API server is busy"))
		fails := intercept.Apply
		intercept.Apply = func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			l := &listenersv1alpha1.Listener{}
			if err := c.Get(ctx, key, l); err != nil || l.Status == nil || l.Status.SharedPorts["http"] == 0 {
				t.Errorf("fault %d: the Service is written before the status, which is %+v (%v)", n, l.Status, err)
			}
			return fails(ctx, c, o, options...)
		}
		o := newSharingState("9000-9099").reconcile(t, 3, intercept, nil)
		if diff := cmp.Diff(want, (*writes)[:min(len(want), len(*writes))]); n == len(want) && diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		if number := o.listener.Status.SharedPorts["http"]; o.err != nil || number == 0 || o.service.Spec.Ports[0].Port != number {
			t.Errorf("fault %d: error %v, status %v, Service %v", n, o.err, o.listener.Status.SharedPorts, o.service)
		}
	}
}

// The cache may show a Listener as it was before its numbers were written.
func TestListenerKeepsItsNumbersWhileTheCacheLags(t *testing.T) {
	s := newSharingState("9000-9099")
	c := s.newClient(t)
	r := newReconciler(s.backends, c, events.NewFakeRecorder(10))
	before, after := &listenersv1alpha1.Listener{}, &listenersv1alpha1.Listener{}
	if err := c.Get(t.Context(), key, before); err != nil {
		t.Fatal(err)
	}
	var numbers []int32
	for range 3 {
		if _, err := r.Reconcile(t.Context(), before.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, after); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, after.Status.SharedPorts["http"])
	}
	if numbers[0] == 0 || numbers[1] != numbers[0] || numbers[2] != numbers[0] {
		t.Errorf("the numbers are %v", numbers)
	}
}

func TestNumbersOfASharedAddressAreFreedWithTheirListener(t *testing.T) {
	a := newAllocatedPorts(sharedPortsOf)
	own, waiting := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "waiting"}
	listener := func(numbers ...int32) *listenersv1alpha1.Listener {
		l := sharingListener(numbers...)
		l.Namespace, l.Name = own.Namespace, own.Name
		return l
	}
	allocate := func(listener types.NamespacedName, number int32) bool {
		return a.allocate(listener, func(taken func(int32) bool) (map[string]int32, bool) {
			return map[string]int32{"port-0": number}, !taken(number)
		})
	}
	expect := func(step string, got []types.NamespacedName, frees, has bool) {
		t.Helper()
		if (len(got) == 1 && got[0] == waiting) != frees || a.has(9000) != has {
			t.Errorf("%s: requests %v, has %t", step, got, a.has(9000))
		}
	}
	if !allocate(own, 9000) || allocate(waiting, 9000) {
		t.Error("two Listeners have the same number")
	}
	expect("its status does not have it yet", a.replace(listener(), listener()), false, true)
	expect("its status has it", a.replace(listener(), listener(9000)), false, true)
	if numbers, _ := a.pendingOf(own); numbers != nil {
		t.Errorf("%v are pending", numbers)
	}
	expect("it is deleted", a.replace(listener(9000), nil), true, false)

	if !allocate(own, 9000) || allocate(waiting, 9000) {
		t.Error("two Listeners have the same number")
	}
	expect("it is deleted before its status has it", a.replace(listener(), nil), true, false)
	if len(a.users)+len(a.pending) > 0 {
		t.Errorf("users %v, pending %v", a.users, a.pending)
	}
}
