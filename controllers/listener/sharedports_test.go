package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// newSharingState returns a new Listener of a class that shares an address, with two ports.
func newSharingState(numbers string) *state {
	return newState(loadBalancer).change(func(s *state) {
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
		Status: &listenersv1alpha1.ListenerStatus{
			ServiceName: ptr.To("sharing"), SharedPorts: map[string]int32{}, IngressAddresses: []listenersv1alpha1.IngressAddress{},
		},
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
		"a Listener without a Service remembers one": {
			state: newSharingState("9000-9000").with(withoutService(sharingListener(9000))),
			ports: map[string]servedPort{"http": {9000, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9000},
		},
		"another one has got the last one": {
			state: newSharingState("9000-9001").change(having(map[string]int32{"http": 9000})).with(sharingListener(9000)),
			ports: map[string]servedPort{"http": {9001, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9001},
		},
		"the namespace has as many as it may have": {
			state: newSharingState("9000-9009").change(limitSharedPorts(2)).with(inNamespace(key.Namespace, sharingListener(9000, 9001))), reason: "PortLimitReached",
		},
		"another namespace has as many as one may have": {
			state: newSharingState("9000-9002").change(limitSharedPorts(2)).with(sharingListener(9000, 9001)),
			ports: map[string]servedPort{"http": {9002, intstr.FromInt32(80)}}, stored: map[string]int32{"http": 9002},
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
			if diff := gocmp.Diff(tc.ports, ports); diff != "" {
				t.Errorf("ports of the Service (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.stored, o.listener.Status.SharedPorts); diff != "" {
				t.Errorf("numbers in the status (-want +got):\n%s", diff)
			}
			if tc.reason == "" {
				tc.reason = listenersv1alpha1.ReasonAccepted
			}
			if accepted := meta.FindStatusCondition(o.listener.Status.Conditions, listenersv1alpha1.ListenerAccepted); accepted.Reason != tc.reason {
				t.Errorf("condition %+v", accepted)
			}
			expectWaiting(t, o.listener.Status.WaitingFor, listenersv1alpha1.WaitingKindSharedPort, tc.reason)
		})
	}
}

// withoutService makes the Listener one whose Service the API server rejects.
func withoutService(l *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	l.Status.ServiceName = nil
	return l
}

func inNamespace(namespace string, l *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	l.Namespace = namespace
	return l
}

// limitSharedPorts limits the ports of a namespace.
func limitSharedPorts(perNamespace int32) func(*state) {
	return func(s *state) { s.class.Spec.LoadBalancer.Sharing.MaxPortsPerNamespace = &perNamespace }
}

// A process may end after any of its writes. A number that the status has stays that of its Listener. One that only the
// Service has goes to one of the two: users may write Services, so these prove nothing.
func TestNumbersOfServicesSurviveAProcess(t *testing.T) {
	for writes := range 3 {
		for _, listener := range append(withoutServiceName, key.Name) {
			numbersSurvive(t, listener, writes)
		}
	}
}

// numbersSurvive ends a process, which exposes a Listener, after a number of writes.
func numbersSurvive(t *testing.T, listener string, writes int) {
	t.Helper()
	s := newSharingState("9000-9000")
	s.listener.Name = listener
	left, dies := writes, false
	died := func() error {
		if left--; dies && left < 0 {
			return errors.New("the process has ended")
		}
		return nil
	}
	o := s.with(second(s.listener)).operator(t, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			return cmp.Or(died(), c.Apply(ctx, o, options...))
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			return cmp.Or(died(), c.SubResource(sub).Apply(ctx, o, options...))
		},
	})
	dies = true
	if _, err := o.try(client.ObjectKeyFromObject(s.listener)); (err == nil) != (writes == 2) {
		t.Errorf("%d writes: %v", writes, err)
	}
	dies = false
	o.restart()
	observePorts(t, o.Reconciler)
	other, has := o.reconcile("second"), o.reconcile(listener)
	if writes == 0 { // the process ended after it wrote the Service
		has, other = other, has // it is reconciled first
	}
	if has.Status.SharedPorts["http"] != 9000 || len(other.Status.SharedPorts) > 0 {
		t.Errorf("%s, %d writes: the status has %v, the other's status %v", listener, writes, has.Status.SharedPorts, other.Status.SharedPorts)
	}
}

// second returns another new Listener like this one.
func second(l *listenersv1alpha1.Listener) *listenersv1alpha1.Listener {
	l = l.DeepCopy()
	l.Name, l.UID, l.Status = "second", "second-uid", nil
	return l
}

// A number that the API server rejects is free, also while the Listener is retried, and whatever it had before.
func TestNumbersOfRejectedServicesAreFree(t *testing.T) {
	quota := apierrors.NewForbidden(corev1.Resource("services"), key.Name, errors.New("exceeded quota"))
	for name, s := range map[string]*state{
		"a new Listener":               newSharingState("9000-9000"),
		"one whose Service is lost":    newSharingState("9000-9000").change(having(map[string]int32{"http": 9000})).change(withServiceName),
		"one that was rejected before": newSharingState("9000-9000").change(having(map[string]int32{"http": 9000})),
	} {
		t.Run(name, func(t *testing.T) {
			exceeded, had := true, s.listener.Status != nil
			o := s.with(second(s.listener)).operator(t, interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if exceeded {
						return quota
					}
					return c.Apply(ctx, o, options...)
				},
			})
			observePorts(t, o.Reconciler)
			for range 2 {
				if _, err := o.try(key); !apierrors.IsForbidden(err) {
					t.Fatal(err)
				}
				if status := o.listener().Status; had && status.SharedPorts["http"] != 9000 {
					t.Errorf("the Listener has forgotten its number: %+v", status)
				}
			}
			exceeded = false
			o.reconcile("second")
			if service := get[corev1.Service](o, "second"); service.Spec.Ports[0].Port != 9000 {
				t.Errorf("the other Listener has Service %+v", service.Spec.Ports)
			}
		})
	}
}

// Finalizers of others keep it, for however long.
func TestADeletedListenerWithoutAServiceHasNoNumbers(t *testing.T) {
	s := newSharingState("9000-9000").change(having(map[string]int32{"http": 9000})).change(withServiceName)
	s.with(second(s.listener))
	s.listener.Finalizers, s.listener.DeletionTimestamp = []string{"example.com/cleanup"}, ptr.To(metav1.Now())
	o := s.operator(t, interceptor.Funcs{})
	for i, name := range []string{"second", key.Name, "second"} {
		o.reconcile(name)
		service := find[corev1.Service](o, "second")
		if (service != nil) != (i == 2) || service != nil && service.Spec.Ports[0].Port != 9000 {
			t.Errorf("pass %d: the other Listener has Service %+v", i, service)
		}
	}
}

func withServiceName(s *state) { s.listener.Status.ServiceName = &s.listener.Name }

// The cache may show a Listener as it was before its numbers were written.
func TestListenerKeepsItsNumbersWhileTheCacheLags(t *testing.T) {
	o := newSharingState("9000-9099").operator(t, interceptor.Funcs{})
	before := o.listener()
	var numbers []int32
	for range 3 {
		if _, err := o.Reconcile(t.Context(), before.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, o.listener().Status.SharedPorts["http"])
	}
	if numbers[0] == 0 || numbers[1] != numbers[0] || numbers[2] != numbers[0] {
		t.Errorf("the numbers are %v", numbers)
	}
}
