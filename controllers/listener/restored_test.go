package listener

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/write"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// A backup keeps labels and, if told so, node ports of a Service, but no owners, and no status of the Listener.
func TestAServiceFromABackupIsAdopted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Service)
		want   bool
	}{
		"restored":                     {func(*corev1.Service) {}, true},
		"written by a user":            {func(s *corev1.Service) { s.Labels = nil }, false},
		"of another Listener":          {func(s *corev1.Service) { s.Labels["app.kubernetes.io/instance"] = "other" }, false},
		"of another operator":          {func(s *corev1.Service) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" }, false},
		"of a Listener's copy by hand": {func(s *corev1.Service) { s.Labels["app.kubernetes.io/name"] = "web" }, false},
		"with another owner": {func(s *corev1.Service) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(nodePort).change(withNode)
			s.service.OwnerReferences, s.service.Labels = nil, map[string]string{
				"app.kubernetes.io/name": "listener", "app.kubernetes.io/instance": key.Name, "app.kubernetes.io/managed-by": "listeners.stackable.tech_listener",
				"velero.io/restore-name": "monday",
			}
			tc.change(s.service)
			o := s.operator(t, interceptor.Funcs{})
			listener, service := o.reconcile(key.Name), get[corev1.Service](o, key.Name)
			if got := observe.Controls(listener, service); got != tc.want || service.UID != "service-uid" || service.Spec.Ports[0].NodePort != 30080 {
				t.Errorf("controlled by the Listener: %v, want %v; the Service is %+v", got, tc.want, service)
			}
			accepted := observe.Condition(listener, listenersv1alpha1.ListenerAccepted)
			if foreign := accepted.Reason == listenersv1alpha1.ReasonForeignService; foreign == tc.want {
				t.Errorf("condition Accepted: %s: %s", accepted.Reason, accepted.Message)
			}
			if tc.want && ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).NodePorts["http"] != 30080 {
				t.Errorf("the status is %+v", listener.Status)
			}
		})
	}
}

// restoredStates returns, by the kind of object that is generated, a Listener of a class. The Gateway that some need
// has listeners at the port and the next one.
func restoredStates(port gatewayv1.PortNumber) map[string]*state {
	ofClass := func(change func(*listenersv1alpha1.ListenerClassSpec)) *state {
		return newState(clusterIP).change(func(s *state) { change(&s.class.Spec) })
	}
	return map[string]*state{
		"Route": ofClass(func(c *listenersv1alpha1.ListenerClassSpec) { c.Route = &listenersv1alpha1.RouteExposure{} }),
		"Ingress": ofClass(func(c *listenersv1alpha1.ListenerClassSpec) {
			c.Ingress = &listenersv1alpha1.IngressExposure{ClassName: "nginx", HostTemplate: "{listener}.{namespace}.example.com"}
		}),
		"TLSRoute":  newRoutedState(listenersv1alpha1.GatewayRouteKindTLS, gatewayv1.TLSProtocolType, port),
		"HTTPRoute": newRoutedState(listenersv1alpha1.GatewayRouteKindHTTP, gatewayv1.HTTPProtocolType, port),
		"TCPRoute":  newRoutedState(listenersv1alpha1.GatewayRouteKindTCP, gatewayv1.TCPProtocolType, port),
		"UDPRoute": newRoutedState(listenersv1alpha1.GatewayRouteKindUDP, gatewayv1.UDPProtocolType, port).change(func(s *state) {
			s.listener.Spec.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
		}),
		"ListenerSet": newRoutedState(listenersv1alpha1.GatewayRouteKindTCP, gatewayv1.TCPProtocolType, port).change(func(s *state) {
			s.class.Spec.Gateway.PortRange = "9000-9009"
		}),
		"NetworkPolicy": newRestrictedState(),
	}
}

// TestObjectsFromABackupAreAdopted that backups restore without owners, before the Listener or after it, but nothing
// that people have written, which stays as it is until it is deleted.
func TestObjectsFromABackupAreAdopted(t *testing.T) {
	kinds := map[string]*exposure.Kind{}
	for _, backend := range backends.All() {
		for _, kind := range backend.Generates {
			kinds[kind.Kind] = kind
		}
	}
	kinds["NetworkPolicy"] = &exposure.Kind{GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")}
	for name, kind := range kinds {
		one := func(o *operator) *unstructured.Unstructured {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersionKind)
			if err := o.api.List(t.Context(), list, client.InNamespace(key.Namespace)); err != nil || len(list.Items) != 1 {
				t.Fatalf("%v, objects of kind %s: %v", err, name, list.Items)
			}
			return &list.Items[0]
		}
		if restoredStates(9000)[name] == nil {
			t.Fatalf("no class has objects of kind %s", name)
		}
		before := restoredStates(9000)[name].operator(t, interceptor.Funcs{})
		before.reconcile(key.Name)
		backup := one(before)
		for order, tc := range map[string]struct{ listenerFirst, written bool }{"objects first": {}, "Listener first": {listenerFirst: true}, "written by people": {written: true}} {
			t.Run(name+", "+order, func(t *testing.T) {
				restored := &unstructured.Unstructured{Object: map[string]any{"spec": backup.Object["spec"]}}
				restored.SetGroupVersionKind(kind.GroupVersionKind)
				restored.SetNamespace(key.Namespace)
				restored.SetName(backup.GetName())
				restored.SetUID("restored")
				restored.SetAnnotations(backup.GetAnnotations())
				labels := map[string]string{"velero.io/restore-name": "monday"}
				if !tc.written {
					maps.Copy(labels, backup.GetLabels())
				}
				restored.SetLabels(labels)

				s := restoredStates(30000)[name] // of which a new object would get another port
				class := s.class
				if tc.listenerFirst {
					s.class = nil
				}
				o := s.operator(t, interceptor.Funcs{})
				if tc.listenerFirst {
					o.reconcile(key.Name)
				}
				o.create(restored)
				if tc.listenerFirst {
					o.create(class)
				}
				version := one(o).GetResourceVersion()
				l := o.reconcile(key.Name)
				if tc.written {
					if now := one(o); accepted(l) != kind.ForeignReason() || now.GetResourceVersion() != version || len(l.Status.IngressAddresses) > 0 && name != "NetworkPolicy" {
						t.Errorf("Accepted is %s, addresses %v, and the object is %v", accepted(l), l.Status.IngressAddresses, now)
					}
					if name == "ListenerSet" && find[gatewayv1.TCPRoute](o, "web-http") != nil {
						t.Error("a route leads to the ListenerSet of others")
					}
					o.delete(restored)
					l = o.reconcile(key.Name)
				}
				now := one(o)
				if owner := metav1.GetControllerOf(now); owner == nil || owner.UID != l.UID || accepted(l) != listenersv1alpha1.ReasonAccepted {
					t.Errorf("Accepted is %s, and the controller is %v", accepted(l), owner)
				}
				check.Equal(t, "it was replaced", tc.written, now.GetUID() != "restored")
				if diff := cmp.Diff(backup.Object["spec"], now.Object["spec"]); diff != "" && !tc.written {
					t.Errorf("spec (-backup +now):\n%s", diff)
				}
			})
		}
	}
}

// TestAListenerFromABackupKeepsItsPortOfAGateway although the backup lacks the objects of the Gateway.
func TestAListenerFromABackupKeepsItsPortOfAGateway(t *testing.T) {
	for name, tc := range map[string]struct {
		portRange string
		had, want int32
	}{
		"a listener of the Gateway":        {"", 9001, 9001},
		"one that does not exist any more": {"", 9005, 9000},
		"a ListenerSet":                    {"9000-9009", 9007, 9007},
		"outside of the range":             {"9000-9009", 9010, 9002},
	} {
		t.Run(name, func(t *testing.T) {
			remembered := func(port int32) string {
				return fmt.Sprintf(`{"addresses":[{"address":"192.0.2.1","addressType":"IP","ports":{"http":%d}}]}`, port)
			}
			o := newTCPState(tc.portRange).change(func(s *state) {
				s.listener.Annotations = map[string]string{names.AnnotationNumbers: remembered(tc.had)}
			}).operator(t, interceptor.Funcs{})
			o.reconcile(key.Name)
			met := func(conditions ...string) (all []metav1.Condition) {
				for _, c := range conditions {
					all = append(all, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
				}
				return all
			}
			change(o, "web-http", func(route *gatewayv1.TCPRoute) {
				route.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: route.Spec.ParentRefs[0], Conditions: met("Accepted")}}
			})
			if tc.portRange != "" {
				change(o, "web-tcp", func(set *gatewayv1.ListenerSet) { set.Status.Conditions = met("Accepted", "Programmed") })
			}
			l := o.reconcile(key.Name)
			check.Equal(t, "endpoints", map[string]string{"http": fmt.Sprint("192.0.2.1:", tc.want)}, l.Status.Endpoints)
			check.Equal(t, "remembered numbers", remembered(tc.want), l.Annotations[names.AnnotationNumbers])
			changed := slices.ContainsFunc(o.events(), func(e string) bool {
				return strings.HasPrefix(e, "Warning NumbersChanged ") && strings.Contains(e, "port http: ")
			})
			check.Equal(t, "an event about another port", tc.had != tc.want, changed)
		})
	}
}

// The write costs nothing while Pods start, and is not repeated.
func TestNumbersAreRememberedWhenAListenerHasExistedForAMoment(t *testing.T) {
	s := newState(nodePort).change(withNode)
	created := time.Unix(1_800_000_000, 0)
	s.listener.CreationTimestamp = metav1.NewTime(created)
	patches := 0
	o := s.operator(t, fakeclient.EachWrite(func(verb string, _ any, send func() error) error {
		if verb == "patch" {
			patches++
		}
		return send()
	}))
	for _, step := range []struct {
		age, next time.Duration
		node      int32
		want      string
		patches   int
	}{
		{age: 2 * time.Second, next: write.RememberAfter - 2*time.Second},
		{age: write.RememberAfter + 1, want: `{"nodePorts":{"http":30080}}`, patches: 1},
		{age: time.Hour, want: `{"nodePorts":{"http":30080}}`, patches: 1},
		{age: time.Hour, node: 30081, want: `{"nodePorts":{"http":30081}}`, patches: 2},
	} {
		o.now.SetTime(created.Add(step.age))
		if step.node != 0 {
			change(o, key.Name, func(service *corev1.Service) { service.Spec.Ports[0].NodePort = step.node })
		}
		if next, _ := o.reconcileAfter(0); step.next != 0 && next != step.next {
			t.Fatalf("after %s, again after %s, want %s", step.age, next, step.next)
		}
		if got := o.listener().Annotations[names.AnnotationNumbers]; got != step.want || patches != step.patches {
			t.Errorf("after %s, the annotation is %q after %d patches, want %q after %d", step.age, got, patches, step.want, step.patches)
		}
	}
}

// Users may write the annotation, where no policy denies it.
func TestRememberedNumbersAreRequestedIfTheyAreAllowedAndFree(t *testing.T) {
	range30 := func(s *state) { s.class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Range: "30000-30099"} }
	other := func(s *state) {
		o := s.listener.DeepCopy()
		o.Name, o.UID, o.Status = "other", "other", &listenersv1alpha1.ListenerStatus{NodePorts: map[string]int32{"http": 30042}}
		s.with(o)
	}
	sharing := func(s *state) {
		s.class.Spec.ServiceType = loadBalancer
		s.class.Spec.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "20000-20000"}}
	}
	wide := func(s *state) { s.class.Spec.LoadBalancer.Sharing.PortRange = "20000-20099" }
	routed := func(s *state) {
		s.class.Spec.ServiceType = clusterIP
		s.class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{"10.97.0.8/30"}}
	}
	const restored = "Normal Restored"
	for name, tc := range map[string]struct {
		text   string
		change []func(*state)
		want   string // of the requested Service
		events []string
	}{
		"node port":                              {`{"nodePorts":{"http":30042}}`, nil, "node port 30042", []string{restored}},
		"node port of a range":                   {`{"nodePorts":{"http":30042}}`, []func(*state){range30}, "node port 30042", []string{restored}},
		"node port outside of the class's range": {`{"nodePorts":{"http":31042}}`, []func(*state){range30}, "", []string{restored, "http: 30061 instead of 31042 (the class has another range)"}},
		"no port":                                {`{"nodePorts":{"http":-1}}`, nil, "node port 0", []string{restored}},
		"node port of another Listener":          {`{"nodePorts":{"http":30042}}`, []func(*state){other}, "node port 0", []string{restored}},
		"node port of another Listener, in a range": {`{"nodePorts":{"http":30042}}`, []func(*state){other, range30}, "", []string{restored,
			"instead of 30042 (another Service or Listener has it)"}},
		"node port of another name":       {`{"nodePorts":{"https":30042}}`, nil, "node port 0", []string{restored}},
		"not JSON":                        {`nodePorts`, nil, "node port 0", []string{restored}},
		"an unknown field":                {`{"nodePorts":{"http":30042},"more":1}`, nil, "node port 0", []string{restored}},
		"a field twice":                   {`{"nodePorts":{"http":30042},"nodePorts":{"http":30043}}`, nil, "node port 0", []string{restored}},
		"too long":                        {`{"nodePorts":{"http":30042}` + strings.Repeat(" ", observe.MaxNumbers) + `}`, nil, "node port 0", []string{restored}},
		"port at a shared address":        {`{"sharedPorts":{"http":20042}}`, []func(*state){sharing, wide}, "port 20042", []string{restored}},
		"port outside of the range":       {`{"sharedPorts":{"http":25000}}`, []func(*state){sharing}, "port 20000", []string{restored, "Warning NumbersChanged"}},
		"cluster IP":                      {`{"clusterIPs":["10.97.0.10"]}`, []func(*state){routed}, "cluster IP 10.97.0.10", []string{restored}},
		"cluster IP outside the range":    {`{"clusterIPs":["10.98.0.10"]}`, []func(*state){routed}, "", []string{restored, "instead of 10.98.0.10"}},
		"a cluster IP that is no address": {`{"clusterIPs":["everything"]}`, []func(*state){routed}, "", []string{restored, "instead of everything"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(nodePort).change(withNode)
			s.service, s.listener.Annotations = nil, map[string]string{names.AnnotationNumbers: tc.text}
			for _, change := range tc.change {
				change(s)
			}
			got := s.reconcile(t, 1, interceptor.Funcs{}, func(r *Reconciler) { observePorts(t, r) })
			if got.err != nil || got.service == nil {
				t.Fatalf("the Service is %+v, error %v", got.service, got.err)
			}
			port := got.service.Spec.Ports[0]
			requested := fmt.Sprintf("node port %d, port %d, cluster IP %s", port.NodePort, port.Port, got.service.Spec.ClusterIP)
			if !strings.Contains(requested, tc.want) {
				t.Errorf("requested %s, want %s", requested, tc.want)
			}
			got.events = slices.DeleteFunc(got.events, func(e string) bool { return strings.HasPrefix(e, "Normal WaitingFor") })
			for _, want := range tc.events {
				if !slices.ContainsFunc(got.events, func(e string) bool { return strings.Contains(e, want) }) {
					t.Errorf("no event %q: %q", want, got.events)
				}
			}
			if len(got.events) != len(tc.events) {
				t.Errorf("the events are %q", got.events)
			}
		})
	}
}
