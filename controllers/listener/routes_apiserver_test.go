package listener_test

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/openshift"
)

// routeClass returns the spec of a class with Routes.
func routeClass(route listenersv1alpha1.RouteExposure) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: clusterIP, Route: &route}
}

// newRouteFixture returns a fixture on a cluster that serves Routes, with a class for them.
func newRouteFixture(t *testing.T, route listenersv1alpha1.RouteExposure) *fixture {
	t.Helper()
	serveRoutes(t)
	return newFixture(t, routeClass(route))
}

// serveRoutes makes the API server handle Routes as OpenShift's does.
func serveRoutes(t *testing.T) {
	t.Helper()
	crds.Install(t, apiserver.Client(t), crds.Routes)
	check.Must(t, openshift.Install(t.Context(), apiserver.Client(t), "apps.example.com"))
}

func (f *fixture) route(name string) *routev1.Route {
	f.Helper()
	return awaited(f, f, name, &routev1.Route{})
}

// setIngress sets the status that a router reports for a Route.
func (f *fixture) setIngress(name, router, host string, status corev1.ConditionStatus, reason, message string) {
	f.Helper()
	route := f.route(name)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	entry := routev1.RouteIngress{RouterName: router, Host: host, WildcardPolicy: routev1.WildcardPolicyNone, Conditions: []routev1.RouteIngressCondition{{
		Type: routev1.RouteAdmitted, Status: status, Reason: reason, Message: message, LastTransitionTime: &now,
	}}}
	route.Status.Ingress = append(slices.DeleteFunc(route.Status.Ingress, func(i routev1.RouteIngress) bool { return i.RouterName == router }), entry)
	f.Expect(f.Status().Update(f.Context(), route)).To(Succeed())
}

func (f *fixture) admit(name, host string) {
	f.Helper()
	f.setIngress(name, "default", host, corev1.ConditionTrue, "", "")
}

func (f *fixture) eventuallySpec(name string, want func(routev1.RouteSpec) bool) *routev1.Route {
	f.Helper()
	route := &routev1.Route{}
	f.Eventually(func() bool {
		err := f.Get(f.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: name}, route)
		return err == nil && want(route.Spec)
	}).Should(BeTrue(), "%v", route)
	return route
}

func TestRouteFollowsItsClassAndIsRecreatedIfNecessary(t *testing.T) {
	f := newRouteFixture(t, listenersv1alpha1.RouteExposure{})
	f.createListener(nil)
	generated, custom := "web-http-"+f.key.Namespace+".apps.example.com", "web."+f.key.Namespace+".example.com"
	first := f.eventuallySpec("web-http", func(s routev1.RouteSpec) bool { return s.Host == generated })
	f.Expect(first.Spec.To.Name).To(Equal("web"))
	f.Expect(first.Spec.Port.TargetPort.String()).To(Equal("http"))
	f.admit("web-http", generated)
	f.eventuallyAddresses(generated)

	f.change(f.class, func() {
		f.class.Spec.Route.HostTemplate = "{listener}.{namespace}.example.com"
		f.class.Spec.Route.Termination = listenersv1alpha1.RouteTerminationEdge
		f.class.Spec.Route.Labels = map[string]string{"shard": "internal"}
		f.class.Spec.Route.Annotations = map[string]string{"haproxy.router.openshift.io/timeout": "5m"}
	})
	second := f.eventuallySpec("web-http", func(s routev1.RouteSpec) bool { return s.Host == custom })
	f.Expect(second.UID).To(Equal(first.UID))
	f.Expect(second.Spec.TLS.Termination).To(Equal(routev1.TLSTerminationEdge))
	f.Expect(second.Labels).To(HaveKeyWithValue("shard", "internal"))
	f.Expect(second.Annotations).To(HaveKeyWithValue("haproxy.router.openshift.io/timeout", "5m"))
	f.eventuallyAddresses(generated) // until the router follows
	f.admit("web-http", custom)
	f.eventuallyAddresses(custom)

	// A host cannot be removed, and a wildcard policy cannot be changed.
	f.change(f.class, func() {
		f.class.Spec.Route.HostTemplate, f.class.Spec.Route.SubdomainTemplate = "", "{listener}.{namespace}"
	})
	third := f.eventuallySpec("web-http", func(s routev1.RouteSpec) bool { return s.Subdomain == "web."+f.key.Namespace && s.Host == "" })
	f.Expect(third.UID).NotTo(Equal(first.UID))
	f.change(f.class, func() {
		f.class.Spec.Route.HostTemplate, f.class.Spec.Route.SubdomainTemplate = "{listener}.{namespace}.example.com", ""
		f.class.Spec.Route.WildcardPolicy = listenersv1alpha1.RouteWildcardPolicySubdomain
	})
	fourth := f.eventuallySpec("web-http", func(s routev1.RouteSpec) bool { return s.WildcardPolicy == routev1.WildcardPolicySubdomain })
	f.Expect(fourth.UID).NotTo(Equal(third.UID))
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
}

// The operator has all of its permissions except the one for custom hosts, which an administrator may remove.
func TestGeneratedHostsNeedNoPermissionForCustomHosts(t *testing.T) {
	serveRoutes(t)
	c, cfg := apiserver.Client(t), apiserver.Config(t)
	cfg.Impersonate.UserName = "system:serviceaccount:" + names.Operator + ":without-hosts"
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: names.Operator, Name: "without-hosts"}}
	grant := func(role string) {
		for _, o := range operatorRoles(t) {
			if o.GetKind() == "ClusterRole" && o.GetName() == role {
				check.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), o)))
			}
		}
		check.Must(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-without-hosts"}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}))
	}
	grant("listener-operator")
	f := newFixtureWith(t, settings{config: cfg}, routeClass(listenersv1alpha1.RouteExposure{}))
	f.createListener(nil)
	generated := "web-http-" + f.key.Namespace + ".apps.example.com"
	f.eventuallySpec("web-http", func(s routev1.RouteSpec) bool { return s.Host == generated })
	f.admit("web-http", generated)
	f.eventuallyAddresses(generated)

	f.change(f.class, func() { f.class.Spec.Route.HostTemplate = "{listener}.{namespace}.example.com" })
	l := f.eventually(listenersv1alpha1.ListenerAccepted, reasons.Rejected("Route"))
	f.Expect(l.Status.Conditions[0].Message).To(And(
		ContainSubstring("you do not have permission to set the host field of the route"),
		ContainSubstring("bind its ServiceAccount to the ClusterRole listener-operator-custom-host")))
	f.eventuallyAddresses(generated)

	grant("listener-operator-custom-host")
	f.Eventually(f.reason(listenersv1alpha1.ListenerAccepted), apiserver.Timeout).Should(Equal(listenersv1alpha1.ReasonAccepted))
	f.Expect(f.route("web-http").Spec.Host).To(Equal("web." + f.key.Namespace + ".example.com"))
}
