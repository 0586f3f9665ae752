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
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/openshift"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

const domain = "apps.test"

// world is an API server that treats Routes as OpenShift's does, seen by an administrator and by a user, who may edit
// Routes.
type world struct {
	*testing.T
	admin, user client.Client
	namespace   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, namespace: apiserver.Namespace(t)}
	config := apiserver.Config(t)
	w.admin = newClient(t, config)
	crds.Install(t, w.admin, crds.Routes)
	ctx, cancel := context.WithTimeout(t.Context(), apiserver.Timeout)
	defer cancel()
	if err := openshift.Install(ctx, w.admin, domain); err != nil {
		t.Fatal(err)
	}
	config.Impersonate.UserName = "user"
	w.user = newClient(t, config)
	w.allow("user", rbacv1.PolicyRule{APIGroups: []string{"route.openshift.io"}, Resources: []string{"routes"}, Verbs: []string{"*"}})
	return w
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// allow gives a user, or a ServiceAccount by its user name, a right in the namespace.
func (w *world) allow(user string, rule rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "role-"}, Rules: []rbacv1.PolicyRule{rule}}
	if err := w.admin.Create(w.Context(), role); err != nil {
		w.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if err := w.admin.Create(w.Context(), binding); err != nil {
		w.Fatal(err)
	}
}

func (w *world) route(name string, spec routev1.RouteSpec) *routev1.Route {
	spec.To = routev1.RouteTargetReference{Kind: "Service", Name: "web"}
	return &routev1.Route{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: spec}
}

// refused fails the test unless the error is the API server's refusal with the given words.
func (w *world) refused(err error, words string) {
	w.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		w.Errorf("error is %v, want one that says %q", err, words)
	}
}

func TestAHostIsChosenForARouteWithoutOne(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]routev1.RouteSpec{"plain": {}, "subdomain": {Subdomain: "sub"}} {
		route := w.route(name, spec)
		if err := w.user.Create(t.Context(), route); err != nil {
			t.Fatal(err)
		}
		want, generated := "plain-"+w.namespace+".apps.test", "true"
		if name == "subdomain" {
			want, generated = "", ""
		}
		if route.Spec.Host != want || route.Annotations[openshift.AnnotationGenerated] != generated {
			t.Errorf("%s: host %q, annotations %v", name, route.Spec.Host, route.Annotations)
		}
	}
	// Applying again what says nothing of the host leaves it.
	route := w.route("plain", routev1.RouteSpec{})
	if err := w.user.Get(t.Context(), client.ObjectKeyFromObject(route), route); err != nil {
		t.Fatal(err)
	}
	was := route.Spec.Host
	route.Spec.Host, route.Labels = "", map[string]string{"changed": "yes"}
	if err := w.user.Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	if route.Spec.Host != was || route.Labels["changed"] != "yes" {
		t.Errorf("after an update without a host: host %q, labels %v", route.Spec.Host, route.Labels)
	}
}

func TestHostsAndCertificatesNeedRightsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	const words = "you do not have permission to set the host field of the route"
	w.refused(w.user.Create(t.Context(), w.route("own", routev1.RouteSpec{Host: "own.test"})), "spec.host: Forbidden: "+words)
	w.refused(w.user.Create(t.Context(), w.route("own", routev1.RouteSpec{TLS: &routev1.TLSConfig{
		Termination: routev1.TLSTerminationReencrypt, DestinationCACertificate: "CA",
	}})), "spec.tls: Forbidden: you do not have permission to set certificate fields on the route")
	w.refused(w.user.Create(t.Context(), w.route("own", routev1.RouteSpec{TLS: &routev1.TLSConfig{
		Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
	}})), "spec.tls.externalCertificate: Forbidden: user does not have")
	route := w.route("sub", routev1.RouteSpec{Subdomain: "sub"})
	if err := w.user.Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	route.Spec.Subdomain = "other"
	w.refused(w.user.Update(t.Context(), route), `spec.subdomain: Invalid value: "other": you do not have permission to set the subdomain field`)
	route.Spec.Subdomain, route.Spec.Host = "sub", "own.test"
	w.refused(w.user.Update(t.Context(), route), `spec.host: Invalid value: "own.test": `+words)

	w.allow("user", rbacv1.PolicyRule{APIGroups: []string{"route.openshift.io"}, Resources: []string{"routes/custom-host"}, Verbs: []string{"create", "update"}})
	w.eventually(func() error { return w.user.Create(t.Context(), w.route("own", routev1.RouteSpec{Host: "own.test"})) })
	if err := w.user.Update(t.Context(), route); err != nil {
		t.Error(err)
	}
}

// TestTheRouterNeedsARightToTheSecretOfARoute: that is why Routes with one are refused.
func TestTheRouterNeedsARightToTheSecretOfARoute(t *testing.T) {
	w := newWorld(t)
	const router = "system:serviceaccount:openshift-ingress:router"
	create := func() error {
		return w.admin.Create(t.Context(), w.route("cert", routev1.RouteSpec{TLS: &routev1.TLSConfig{
			Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"},
		}}))
	}
	for _, verb := range []string{"get", "watch", "list"} {
		words := "spec.tls.externalCertificate: Forbidden: router serviceaccount does not have permission to " + verb + " this secret"
		w.eventually(func() error {
			err := create()
			if err != nil && strings.Contains(err.Error(), words) {
				return nil
			}
			return err
		})
		w.refused(create(), words)
		w.allow(router, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"cert"}, Verbs: []string{verb}})
	}
	w.eventually(create)
}

func TestTheWildcardPolicyNeverChanges(t *testing.T) {
	w := newWorld(t)
	route := w.route("wild", routev1.RouteSpec{Host: "www.test", WildcardPolicy: routev1.WildcardPolicySubdomain})
	if err := w.admin.Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	route.Spec.WildcardPolicy = routev1.WildcardPolicyNone
	w.refused(w.admin.Update(t.Context(), route), "spec.wildcardPolicy: Invalid value: field is immutable")
}

// eventually tries until a right that was just granted counts.
func (w *world) eventually(try func() error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, apiserver.Timeout, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		w.Fatal(last)
	}
}
