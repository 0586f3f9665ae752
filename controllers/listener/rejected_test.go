package listener

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/write"
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
	c, now := s.newClient(t), clocktesting.NewFakePassiveClock(start)
	r := newReconciler(s.backends, c, events.NewFakeRecorder(100))
	r.settler.Idle = idleLater
	setClock(r, now)
	route := func(name string) *routev1.Route {
		got := &routev1.Route{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	reconcile := func() time.Duration {
		listener := &listenersv1alpha1.Listener{}
		if err := c.Get(t.Context(), key, listener); err != nil {
			t.Fatal(err)
		}
		result, err := r.Reconcile(t.Context(), listener)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	for _, want := range []time.Duration{10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute} {
		wait := reconcile()
		if wait > write.LastTouch { // it touched the Route, which is an event
			wait = reconcile()
		}
		if wait != want {
			t.Fatalf("waits %s at %s, want %s", wait, now.Now().Sub(start), want)
		}
		touched := route("web-admin").Annotations[names.AnnotationTouched]
		if now.Now().Equal(start) != (touched == "") || touched != "" && touched != now.Now().UTC().Format(time.RFC3339) {
			t.Errorf("touched %q at %s", touched, now.Now())
		}
		now.SetTime(now.Now().Add(wait))
	}
	if touched := route("web-http").Annotations[names.AnnotationTouched]; touched != "" {
		t.Errorf("an admitted Route was touched at %s", touched)
	}
	admitted := route("web-admin")
	admitted.Status.Ingress[0].Conditions[0].Status = corev1.ConditionTrue
	if err := c.Update(t.Context(), admitted); err != nil {
		t.Fatal(err)
	}
	if wait := reconcile(); wait <= write.LastTouch {
		t.Errorf("waits %s although no Route is rejected", wait)
	}
}

// The cache may be behind: the Route may be deleted, or a new one may have its name.
func TestOnlyTheRejectedObjectIsTouched(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com")))
	var sent []string
	c := interceptor.NewClient(s.newClient(t), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(o)
			sent = append(sent, string(data))
			return errors.Join(err, c.Patch(ctx, o, patch, options...))
		},
	})
	r := newReconciler(s.backends, c, events.NewFakeRecorder(100))
	gone := ownRoute("gone", admittedAs("gone.example.com"))
	gone.UID = "uid-of-gone"
	if _, err := r.writer.TouchRejected(t.Context(), []exposure.Rejected{{Object: gone}}, metav1.Now()); err != nil {
		t.Errorf("touching a Route that was deleted: %v", err)
	}
	if len(sent) != 1 || !strings.Contains(sent[0], `"uid":"uid-of-gone"`) {
		t.Errorf("sent %q, which is not about the Route with this uid only", sent)
	}
}
