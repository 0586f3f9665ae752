package listener

import (
	"cmp"
	"errors"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
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

// shared is what a Listener has at a shared address.
type shared struct {
	ports  map[string]servedPort // of the Service
	stored map[string]int32      // in the status
	reason string                // of Accepted, if it is not Accepted
}

func TestListenersHavePortsOfTheirOwnAtASharedAddress(t *testing.T) {
	at := func(number int32) shared {
		return shared{ports: map[string]servedPort{"http": {number, intstr.FromInt32(80)}}, stored: map[string]int32{"http": number}}
	}
	two := func(first, second string, one, other servedPort) shared {
		return shared{ports: map[string]servedPort{first: one, second: other}, stored: map[string]int32{first: one.Port, second: other.Port}}
	}
	had := func(number int32) func(*state) { return having(map[string]int32{"http": number}) }
	not := shared{ports: map[string]servedPort{"http": {Port: 80}}}
	override := func(spec string) func(*state) {
		return func(s *state) { s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec": ` + spec + `}`) }
	}
	withAdmin := func(s *state) {
		s.listener.Spec.Ports = append(s.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "admin", Port: 9000})
	}
	withDNS := func(s *state) {
		s.listener.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "dns-tcp", Port: 53}, {Name: "dns-udp", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}}
	}
	balanced := func(s *state) {
		s.service.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}
	target := func(number int32, target string) servedPort { return servedPort{number, intstr.Parse(target)} }
	ofThisNamespace, ofOtherClass, withoutService := sharingListener(9000, 9001), sharingListener(9000), sharingListener(9000)
	ofThisNamespace.Namespace, ofOtherClass.Spec.ClassName = key.Namespace, ptr.To("other-class")
	withoutService.Status.ServiceName = nil // the API server rejects it
	for name, tc := range map[string]struct {
		state *state
		want  shared
	}{
		"the only number":                               {newSharingState("9000-9000"), at(9000)},
		"another namespace has one":                     {newSharingState("9000-9001").with(sharingListener(9000)), at(9001)},
		"another class has one":                         {newSharingState("9000-9001").with(ofOtherClass), at(9001)},
		"a Listener without a Service remembers one":    {newSharingState("9000-9000").with(withoutService), at(9000)},
		"another one has got the last one":              {newSharingState("9000-9001").change(had(9000)).with(sharingListener(9000)), at(9001)},
		"the namespace has as many as it may have":      {newSharingState("9000-9009").change(limitSharedPorts(2)).with(ofThisNamespace), shared{reason: "PortLimitReached"}},
		"another namespace has as many as one may have": {newSharingState("9000-9002").change(limitSharedPorts(2)).with(sharingListener(9000, 9001)), at(9002)},
		"all are taken":                                 {newSharingState("9000-9001").with(sharingListener(9000, 9001)), shared{reason: "SharedPortsExhausted"}},
		"the last one, also if it is not in the range":  {newSharingState("9000-9001").change(had(8000)), at(8000)},
		"a port is added":                               {newSharingState("9000-9001").change(had(9000)).change(withAdmin), two("http", "admin", target(9000, "80"), target(9001, "9000"))},
		"a port is removed":                             {newSharingState("9000-9001").change(having(map[string]int32{"http": 9000, "admin": 9001})), at(9000)},
		"one number for both protocols":                 {newSharingState("9000-9000").change(withDNS), two("dns-tcp", "dns-udp", target(9000, "53"), target(9000, "53"))},
		"a target port of overrides": {
			newSharingState("9000-9000").change(override(`{"ports": [{"port": 80, "targetPort": "web"}]}`)),
			shared{ports: map[string]servedPort{"http": target(9000, "web")}, stored: map[string]int32{"http": 9000}},
		},
		"of a Service that has a load balancer of its own": {
			newSharingState("9000-9000").change(func(s *state) { s.service = newState(loadBalancer).service }), at(9000),
		},
		"another type of overrides": {newSharingState("9000-9000").change(override(`{"type": "ClusterIP"}`)), not},
		"no longer shared":          {newSharingState("9000-9000").change(had(9000)).change(func(s *state) { s.class.Spec.LoadBalancer = nil }), not},
		"shared while Routes are not admitted yet": {
			newRouteState().change(having(map[string]int32{"http": 9000, "admin": 9001})).change(balanced), two("http", "admin", target(9000, "80"), target(9001, "81")),
		},
		"without a class": {
			newSharingState("").change(had(9000)).change(func(s *state) { s.class = nil }), shared{stored: map[string]int32{"http": 9000}, reason: "ClassNotFound"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { observePorts(t, r) })
			check.Must(t, o.err)
			got := shared{stored: o.listener.Status.SharedPorts, reason: o.condition(listenersv1alpha1.ListenerAccepted).Reason}
			if o.service != nil {
				got.ports = map[string]servedPort{}
				for _, p := range o.service.Spec.Ports {
					got.ports[p.Name] = servedPort{p.Port, p.TargetPort}
				}
			}
			tc.want.reason = cmp.Or(tc.want.reason, "Accepted")
			check.Equal(t, "what it has", tc.want, got, gocmp.AllowUnexported(shared{}))
			expectWaiting(t, o.listener.Status.WaitingFor, listenersv1alpha1.WaitingKindSharedPort, tc.want.reason)
		})
	}
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
	process := &mortal{n: writes, sent: true}
	o := s.with(second(s.listener)).operator(t, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
		if verb == "patch" { // of the annotation with its numbers
			return send()
		}
		return process.write(send)
	}))
	if _, err := o.try(client.ObjectKeyFromObject(s.listener)); (err == nil) != (writes == 2) {
		t.Errorf("%d writes: %v", writes, err)
	}
	process.n = -1
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
			o := s.with(second(s.listener)).operator(t, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
				if verb == "apply" && exceeded {
					return quota
				}
				return send()
			}))
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
		_, err := o.Reconcile(t.Context(), before.DeepCopy())
		check.Must(t, err)
		numbers = append(numbers, o.listener().Status.SharedPorts["http"])
	}
	if numbers[0] == 0 || numbers[1] != numbers[0] || numbers[2] != numbers[0] {
		t.Errorf("the numbers are %v", numbers)
	}
}

// withRange gives the class a range of node ports.
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
	type outcome struct {
		requests []map[string]int64
		ports    map[string]int32 // in the status
		reason   string           // of Accepted
	}
	gets := func(number int32) outcome {
		return outcome{[]map[string]int64{{"http": int64(number)}}, map[string]int32{"http": number}, "Accepted"}
	}
	refused := func(reason string) outcome { return outcome{reason: reason} }
	having := func(numbers string) *state { return newDeletedServiceState().change(withRange(numbers)) }
	existing := func() *state { return newState(nodePort).change(withRange("31500-31500")) }
	both, had := map[string]int64{"http": 30080, "admin": 30081}, map[string]int32{"http": 30080, "admin": 30081}
	keeps := outcome{[]map[string]int64{both}, had, "Accepted"}
	hadWhenItHadNodePorts := func(s *state) {
		s.listener.Status.NodePorts, s.listener.Status.LastNodePorts = nil, s.listener.Status.NodePorts
	}
	withNewPort := func(s *state) {
		s.listener.Spec.Ports = append(s.listener.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "new", Port: 81})
	}
	for name, tc := range map[string]struct {
		state     *state
		allocator allocator
		want      outcome
	}{
		"one number":        {newListenerState("31500-31500"), allocator{}, gets(31500)},
		"used by a Service": {newListenerState("31500-31501").with(otherService(31500)), allocator{}, gets(31501)},
		"reserved by a Listener whose Service does not exist":       {newListenerState("31500-31501").with(reserving(map[string]int32{"http": 31501}, nil)), allocator{}, gets(31500)},
		"not reserved by a Listener whose Service has another type": {newListenerState("31501-31501").with(reserving(nil, map[string]int32{"http": 31501})), allocator{}, gets(31501)},
		"used by a Service that is not in the cache yet": {
			newListenerState("31500-31501").with(otherService(31500)), allocator{reject: inUse(31501)}, outcome{[]map[string]int64{{"http": 31501}}, nil, "ServiceRejected"},
		},
		"exhausted": {newListenerState("31500-31501").with(otherService(31500, 31501)), allocator{}, refused("NodePortsExhausted")},
		"the namespace has as many as it may have": {
			newListenerState("31500-31509").change(limitNodePorts(2)).with(serviceIn(key.Namespace, 31500, 31501)), allocator{}, refused("PortLimitReached"),
		},
		"the namespace has as many as it may have, with one that is not in the range": {
			newListenerState("31500-31500").change(limitNodePorts(2)).with(serviceIn(key.Namespace, 31501, 31502)), allocator{}, gets(31500),
		},
		"other namespaces have as many as one may have":                        {newListenerState("31500-31502").change(limitNodePorts(2)).with(otherService(31500, 31501)), allocator{}, gets(31502)},
		"the limit is lower than what the Listener has":                        {having("30080-30081").change(limitNodePorts(1)), allocator{}, keeps},
		"the limit is lower than what the Listener had when it had node ports": {having("30080-30081").change(limitNodePorts(1)).change(hadWhenItHadNodePorts), allocator{}, refused("PortLimitReached")},
		"kept although it is not in the range":                                 {having("31500-31501"), allocator{}, keeps},
		"another one of the range if the last one is used": {
			having("31500-31500").with(otherService(30080)), allocator{reject: inUse(30080)},
			outcome{[]map[string]int64{both, {"http": 31500, "admin": 30081}}, map[string]int32{"http": 31500, "admin": 30081}, "Accepted"},
		},
		"a port that is added":                        {existing().change(withNewPort), allocator{}, outcome{[]map[string]int64{{"new": 31500}}, nil, "Accepted"}},
		"not needed by a Service that has node ports": {existing().with(otherService(31500)), allocator{}, outcome{[]map[string]int64{{}}, map[string]int32{"http": 30080}, "Accepted"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.operator(t, tc.allocator.funcs())
			observePorts(t, o.Reconciler)
			if _, err := o.try(key); (err != nil) != (tc.want.reason == "ServiceRejected") {
				t.Fatal(err)
			}
			listener := o.listener()
			check.Equal(t, "requests", tc.want.requests, tc.allocator.requests)
			if pending := o.held.Registry.Begin(key).Reserved(listenersv1alpha1.WaitingKindNodePort); tc.want.reason == "ServiceRejected" && len(pending) > 0 {
				t.Errorf("no other Listener can get the rejected %v", pending)
			}
			if tc.want.ports != nil {
				check.Equal(t, "node ports", tc.want.ports, listener.Status.NodePorts)
			}
			check.Equal(t, "reason", tc.want.reason, accepted(listener))
			expectWaiting(t, listener.Status.WaitingFor, listenersv1alpha1.WaitingKindNodePort, tc.want.reason)
		})
	}
}
