package listener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/controllers/listener/write"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// newDeletedServiceState returns a NodePort Listener with two ports whose Service was deleted.
func newDeletedServiceState() *state {
	return newState(nodePort).change(func(s *state) {
		s.service = nil
		s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}}
		s.listener.Status = &listenersv1alpha1.ListenerStatus{
			ServiceName: ptr.To("web"), NodePorts: map[string]int32{"http": 30080, "admin": 30081}, ObservedGeneration: 3,
			IngressAddresses: []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)},
		}
	})
}

// allocator stands in for the allocation of node ports by the API server, which the fake client does not have. It
// records the node ports and the target ports of each apply of the Service.
type allocator struct {
	requests []map[string]int64
	targets  []map[string]any
	// reject returns why the API server rejects a node port, or nil.
	reject func(number int64) *field.Error
	// fail returns an error of the whole request, or nil.
	fail func(requested map[string]int64) error
}

func (a *allocator) funcs() interceptor.Funcs {
	return interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		service := &unstructured.Unstructured{}
		if err := convert(o, service); err != nil {
			return err
		}
		ports, _, err := unstructured.NestedSlice(service.Object, "spec", "ports")
		if err != nil {
			return err
		}
		requested, targets := map[string]int64{}, map[string]any{}
		var problems field.ErrorList
		for i, p := range ports {
			port := p.(map[string]any)
			if target, ok := port["targetPort"]; ok {
				targets[port["name"].(string)] = target
			}
			number, ok := port["nodePort"].(int64)
			if !ok {
				continue
			}
			requested[port["name"].(string)] = number
			if a.reject == nil {
				continue
			}
			if problem := a.reject(number); problem != nil {
				problem.Field = field.NewPath("spec", "ports").Index(i).Child("nodePort").String()
				problems = append(problems, problem)
			}
		}
		a.requests, a.targets = append(a.requests, requested), append(a.targets, targets)
		if len(problems) > 0 {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), key.Name, problems)
		}
		if a.fail != nil {
			if err := a.fail(requested); err != nil {
				return err
			}
		}
		before := &corev1.Service{}
		if err := client.IgnoreNotFound(c.Get(ctx, key, before)); err != nil {
			return err
		}
		if err := c.Apply(ctx, o, options...); err != nil {
			return err
		}
		applied, err := a.allocate(ctx, c, before)
		if err != nil {
			return err
		}
		o.(runtime.Unstructured).SetUnstructuredContent(applied) // the response
		return nil
	}}
}

// convert copies the content of an apply configuration.
func convert(o runtime.ApplyConfiguration, to *unstructured.Unstructured) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	to.Object = content
	return err
}

// allocate gives the ports of a NodePort Service that have no node port the one from before, or else 31000 and above.
// It deallocates those of ClusterIP Services, and returns the Service.
func (a *allocator) allocate(ctx context.Context, c client.Client, before *corev1.Service) (map[string]any, error) {
	service := &corev1.Service{}
	if err := c.Get(ctx, key, service); err != nil {
		return nil, err
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		same := slices.IndexFunc(before.Spec.Ports, func(b corev1.ServicePort) bool { return b.Name == p.Name })
		switch {
		case service.Spec.Type == corev1.ServiceTypeClusterIP:
			p.NodePort = 0
		case service.Spec.Type != corev1.ServiceTypeNodePort || p.NodePort != 0:
		case same >= 0 && before.Spec.Ports[same].NodePort != 0:
			p.NodePort = before.Spec.Ports[same].NodePort
		default:
			p.NodePort = 31000 + p.Port
		}
	}
	if err := c.Update(ctx, service); err != nil {
		return nil, err
	}
	service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	return runtime.DefaultUnstructuredConverter.ToUnstructured(service)
}

// The Pod for which a Listener was created is labelled when the Listener exists, as its Service is created.
func TestFirstStatusHasTheNodeOfAPodThatWasLabelledMeanwhile(t *testing.T) {
	a, pod := &allocator{}, newLabelledPod("1", "a", "pvc-1", corev1.PodPending)
	labels := pod.Labels
	pod.Labels = nil
	funcs := a.funcs()
	apply := funcs.Apply
	funcs.Apply = func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		labelled := pod.DeepCopy()
		labelled.Labels, labelled.ResourceVersion = labels, ""
		return errors.Join(apply(ctx, c, o, options...), c.Update(ctx, labelled))
	}
	o := newState(nodePort).change(func(s *state) { s.service = nil }).
		with(newNode("a", "10.0.0.1"), newClaim("pvc-1", ""), newVolume("pv-1", boundTo("pvc-1", func(*corev1.PersistentVolume) {})), pod).
		reconcile(t, 1, funcs, nil)
	check.Must(t, o.err)
	check.Equal(t, "addresses", []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 31080)}, o.listener.Status.IngressAddresses)
}

func inUse(numbers ...int64) func(int64) *field.Error {
	return func(number int64) *field.Error {
		if slices.Contains(numbers, number) {
			return field.Invalid(nil, number, "provided port is already allocated")
		}
		return nil
	}
}

// otherService returns a Service of another owner that has these node ports.
func otherService(numbers ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}}
	for _, number := range numbers {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(number), Port: number, NodePort: number})
	}
	return s
}

func TestNodePortsOfADeletedService(t *testing.T) {
	forbidden := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "a policy forbids node ports"}}
	forbidRequested := func(requested map[string]int64) error {
		if len(requested) > 0 {
			return forbidden
		}
		return nil
	}
	given := func(change func(*state)) *state { return newDeletedServiceState().change(change) }
	asBefore := func(*state) {}
	remembered := func(s *state) {
		s.listener.Status.LastNodePorts, s.listener.Status.NodePorts = s.listener.Status.NodePorts, nil
	}
	overridden := func(s *state) {
		s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"nodePort":30090}]}}`)
	}
	withBalancer := func(allocates bool) func(*state) {
		return func(s *state) {
			s.class.Spec.ServiceType, s.class.Spec.LoadBalancerAllocateNodePorts = loadBalancer, &allocates
		}
	}
	removed := func(s *state) { s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "new", Port: 80}} }
	type requests = []map[string]int64
	ports := func(http, admin int32) map[string]int32 { return map[string]int32{"http": http, "admin": admin} }
	both := map[string]int64{"http": 30080, "admin": 30081}
	for name, tc := range map[string]struct {
		state     *state
		allocator allocator
		requests  requests
		ports     map[string]int32
		changes   string // in the event
	}{
		"are free":                             {given(asBefore), allocator{}, requests{both}, ports(30080, 30081), ""},
		"were remembered when there were none": {given(remembered), allocator{}, requests{both}, ports(30080, 30081), ""},
		"one is used by another Service": {
			given(asBefore).with(otherService(30080)), allocator{reject: inUse(30080)}, requests{both, {"admin": 30081}}, ports(31080, 30081),
			": http: 31080 instead of 30080 (Invalid value: 30080: provided port is already allocated)",
		},
		"one that programs listen on is used by another Service": {
			given(withSameTarget).with(otherService(30080)), allocator{reject: inUse(30080)}, requests{both, {"admin": 30081}, {}}, ports(31080, 30081),
			", and programs have to listen on: http: 31080 instead of 30080 (Invalid value: 30080: provided port is already allocated)",
		},
		"all are used by other Services": {
			given(asBefore).with(otherService(30080, 30081)), allocator{reject: inUse(30080, 30081)}, requests{both, {}}, ports(31080, 31081),
			": admin: 31081 instead of 30081 (Invalid value: 30081: provided port is already allocated); " +
				"http: 31080 instead of 30080 (Invalid value: 30080: provided port is already allocated)",
		},
		"are forbidden by a policy": {
			given(asBefore), allocator{fail: forbidRequested}, requests{both, {}}, ports(31080, 31081),
			": admin: 31081 instead of 30081 (a policy forbids node ports); http: 31080 instead of 30080 (a policy forbids node ports)",
		},
		"are overridden":                                        {given(overridden), allocator{}, requests{{"http": 30090, "admin": 30081}}, ports(30090, 30081), ""},
		"are those of a load balancer, too":                     {given(withBalancer(true)), allocator{}, requests{both}, nil, ""},
		"are not needed for a load balancer without node ports": {given(withBalancer(false)), allocator{}, requests{{}}, nil, ""},
		"belong to ports that were removed":                     {given(removed), allocator{}, requests{{}}, map[string]int32{"new": 31080}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.reconcile(t, 1, tc.allocator.funcs(), nil)
			check.Must(t, o.err)
			check.Equal(t, "requests", tc.requests, tc.allocator.requests)
			check.Equal(t, "node ports in the status", tc.ports, o.listener.Status.NodePorts, cmpopts.EquateEmpty())
			var want []string
			if tc.changes != "" {
				want = []string{"Warning NodePortsChanged Service shop/web has other node ports than before, which clients have to use" + tc.changes}
			}
			got := slices.DeleteFunc(o.events, func(e string) bool { return !strings.HasPrefix(e, "Warning NodePortsChanged") })
			check.Equal(t, "events", want, got, cmpopts.EquateEmpty())
		})
	}
}

// While no other Service has a rejected number, the API server may not have deallocated it yet.
func TestServiceWaitsUntilItsNodePortsAreDeallocated(t *testing.T) {
	for name, freeAfter := range map[string]time.Duration{"deallocated": 700 * time.Millisecond, "not deallocated": time.Hour} {
		t.Run(name, func(t *testing.T) {
			a := &allocator{reject: inUse(30080)}
			o := newDeletedServiceState().operator(t, a.funcs())
			before := o.listener().Status
			want, total := int32(30080), 800*time.Millisecond
			if freeAfter > write.ReleaseTimeout {
				want, total = 31080, write.ReleaseTimeout
			}
			var waited time.Duration
			interval, _ := o.reconcileAfter(0)
			for interval > 0 {
				if diff := cmp.Diff(before, o.listener().Status); diff != "" || len(o.recorder.Events) > 0 {
					t.Fatalf("while waiting: %d events, status (-before +after):\n%s", len(o.recorder.Events), diff)
				}
				if waited += interval; waited >= freeAfter {
					a.reject = nil
				}
				interval, _ = o.reconcileAfter(interval)
			}
			if got := o.listener().Status.NodePorts; waited != total || got["http"] != want || got["admin"] != 30081 {
				t.Errorf("waited %s, want %s; the node ports are %v, want %d", waited, total, got, want)
			}
			if _, waits := o.settler.Get(settle.Deallocation(o.listener().UID)); waits {
				t.Error("the controller still waits")
			}
		})
	}
}

// A server error may pass. The node ports stay in the status until it has.
func TestServerErrorDoesNotReplaceNodePorts(t *testing.T) {
	for name, err := range map[string]error{
		"internal error": apierrors.NewInternalError(errors.New("a webhook did not respond")),
		"unavailable":    apierrors.NewServiceUnavailable("busy"),
		"unreachable":    errors.New("connection refused"),
	} {
		t.Run(name, func(t *testing.T) {
			failures := 2
			a := &allocator{fail: func(map[string]int64) error {
				if failures--; failures >= 0 {
					return err
				}
				return nil
			}}
			o := newDeletedServiceState().reconcile(t, 3, a.funcs(), nil)
			both := map[string]int64{"http": 30080, "admin": 30081}
			check.Must(t, o.err)
			check.Equal(t, "requests", []map[string]int64{both, both, both}, a.requests)
			check.Equal(t, "node ports", map[string]int32{"http": 30080, "admin": 30081}, o.listener.Status.NodePorts)
		})
	}
}

func TestStatusRemembersTheNodePortsOfAMissingService(t *testing.T) {
	before := map[string]int32{"http": 30080, "admin": 30081}
	none := []listenersv1alpha1.IngressAddress{}
	kept := []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.9", 30080)}
	for name, tc := range map[string]struct {
		change    func(*state)
		fail      error
		ports     map[string]int32
		last      map[string]int32
		addresses []listenersv1alpha1.IngressAddress
	}{
		"no answer of the API server": {fail: apierrors.NewServiceUnavailable("busy"), ports: before, addresses: kept},
		"rejected Service":            {fail: apierrors.NewInternalError(errors.New("no cluster IP")), last: before, addresses: none},
		"class that does not exist":   {change: func(s *state) { s.class = nil }, last: before, addresses: none},
		"no class set":                {change: func(s *state) { s.listener.Spec.ClassName = nil }, last: before, addresses: none},
		"no ports":                    {change: func(s *state) { s.listener.Spec.Ports = nil }, last: before, addresses: none},
		"foreign Service":             {change: func(s *state) { s.service = otherService(); s.service.Namespace = key.Namespace }, last: before, addresses: none},
		"terminating Service":         {change: func(s *state) { s.service = terminating(newState(nodePort).service) }, ports: before, addresses: none},
		"load balancer":               {change: func(s *state) { s.class.Spec.ServiceType = loadBalancer }, last: before, addresses: none},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDeletedServiceState()
			if tc.change != nil {
				tc.change(s)
			}
			a := &allocator{fail: func(map[string]int64) error { return tc.fail }}
			status := s.reconcile(t, 2, a.funcs(), nil).listener.Status
			check.Equal(t, "nodePorts", tc.ports, status.NodePorts)
			check.Equal(t, "lastNodePorts", tc.last, status.LastNodePorts)
			check.Equal(t, "addresses", tc.addresses, status.IngressAddresses)
		})
	}
}

// The process that applied the Service may have ended before it wrote the status.
func TestChangedNodePortsAreReportedByTheNextProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		overrides string
		want      int
	}{
		"allocated":      {want: 1},
		"set by a class": {overrides: `{"spec":{"ports":[{"port":80,"nodePort":30080}]}}`},
	} {
		s := newState(nodePort).change(func(s *state) {
			if tc.overrides != "" {
				s.class.Spec.ServiceOverrides.Raw = []byte(tc.overrides)
			}
			s.listener.Status = &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30001}, IngressAddresses: []listenersv1alpha1.IngressAddress{}}
		})
		o := s.reconcile(t, 2, (&allocator{}).funcs(), nil)
		want := "Warning NodePortsChanged Service shop/web has other node ports than before, which clients have to use: http: 30080 instead of 30001"
		got := slices.DeleteFunc(o.events, func(e string) bool { return e != want })
		if len(got) != tc.want || o.err != nil {
			t.Errorf("%s: error %v, %d events %q", name, o.err, len(got), want)
		}
	}
}

// mortal lets a process end at its n-th write, counted from 0: no later one is sent. That write is either not sent, or
// its response is lost.
type mortal struct {
	n      int // a negative number if the process does not end
	sent   bool
	writes int
}

var errEnded = errors.New("the process has ended")

func (m *mortal) write(send func() error) error {
	m.writes++
	if m.n < 0 || m.writes <= m.n || m.writes == m.n+1 && m.sent {
		if err := send(); err != nil || m.n < 0 || m.writes <= m.n {
			return err
		}
	}
	return errEnded
}

// The process may end between any two of its writes.
func TestNodePortsOutliveTheProcess(t *testing.T) {
	before := map[string]int32{"http": 30080, "admin": 30081}
	become := func(serviceType listenersv1alpha1.ServiceType) func(*operator) {
		return func(o *operator) {
			change(o, "some-class", func(class *listenersv1alpha1.ListenerClass) { class.Spec.ServiceType = serviceType })
		}
	}
	deleteService := func(o *operator) { o.delete(get[corev1.Service](o, key.Name)) }
	for _, step := range []struct {
		name            string
		from            listenersv1alpha1.ServiceType
		do              func(*operator)
		allocated, last map[string]int32 // in the status after the step
	}{
		{"Service deleted", nodePort, deleteService, before, nil},
		{"class becomes ClusterIP", nodePort, become(clusterIP), nil, before},
		{"class becomes NodePort", clusterIP, become(nodePort), before, nil},
	} {
		for i := range 4 {
			n, sent := i/2, i%2 > 0
			t.Run(fmt.Sprintf("%s, write %d, sent %t", step.name, n, sent), func(t *testing.T) {
				process, allocate := &mortal{n: -1}, (&allocator{}).funcs().Apply
				s := newDeletedServiceState()
				s.listener.CreationTimestamp = metav1.Now() // too young for the annotation with its numbers
				o := s.operator(t, interceptor.Funcs{
					Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
						return process.write(func() error { return allocate(ctx, c, o, options...) })
					},
					SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
						return process.write(func() error { return c.SubResource(sub).Apply(ctx, o, options...) })
					},
				})
				start := func(p mortal) {
					*process = p
					o.restart()
					o.writer.GracePeriod = 0
				}
				start(mortal{n: -1})
				o.reconcile(key.Name)
				become(step.from)(o)
				o.reconcile(key.Name)
				start(mortal{n: n, sent: sent})
				step.do(o)
				for attempts := 0; process.writes <= n && attempts < 3; attempts++ {
					_, _ = o.try(key)
				}
				if process.writes <= n {
					t.Fatalf("the process has written %d times", process.writes)
				}
				start(mortal{n: -1})
				o.reconcile(key.Name)
				status, allocated := o.reconcile(key.Name).Status, map[string]int32{}
				for _, p := range get[corev1.Service](o, key.Name).Spec.Ports {
					if p.NodePort != 0 {
						allocated[p.Name] = p.NodePort
					}
				}
				got := []map[string]int32{allocated, status.NodePorts, status.LastNodePorts}
				check.Equal(t, "of the Service, in the status, and remembered", []map[string]int32{step.allocated, step.allocated, step.last}, got, cmpopts.EquateEmpty())
			})
		}
	}
}

// withSameTarget lets the node ports of the class lead to the container ports of the same numbers.
func withSameTarget(s *state) {
	s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
	if s.service != nil {
		for i := range s.service.Spec.Ports {
			s.service.Spec.Ports[i].TargetPort = intstr.FromInt32(s.service.Spec.Ports[i].NodePort)
		}
	}
}

func TestTargetPortsFollowNodePorts(t *testing.T) {
	type requests = []map[string]int64
	type targets = []map[string]any
	withTarget := func(s *state) {
		s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}`)
	}
	both := map[string]any{"http": int64(30080), "admin": int64(30081)}
	for name, tc := range map[string]struct {
		state     *state
		allocator allocator
		requests  requests
		targets   targets
		ports     map[string]int32 // in the status
	}{
		"that Kubernetes allocates":        {newListenerNamed(key.Name, nodePort), allocator{}, requests{{}, {}}, targets{{}, {"http": int64(31080)}}, map[string]int32{"http": 31080}},
		"of a range, with the first write": {newListenerState("31500-31500"), allocator{}, requests{{"http": 31500}, {}}, targets{{"http": int64(31500)}, {"http": int64(31500)}}, map[string]int32{"http": 31500}},
		"of a deleted Service, one of which is used": {
			newDeletedServiceState().with(otherService(30080)), allocator{reject: inUse(30080)}, requests{{"http": 30080, "admin": 30081}, {"admin": 30081}, {}},
			targets{both, {"admin": int64(30081)}, {"http": int64(31080), "admin": int64(30081)}}, map[string]int32{"http": 31080, "admin": 30081},
		},
		"of a Service that has them": {newState(nodePort), allocator{}, requests{{}}, targets{{"http": int64(30080)}}, map[string]int32{"http": 30080}},
		"unless overrides set them":  {newState(nodePort).change(withTarget), allocator{}, requests{{}}, targets{{"http": "web"}}, map[string]int32{"http": 30080}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.state.class.Spec.NodePorts == nil {
				tc.state.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{}
			}
			tc.state.class.Spec.NodePorts.Target = listenersv1alpha1.NodePortTargetSame // whose Service leads to other ports
			o := tc.state.reconcile(t, 1, tc.allocator.funcs(), nil)
			check.Must(t, o.err)
			check.Equal(t, "requests", tc.requests, tc.allocator.requests)
			check.Equal(t, "targets", tc.targets, tc.allocator.targets)
			check.Equal(t, "node ports", tc.ports, o.listener.Status.NodePorts)
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
			check.Equal(t, "addresses", []listenersv1alpha1.IngressAddress{ipAddress("10.0.0.1", 31080)}, l.Status.IngressAddresses)
			check.Equal(t, "targets", []map[string]any{{}, {"http": int64(31080)}, {"http": int64(31080)}, {"http": int64(31080)}}, a.targets)
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
	check.Equal(t, "addresses", []string{"10.0.0.1map[http:30080]"}, o.addresses())
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
				if kindOf(o) == "Service" {
					return a.funcs().Apply(ctx, c, o, options...)
				}
				return c.Apply(ctx, o, options...)
			}}, nil)
			check.Must(t, o.err)
			check.Equal(t, "targets", want, a.targets, cmpopts.EquateEmpty())
			if o.service.Spec.Type != corev1.ServiceTypeNodePort || len(o.addresses()) == 0 {
				t.Errorf("type %s, addresses %v", o.service.Spec.Type, o.addresses())
			}
		})
	}
}
