package listener

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// withSameTarget makes the class one whose node ports lead to the container ports of the same numbers.
func withSameTarget(s *state) {
	s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
	if s.service != nil {
		for i := range s.service.Spec.Ports {
			s.service.Spec.Ports[i].TargetPort = intstr.FromInt32(s.service.Spec.Ports[i].NodePort)
		}
	}
}

// withNode adds a node with a reservation.
func withNode(s *state) { s.with(newNode("a", "10.0.0.1"), newVolume("pv", lastMountedOn("a"))) }

func TestTargetPortsFollowNodePorts(t *testing.T) {
	type observation struct {
		Requests []map[string]int64
		Targets  []map[string]any
		Ports    map[string]int32 // in the status
	}
	for name, tc := range map[string]struct {
		state     *state
		allocator allocator
		want      observation
	}{
		"that Kubernetes allocates": {
			state: newState(nodePort).change(func(s *state) { s.service = nil }),
			want:  observation{Requests: []map[string]int64{{}, {}}, Targets: []map[string]any{{}, {"http": int64(31080)}}, Ports: map[string]int32{"http": 31080}},
		},
		"of a range, with the first write": {
			state: newListenerState("31500-31500"),
			want: observation{
				Requests: []map[string]int64{{"http": 31500}, {}}, Targets: []map[string]any{{"http": int64(31500)}, {"http": int64(31500)}},
				Ports: map[string]int32{"http": 31500},
			},
		},
		"of a deleted Service, one of which is used": {
			state: newDeletedServiceState().with(otherService(30080)), allocator: allocator{reject: inUse(30080)},
			want: observation{
				Requests: []map[string]int64{{"http": 30080, "admin": 30081}, {"admin": 30081}, {}},
				Targets: []map[string]any{
					{"http": int64(30080), "admin": int64(30081)}, {"admin": int64(30081)}, {"http": int64(31080), "admin": int64(30081)},
				},
				Ports: map[string]int32{"http": 31080, "admin": 30081},
			},
		},
		"of a Service that has them": {
			state: newState(nodePort),
			want:  observation{Requests: []map[string]int64{{}}, Targets: []map[string]any{{"http": int64(30080)}}, Ports: map[string]int32{"http": 30080}},
		},
		"unless overrides set them": {
			state: newState(nodePort).change(func(s *state) {
				s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`)
			}),
			want: observation{Requests: []map[string]int64{{}}, Targets: []map[string]any{{"http": "web"}}, Ports: map[string]int32{"http": 30080}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			service := tc.state.service
			tc.state.service = nil // whose target ports stay as they are
			if tc.state.class.Spec.NodePorts == nil {
				tc.state.change(withSameTarget)
			} else {
				tc.state.class.Spec.NodePorts.Target = listenersv1alpha1.NodePortTargetSame
			}
			tc.state.service = service
			o := tc.state.reconcile(t, 1, tc.allocator.funcs(), nil)
			got := observation{Requests: tc.allocator.requests, Targets: tc.allocator.targets, Ports: o.listener.Status.NodePorts}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" || o.err != nil {
				t.Errorf("error %v (-want +got):\n%s", o.err, diff)
			}
		})
	}
}

// The Service has node ports after the first write, and leads to the right container ports only after the second one.
func TestNoAddressIsPublishedBeforeTheTargetPorts(t *testing.T) {
	for name, err := range map[string]error{
		"server error": apierrors.NewServiceUnavailable("busy"),
		"rejection":    apierrors.NewForbidden(corev1.Resource("services"), key.Name, nil),
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(nodePort).change(withSameTarget).change(withNode).change(func(s *state) { s.service = nil })
			a := &allocator{}
			failing := func() bool { return len(a.requests) > 1 && len(a.requests) < 4 }
			a.fail = func(map[string]int64) error {
				if failing() {
					return err
				}
				return nil
			}
			o := s.operator(t, a.funcs())
			reconcile := func() *listenersv1alpha1.Listener {
				if _, failed := o.try(key); failing() != (failed != nil) {
					t.Errorf("request %d: error %v", len(a.requests), failed)
				}
				return o.listener()
			}
			for range 2 {
				if l := reconcile(); len(l.Status.IngressAddresses) > 0 || len(l.Status.NodePorts) > 0 {
					t.Errorf("published %+v", l.Status)
				}
			}
			l := reconcile()
			if diff := cmp.Diff([]listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 31080)}, l.Status.IngressAddresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]map[string]any{{}, {"http": int64(31080)}, {"http": int64(31080)}, {"http": int64(31080)}}, a.targets); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

// A class may change while Pods run. Their addresses stay if the Service cannot follow it.
func TestPublishedAddressesStayWhenTheTargetPortsCannotChange(t *testing.T) {
	s := newState(nodePort).change(withNode).change(func(s *state) {
		s.service.Spec.Ports[0].TargetPort = intstr.FromInt32(80)
		s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
		s.listener.Status = &listenersv1alpha1.ListenerStatus{
			NodePorts: map[string]int32{"http": 30080}, IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 30080)},
		}
	})
	a := &allocator{fail: func(map[string]int64) error {
		return apierrors.NewForbidden(corev1.Resource("services"), key.Name, nil)
	}}
	o := s.reconcile(t, 2, a.funcs(), nil)
	if diff := cmp.Diff([]string{"10.0.0.1map[http:30080]"}, o.addresses()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// Pods that run listen on the numbers that they have read, and clients use the node ports until the Routes are
// admitted.
func TestTargetPortsStayWithThePreviousExposure(t *testing.T) {
	for name, same := range map[string]bool{"same": true, "ports of the Listener": false} {
		t.Run(name, func(t *testing.T) {
			s, a := newRouteState().change(withNodePortService), &allocator{}
			want := []map[string]any{{}}
			if same {
				withSameTarget(s)
				s.class.Spec.NodePorts = nil
				want = []map[string]any{{"http": int64(30080), "admin": int64(30081)}}
			}
			o := s.reconcile(t, 1, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if o.(interface{ GetKind() string }).GetKind() == "Service" {
					return a.funcs().Apply(ctx, c, o, options...)
				}
				return c.Apply(ctx, o, options...)
			}}, nil)
			if diff := cmp.Diff(want, a.targets, cmpopts.EquateEmpty()); diff != "" || o.err != nil {
				t.Errorf("error %v, targets (-want +got):\n%s", o.err, diff)
			}
			if o.service.Spec.Type != corev1.ServiceTypeNodePort || len(o.addresses()) == 0 {
				t.Errorf("type %s, addresses %v", o.service.Spec.Type, o.addresses())
			}
		})
	}
}

func TestEventSaysThatProgramsListenOnOtherNodePorts(t *testing.T) {
	s := newDeletedServiceState().change(withSameTarget).with(otherService(30080))
	o := s.reconcile(t, 1, (&allocator{reject: inUse(30080)}).funcs(), nil)
	want := "Warning NodePortsChanged Service shop/web has other node ports than before, which clients have to use, and programs have to listen on: " +
		"http: 31080 instead of 30080 (Invalid value: 30080: provided port is already allocated)"
	if !cmp.Equal([]string{want}, o.events, cmpopts.IgnoreSliceElements(func(e string) bool { return e != want })) {
		t.Errorf("events %q, want %q", o.events, want)
	}
}
