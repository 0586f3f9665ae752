package listener

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// routeRejectedForCertificate returns a Route that a router rejected at this time for the Secret with its certificate.
func routeRejectedForCertificate(port string, at time.Time) *routev1.Route {
	since, ingress := metav1.NewTime(at), rejectedAs("ExtendedValidationFailed", "words")
	ingress.Conditions[0].LastTransitionTime = &since
	route := ownRoute(port, ingress)
	route.Spec.TLS = &routev1.TLSConfig{Termination: routev1.TLSTerminationEdge, ExternalCertificate: &routev1.LocalObjectReference{Name: "cert"}}
	return route
}

// The router looks at the Secret again when the Route changes. The intervals double up to five minutes.
func TestRejectedRouteIsTouchedUntilItIsAdmitted(t *testing.T) {
	start := time.Unix(1700000000, 0)
	s := newRouteState(routeRejectedForCertificate("admin", start), ownRoute("http", admittedAs("http.example.com"))).change(func(s *state) {
		s.class.Spec.Route.Termination, s.class.Spec.Route.CertificateSecretName = listenersv1alpha1.RouteTerminationEdge, "cert"
	})
	o := s.operator(t, interceptor.Funcs{})
	o.now.SetTime(start)
	touch := func(route string) string { return get[routev1.Route](o, route).Annotations[names.AnnotationTouched] }
	var wait time.Duration
	for _, want := range []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		if wait, _ = o.reconcileAfter(wait); wait == 0 { // it touched the Route, which is an event
			wait, _ = o.reconcileAfter(0)
		}
		if wait != want {
			t.Fatalf("waits %s at %s, want %s", wait, o.now.Now().Sub(start), want)
		}
		touched := touch("web-admin")
		if o.now.Now().Equal(start) != (touched == "") || touched != "" && touched != o.now.Now().UTC().Format(time.RFC3339) {
			t.Errorf("touched %q at %s", touched, o.now.Now())
		}
	}
	if touched := touch("web-http"); touched != "" {
		t.Errorf("an admitted Route was touched at %s", touched)
	}
	admitted("admin", "admin.example.com")(o)
	if wait, _ := o.reconcileAfter(wait); wait != 0 {
		t.Errorf("waits %s although no Route is rejected", wait)
	}
}

// The cache may be behind: the Route may be deleted, or a new one may have its name.
func TestOnlyTheRejectedObjectIsTouched(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com")))
	var sent []string
	r := s.operator(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(o)
			sent = append(sent, string(data))
			return errors.Join(err, c.Patch(ctx, o, patch, options...))
		},
	})
	gone := ownRoute("gone", admittedAs("gone.example.com"))
	gone.UID = "uid-of-gone"
	if _, err := r.writer.TouchRejected(t.Context(), []exposure.Rejected{{Object: gone}}, metav1.Now()); err != nil {
		t.Errorf("touching a Route that was deleted: %v", err)
	}
	if len(sent) != 1 || !strings.Contains(sent[0], `"uid":"uid-of-gone"`) {
		t.Errorf("sent %q, which is not about the Route with this uid only", sent)
	}
}
