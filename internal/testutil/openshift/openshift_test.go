package openshift_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/openshift"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

const domain = "apps.test"

// fixture has clients of an API server that treats Routes as OpenShift's does: one of an administrator, and one of a
// user who has permission to edit Routes.
type fixture struct {
	*testing.T
	admin, user client.Client
	namespace   string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, namespace: apiserver.Namespace(t)}
	config := apiserver.Config(t)
	f.admin = newClient(t, config)
	crds.Install(t, f.admin, crds.Routes)
	ctx, cancel := context.WithTimeout(t.Context(), apiserver.Timeout)
	defer cancel()
	check.Must(t, openshift.Install(ctx, f.admin, domain))
	config.Impersonate.UserName = "user"
	f.user = newClient(t, config)
	f.allow("user", rbacv1.PolicyRule{APIGroups: []string{"route.openshift.io"}, Resources: []string{"routes"}, Verbs: []string{"*"}})
	return f
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	check.Must(t, err)
	return c
}

// allow grants a user, or a ServiceAccount by its user name, a permission in the namespace.
func (f *fixture) allow(user string, rule rbacv1.PolicyRule) {
	f.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "role-"}, Rules: []rbacv1.PolicyRule{rule}}
	check.Must(f, f.admin.Create(f.Context(), role))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	check.Must(f, f.admin.Create(f.Context(), binding))
}

func (f *fixture) route(name string, spec routev1.RouteSpec) *routev1.Route {
	spec.To = routev1.RouteTargetReference{Kind: "Service", Name: "web"}
	return &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: spec}
}

// expectInvalid fails the test unless err is the API server's error for an invalid object and contains message.
func (f *fixture) expectInvalid(err error, message string) {
	f.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), message) {
		f.Errorf("error is %v, want one that contains %q", err, message)
	}
}

func TestHostIsChosenForRouteWithoutHost(t *testing.T) {
	f := newFixture(t)
	for name, spec := range map[string]routev1.RouteSpec{"plain": {}, "subdomain": {Subdomain: "sub"}} {
		route := f.route(name, spec)
		check.Must(t, f.user.Create(t.Context(), route))
		want, generated := "plain-"+f.namespace+".apps.test", "true"
		if name == "subdomain" {
			want, generated = "", ""
		}
		if route.Spec.Host != want || route.Annotations[openshift.AnnotationGenerated] != generated {
			t.Errorf("%s: host %q, annotations %v", name, route.Spec.Host, route.Annotations)
		}
	}
	// An update without a host keeps it.
	route := f.route("plain", routev1.RouteSpec{})
	check.Must(t, f.user.Get(t.Context(), client.ObjectKeyFromObject(route), route))
	was := route.Spec.Host
	route.Spec.Host, route.Labels = "", map[string]string{"changed": "yes"}
	check.Must(t, f.user.Update(t.Context(), route))
	if route.Spec.Host != was || route.Labels["changed"] != "yes" {
		t.Errorf("after an update without a host: host %q, labels %v", route.Spec.Host, route.Labels)
	}
}

func TestHostsAndCertificatesRequireSeparatePermissions(t *testing.T) {
	f := newFixture(t)
	const message = "you do not have permission to set the host field of the route"
	f.expectInvalid(f.user.Create(t.Context(), f.route("own", routev1.RouteSpec{Host: "own.test"})), "spec.host: Forbidden: "+message)
	f.expectInvalid(f.user.Create(t.Context(), f.route("own", routev1.RouteSpec{TLS: &routev1.TLSConfig{
		Termination: routev1.TLSTerminationReencrypt, DestinationCACertificate: "CA",
	}})), "spec.tls: Forbidden: you do not have permission to set certificate fields on the route")
	f.expectInvalid(f.user.Create(t.Context(), f.route("own", routev1.RouteSpec{TLS: &routev1.TLSConfig{
		Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
	}})), "spec.tls.externalCertificate: Forbidden: user does not have")
	route := f.route("sub", routev1.RouteSpec{Subdomain: "sub"})
	check.Must(t, f.user.Create(t.Context(), route))
	route.Spec.Subdomain = "other"
	f.expectInvalid(f.user.Update(t.Context(), route), `spec.subdomain: Invalid value: "other": you do not have permission to set the subdomain field`)
	route.Spec.Subdomain, route.Spec.Host = "sub", "own.test"
	f.expectInvalid(f.user.Update(t.Context(), route), `spec.host: Invalid value: "own.test": `+message)

	f.allow("user", rbacv1.PolicyRule{APIGroups: []string{"route.openshift.io"}, Resources: []string{"routes/custom-host"}, Verbs: []string{"create", "update"}})
	f.eventually(func() error { return f.user.Create(t.Context(), f.route("own", routev1.RouteSpec{Host: "own.test"})) })
	if err := f.user.Update(t.Context(), route); err != nil {
		t.Error(err)
	}
}

func TestRouteIsRejectedUntilRouterMayReadItsSecret(t *testing.T) {
	f := newFixture(t)
	const router = "system:serviceaccount:openshift-ingress:router"
	create := func() error {
		return f.admin.Create(t.Context(), f.route("cert", routev1.RouteSpec{TLS: &routev1.TLSConfig{
			Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
		}}))
	}
	for _, verb := range []string{"get", "watch", "list"} {
		message := "spec.tls.externalCertificate: Forbidden: router serviceaccount does not have permission to " + verb + " this secret"
		f.eventually(func() error {
			err := create()
			if err != nil && strings.Contains(err.Error(), message) {
				return nil
			}
			return err
		})
		f.expectInvalid(create(), message)
		f.allow(router, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"cert"}, Verbs: []string{verb}})
	}
	f.eventually(create)
}

func TestWildcardPolicyIsImmutable(t *testing.T) {
	f := newFixture(t)
	route := f.route("wild", routev1.RouteSpec{Host: "www.test", WildcardPolicy: routev1.WildcardPolicySubdomain})
	check.Must(t, f.admin.Create(t.Context(), route))
	route.Spec.WildcardPolicy = routev1.WildcardPolicyNone
	f.expectInvalid(f.admin.Update(t.Context(), route), "spec.wildcardPolicy: Invalid value: field is immutable")
}

// eventually retries until a permission that was just granted is in effect.
func (f *fixture) eventually(try func() error) {
	f.Helper()
	var last error
	err := wait.PollUntilContextTimeout(f.Context(), 20*time.Millisecond, apiserver.Timeout, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		f.Fatal(last)
	}
}
