package plugin_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// gatewayObject returns a Gateway, or a route to one, without what only an implementation reads.
func (w *world) gatewayObject(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return w.untyped("gateway.networking.k8s.io/"+version, kind, name, spec)
}

// createServed creates an object once the API server serves its kind, which it does a moment after the CRD says so.
func (w *world) createServed(t *testing.T, o client.Object) {
	t.Helper()
	NewWithT(t).Eventually(func() error { return w.Create(t.Context(), o) }, apiserver.Timeout, "20ms").Should(Succeed())
}

func (w *world) untyped(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	o.SetNamespace(w.namespace)
	o.SetName(name)
	return o
}

// The routes of a Listener are found in any version that the cluster serves, and the Gateway although no Listener has
// it.
func TestWhyFollowsTheRoutesOfAGateway(t *testing.T) {
	w := newWorld(t)
	crds.Install(t, w.Client, crds.Gateways, crds.TLSRoutes)
	defer crds.Remove(t, w.Client, crds.Gateways, crds.TLSRoutes)
	w.class.Spec = listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP,
		Gateway: &listenersv1alpha1.GatewayExposure{
			Kind: "TLSRoute", HostTemplate: "{listener}.{namespace}.example",
			ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: w.namespace, Name: "outside"}},
		},
	}
	w.update(t, w.class)
	route := w.gatewayObject("v1alpha2", "TLSRoute", "web-http", map[string]any{
		"hostnames": []any{"web.example"}, "rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "port": int64(80)}}}},
	})
	route.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))})
	w.createServed(t, route)
	gateway := w.gatewayObject("v1", "Gateway", "outside", map[string]any{
		"gatewayClassName": "any", "listeners": []any{map[string]any{"name": "tls", "port": int64(443), "protocol": "TLS", "tls": map[string]any{"mode": "Passthrough"}}},
	})
	w.create(t, gateway)
	why := func() (kinds []string, problem string) {
		t.Helper()
		r := whyOf(t, w.namespace, "listener/web")
		for _, f := range r.Findings {
			kinds = append(kinds, f.Kind)
		}
		if r.Problem != nil {
			problem = r.Problem.Kind + " " + r.Problem.Name + ": " + r.Problem.Message
		}
		return kinds, problem
	}

	kinds, problem := why()
	if want := []string{"Listener", "ListenerClass", "Service", "TLSRoute", "Gateway", "Endpoints", "PersistentVolume", "Pod", "Node", "Node", "PodListeners", "Volume"}; !slices.Equal(kinds, want) || problem != "" {
		t.Errorf("steps %q, problem %q, want steps %q and no problem", kinds, problem, want)
	}
	for _, tc := range []struct{ reason, want string }{ // in this order: the last one stays
		{listenersv1alpha1.ReasonGatewayRouteNotAccepted, "TLSRoute web-http: message of GatewayRouteNotAccepted"},
		{listenersv1alpha1.ReasonWaitingForGateway, "Gateway outside: message of WaitingForGateway"},
	} {
		w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, tc.reason))
		if _, problem := why(); problem != tc.want {
			t.Errorf("problem %q, want %q", problem, tc.want)
		}
	}
	w.remove(t, gateway)
	gateway.SetName("outsides")
	gateway.SetResourceVersion("")
	w.create(t, gateway)
	if _, problem := why(); problem != "Gateway outside: does not exist, and class "+w.class.Name+" names it; did you mean outsides?" {
		t.Errorf("problem %q", problem)
	}
}

// A class with a range of ports has a ListenerSet before its routes. A class without one needs no ListenerSets.
func TestWhyFollowsTheListenerSetOfAGateway(t *testing.T) {
	w := newWorld(t)
	served := []crds.CRD{crds.Gateways, crds.TCPRoutes, crds.ListenerSets}
	crds.Install(t, w.Client, served...)
	defer crds.Remove(t, w.Client, served...)
	w.class.Spec = listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeClusterIP,
		Gateway: &listenersv1alpha1.GatewayExposure{
			Kind: "TCPRoute", PortRange: "20000-20999", ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: w.namespace, Name: "outside"}},
		},
	}
	w.update(t, w.class)
	steps := func() (steps []string) {
		t.Helper()
		for _, f := range whyOf(t, w.namespace, "listener/web").Findings {
			if strings.HasSuffix(f.Kind, "Route") || f.Kind == "ListenerSet" {
				steps = append(steps, f.Kind+" "+f.Name+": "+f.Message)
			}
		}
		return steps
	}
	if got, want := steps(), []string{"ListenerSet : none belongs to Listener web", "TCPRoute : none belongs to Listener web"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	set := w.gatewayObject("v1", "ListenerSet", "web-tcp", map[string]any{
		"parentRef": map[string]any{"name": "outside"}, "listeners": []any{map[string]any{"name": "http", "port": int64(20000), "protocol": "TCP"}},
	})
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))})
	w.createServed(t, set)
	if got, want := steps(), []string{"ListenerSet web-tcp: exists", "TCPRoute : none belongs to Listener web"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	w.class.Spec.Gateway.PortRange = ""
	w.update(t, w.class)
	if got, want := steps(), []string{"TCPRoute : none belongs to Listener web"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}
