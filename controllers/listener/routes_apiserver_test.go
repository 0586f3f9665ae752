package listener_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// exposeByRoutes is the spec of a class.
func exposeByRoutes(route v1alpha1.RouteExposure) v1alpha1.ListenerClassSpec {
	return v1alpha1.ListenerClassSpec{ServiceType: v1alpha1.ServiceTypeClusterIP, Route: &route}
}

// newRouteFixture is a fixture on a cluster that serves Routes.
func newRouteFixture(t *testing.T, route v1alpha1.RouteExposure) *fixture {
	t.Helper()
	crds.Install(t, apiserver.Client(t), crds.Routes)
	return newFixture(t, nil, exposeByRoutes(route))
}

func (f *fixture) route(name string) *routev1.Route {
	f.t.Helper()
	route := &routev1.Route{}
	f.Eventually(func() error {
		return f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: name}, route)
	}).Should(Succeed())
	return route
}

// judge is what a router says about a Route.
func (f *fixture) judge(name, router, host string, status corev1.ConditionStatus, reason, message string) {
	f.t.Helper()
	route := f.route(name)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	entry := routev1.RouteIngress{RouterName: router, Host: host, WildcardPolicy: routev1.WildcardPolicyNone, Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: status, Reason: reason, Message: message, LastTransitionTime: &now,
	}}}
	for i := range route.Status.Ingress {
		if route.Status.Ingress[i].RouterName == router {
			route.Status.Ingress[i] = entry
			f.Expect(f.client.Status().Update(f.t.Context(), route)).To(Succeed())
			return
		}
	}
	route.Status.Ingress = append(route.Status.Ingress, entry)
	f.Expect(f.client.Status().Update(f.t.Context(), route)).To(Succeed())
}

func (f *fixture) admit(name, host string) {
	f.t.Helper()
	f.judge(name, "default", host, corev1.ConditionTrue, "", "")
}

func (f *fixture) reject(name, reason, message string) {
	f.t.Helper()
	f.judge(name, "default", "taken.example.com", corev1.ConditionFalse, reason, message)
}

func TestRoutesAreReportedOnceARouterHasAdmittedThemAll(t *testing.T) {
	f := newRouteFixture(t, v1alpha1.RouteExposure{HostTemplate: "{port}-{listener}-{namespace}.apps.example.com"})
	f.createListener(func(l *v1alpha1.Listener) {
		l.Spec.Ports = []v1alpha1.ListenerPort{{Name: "metrics", Port: 9090}, {Name: "kafka", Port: 9093}}
	})
	f.eventually(v1alpha1.ListenerReady, v1alpha1.ReasonWaitingForRouter)
	suffix := "-web-" + f.key.Namespace + ".apps.example.com"
	f.Expect(f.route("web-kafka").Spec.Host).To(Equal("kafka" + suffix))

	f.admit("web-metrics", "metrics"+suffix)
	f.reject("web-kafka", "HostAlreadyClaimed", "route other already exposes it and is older")
	l := f.eventually(v1alpha1.ListenerReady, v1alpha1.ReasonRouteNotAdmitted)
	f.Expect(l.Status.Conditions[1].Message).To(ContainSubstring(`Route %s/web-kafka is rejected by router "default": HostAlreadyClaimed: route other already exposes it and is older`,
		f.key.Namespace))
	f.Expect(l.Status.IngressAddresses).To(BeEmpty())

	f.admit("web-kafka", "kafka"+suffix)
	l = f.eventuallyAddresses("kafka"+suffix, "metrics"+suffix)
	f.Expect(l.Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"kafka": 443}))
	f.Expect(l.Status.IngressAddresses[1].Ports).To(Equal(map[string]int32{"metrics": 443}))
	f.Expect(l.Status.NodePorts).To(BeNil())
	f.eventually(v1alpha1.ListenerReady, v1alpha1.ReasonAddressesAssigned)

	// The router lets go of one, and gives the other another host.
	f.reject("web-metrics", "HostAlreadyClaimed", "again")
	f.eventuallyAddresses("kafka" + suffix)
	f.admit("web-kafka", "new.example.com")
	f.eventuallyAddresses("new.example.com")
}

func TestNodePortsStayOpenUntilRoutesAreAdmittedAndTheOtherWayRound(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.Routes)
	f := newFixture(t, nil, v1alpha1.ListenerClassSpec{
		ServiceType: v1alpha1.ServiceTypeNodePort, ServiceExternalTrafficPolicy: new(corev1.ServiceExternalTrafficPolicyLocal),
	})
	f.createListener(nil)
	f.createVolume(f.createNode("10.3.0.1").Name)
	before := f.eventuallyAddresses("10.3.0.1").Status
	service := f.service()

	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.ServiceExternalTrafficPolicy = v1alpha1.ServiceTypeClusterIP, nil
		f.class.Spec.Route = &v1alpha1.RouteExposure{}
	})
	f.route("web-http")
	f.Eventually(f.idle).Should(BeTrue())
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(before.IngressAddresses))
	f.Expect(f.listener().Status.NodePorts).To(Equal(before.NodePorts))
	f.Expect(f.service().Spec).To(Equal(service.Spec))

	f.admit("web-http", "web.example.com")
	f.eventuallyAddresses("web.example.com")
	f.Eventually(func() corev1.ServiceType { return f.service().Spec.Type }).Should(Equal(corev1.ServiceTypeClusterIP))
	f.Expect(f.listener().Status.NodePorts).To(BeNil())
	f.Expect(f.service().UID).To(Equal(service.UID))

	f.change(f.class, func() {
		f.class.Spec.ServiceType, f.class.Spec.Route = v1alpha1.ServiceTypeLoadBalancer, nil
	})
	f.Eventually(func() corev1.ServiceType { return f.service().Spec.Type }).Should(Equal(corev1.ServiceTypeLoadBalancer))
	f.Eventually(f.idle).Should(BeTrue())
	f.eventuallyAddresses("web.example.com")
	f.Expect(f.listener().Status.Conditions[1].Message).To(ContainSubstring("web.example.com as before, and not yet as ListenerClass " + f.class.Name + " says: no load balancer"))
	f.route("web-http")
	service = f.service()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	f.Expect(f.client.Status().Update(t.Context(), service)).To(Succeed())
	f.eventuallyAddresses("lb.example.com")
	f.Eventually(func() error {
		return f.client.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: "web-http"}, &routev1.Route{})
	}).Should(MatchError(ContainSubstring("not found")))
}
