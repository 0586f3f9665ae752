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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The event about them is on the class, which many Listeners may share.
func TestIgnoredSettingsOfTheClassAreInTheCondition(t *testing.T) {
	o := newState(loadBalancer).change(func(s *state) { s.class.Spec.PinnedNodePorts = true }).reconcile(t, 1, interceptor.Funcs{}, nil)
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

func TestServiceIsNotApplied(t *testing.T) {
	for name, change := range map[string]func(s *state){
		"foreign Service":                func(s *state) { s.service.OwnerReferences = nil },
		"terminating Service":            func(s *state) { terminating(s.service) },
		"Service of an earlier Listener": func(s *state) { s.service.OwnerReferences[0].UID = "old" },
		"Listener that is not accepted":  func(s *state) { s.listener.Spec.Ports[0].Port = 0 },
		"class that does not exist":      func(s *state) { s.class = nil },
		"terminating Listener":           func(s *state) { terminating(s.listener).SetFinalizers([]string{metav1.FinalizerDeleteDependents}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(clusterIP).change(change)
			o := s.reconcile(t, 1, interceptor.Funcs{Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				t.Errorf("%v was applied", o)
				return nil
			}}, nil)
			check.Must(t, o.err)
			check.Equal(t, "Service", s.service, o.service, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion"))
		})
	}
}

// Others may have its cluster IP, so it is up to users to delete it. TestStatus has the addresses meanwhile.
func TestAServiceThatCannotChangeStaysUntilItIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		state         *state
		message, want string // the cluster IP then
	}{
		"not headless":       {newState(clusterIP).change(withPods), "has a cluster IP, which no Service can lose", corev1.ClusterIPNone},
		"headless":           {newState(clusterIP).change(withHeadlessService), "is headless", ""},
		"another cluster IP": {newState(clusterIP).change(withClusterIP), "has the cluster IP 10.96.0.1, which no Service can change", "10.97.0.4"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.state.operator(t, interceptor.Funcs{})
			before := get[corev1.Service](o, key.Name)
			refused := observe.Condition(o.reconcile(key.Name), listenersv1alpha1.ListenerAccepted)
			wantCondition(t, refused, listenersv1alpha1.ReasonServiceRejected, tc.message, "delete the Service")
			check.Equal(t, "Service", before, get[corev1.Service](o, key.Name))
			o.delete(before)
			got, service := accepted(o.reconcile(key.Name)), get[corev1.Service](o, key.Name)
			if got != listenersv1alpha1.ReasonAccepted || service.Spec.ClusterIP != tc.want {
				t.Errorf("then, the Listener is %s, and the Service has the cluster IP %q", got, service.Spec.ClusterIP)
			}
		})
	}
}

// A finalizer may keep a Listener longer than its Service, whose addresses others may then get.
func TestAListenerThatIsDeletedHasNoAddressesWithoutItsService(t *testing.T) {
	published := []listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80}}}
	for name, tc := range map[string]struct {
		finalizer string
		service   bool
		want      string // the reason of the condition Ready
	}{
		"the Service is gone":              {finalizer: "example.com/cleanup", want: listenersv1alpha1.ReasonListenerTerminating},
		"the Service is there":             {finalizer: "example.com/cleanup", service: true, want: listenersv1alpha1.ReasonAddressesAssigned},
		"Kubernetes deletes both together": {finalizer: metav1.FinalizerDeleteDependents, want: listenersv1alpha1.ReasonAddressesAssigned},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(clusterIP).change(func(s *state) {
				s.listener.DeletionTimestamp, s.listener.Finalizers = ptr.To(metav1.Now()), []string{tc.finalizer}
				s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: published, Conditions: []metav1.Condition{{
					Type: listenersv1alpha1.ListenerReady, Status: metav1.ConditionTrue, Reason: listenersv1alpha1.ReasonAddressesAssigned, LastTransitionTime: metav1.Now(),
				}}}
				if !tc.service {
					s.service = nil
				}
			})
			o := s.reconcile(t, 2, interceptor.Funcs{}, nil)
			ready := o.condition(listenersv1alpha1.ListenerReady)
			if o.err != nil || ready.Reason != tc.want || (len(o.addresses()) == 0) != (tc.want == listenersv1alpha1.ReasonListenerTerminating) {
				t.Errorf("error %v, addresses %v, condition %+v", o.err, o.addresses(), ready)
			}
			if tc.want == listenersv1alpha1.ReasonListenerTerminating && !strings.Contains(ready.Message, tc.finalizer) {
				t.Errorf("the message does not name the finalizer: %s", ready.Message)
			}
		})
	}
}

// The controller must not apply its Service over a foreign one that is missing in a stale cache.
func TestForeignServiceMissingInTheCacheIsNotModified(t *testing.T) {
	s := newState(clusterIP).change(func(s *state) { s.service = nil })
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
		check.Equal(t, name, tc.want, decide.Endpoints(tc.addresses))
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
			s := newState(nodePort).change(func(s *state) { s.service, s.listener.Status = nil, status })
			intercept, writes := countWrites(0, rejection)
			o := s.reconcile(t, 1, intercept, nil)
			if !errors.Is(o.err, rejection) {
				t.Errorf("error %v", o.err)
			}
			check.Equal(t, "writes", []string{"apply Service"}, *writes)
			if len(o.events) > 0 {
				t.Errorf("events %q", o.events)
			}
		})
	}
}

func TestRejectedObjectIsReportedAndRetried(t *testing.T) {
	const inUse, noHost = "provided port is already allocated", "spec.host: Forbidden: you do not have permission to set the host field of the route"
	for name, tc := range map[string]struct {
		state           *state
		write           int // that is rejected with these words
		words           string
		reason, message string
		others          int // Routes, which are created nevertheless
	}{
		"Service":           {newListenerNamed(key.Name, clusterIP), 0, inUse, "ServiceRejected", "the API server rejects Service shop/web: " + inUse, 0},
		"NetworkPolicy":     {newRestrictedState(), 0, "no", "NetworkPolicyRejected", "without which other clients would reach the Pods", 0},
		"Route":             {newRouteState(), 1, "spec.tls.externalCertificate: Not found", "RouteRejected", "the API server rejects Route shop/web-admin: spec.tls.externalCertificate: Not found", 1},
		"host of a Route":   {newRouteState(), 1, noHost, "RouteRejected", "the API server rejects Route shop/web-admin: " + noHost, 1},
		"remedy for a host": {newRouteState(), 1, noHost, "RouteRejected", "bind its ServiceAccount to the ClusterRole listener-operator-custom-host", 1},
	} {
		t.Run(name, func(t *testing.T) {
			rejection := apierrors.NewInvalid(schema.GroupKind{Kind: name}, "web", nil)
			rejection.ErrStatus.Message = tc.words
			intercept, _ := countWrites(tc.write, rejection)
			o := tc.state.reconcile(t, 1, intercept, nil)
			if !apierrors.IsInvalid(o.err) {
				t.Errorf("got error %v, want the rejection, so that the reconciliation is retried", o.err)
			}
			wantCondition(t, o.condition(listenersv1alpha1.ListenerAccepted), tc.reason, tc.message)
			if len(o.events) != 1 || !strings.HasPrefix(o.events[0], "Warning "+tc.reason+" ") {
				t.Errorf("events %q", o.events)
			}
			if len(o.routes) != tc.others || tc.others > 0 && o.routes["web-http"] == nil || tc.others == 0 && o.service != nil {
				t.Errorf("Service %v, Routes %v", o.service, o.routes)
			}
		})
	}
}

func TestConditionsDoNotChangeWhileTheAPIServerIsUnavailable(t *testing.T) {
	intercept, _ := countWrites(0, apierrors.NewServiceUnavailable("busy"))
	s := newState(clusterIP)
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
			s := newState(clusterIP)
			if tc.configured != "" {
				s.configuration = &operatorv1alpha1.ListenerOperator{
					ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}, Spec: operatorv1alpha1.ListenerOperatorSpec{ClusterDomain: tc.configured},
				}
			}
			o := s.reconcile(t, 2, interceptor.Funcs{}, func(r *Reconciler) { r.reader.ClusterDomain = tc.resolver })
			check.Equal(t, "addresses", []string{"web.shop.svc." + tc.want + "map[http:80]"}, o.addresses())
		})
	}
}

func TestSecondReconciliationWritesNothing(t *testing.T) {
	for name, s := range map[string]*state{
		"NodePort":  newState(nodePort),
		"ClusterIP": newState(clusterIP),
		"NodePort without node ports": newState(nodePort).change(func(s *state) {
			s.class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"type":"ClusterIP"}}`)
			s.service.Spec.Ports[0].NodePort = 0
		}),
	} {
		intercept, writes := countWrites(-1, nil)
		o := s.change(withNode).reconcile(t, 3, intercept, nil)
		events := 0
		if len(o.listener.Status.IngressAddresses) == 0 {
			events = 1 // that there is no address
		}
		check.Must(t, o.err)
		check.Equal(t, name+": writes in three reconciliations", []string{"apply Service", "apply status"}, *writes)
		check.Equal(t, name+": number of events", events, len(o.events))
	}
}
