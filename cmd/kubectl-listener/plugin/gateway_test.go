package plugin_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// gatewayObject returns a Gateway, or a route to one, without what only an implementation reads.
func gatewayObject(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/" + version, "kind": kind, "spec": spec}}
	o.SetNamespace(namespace)
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
	route := gatewayObject("v1alpha2", "TLSRoute", w.namespace, "web-http", map[string]any{
		"hostnames": []any{"web.example"}, "rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "port": int64(80)}}}},
	})
	route.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))})
	// The API server serves a kind a moment after its CRD says so.
	NewWithT(t).Eventually(func() error { return w.Create(t.Context(), route) }, apiserver.Timeout, "20ms").Should(Succeed())
	gateway := gatewayObject("v1", "Gateway", w.namespace, "outside", map[string]any{
		"gatewayClassName": "any", "listeners": []any{map[string]any{"name": "tls", "port": int64(443), "protocol": "TLS", "tls": map[string]any{"mode": "Passthrough"}}},
	})
	w.create(t, gateway)
	why := func() (kinds []string, problem string) {
		t.Helper()
		out, err := run(t, apiserver.Config(t), "why", "listener/web", "-n", w.namespace, "-o", "json")
		r := decode(t, out, err)
		for _, f := range r.Findings {
			kinds = append(kinds, f.Kind)
		}
		if r.Problem != nil {
			problem = r.Problem.Kind + " " + r.Problem.Name + ": " + r.Problem.Message
		}
		return kinds, problem
	}

	kinds, problem := why()
	if want := []string{"Listener", "ListenerClass", "Service", "TLSRoute", "Gateway", "Endpoints", "PersistentVolume", "Pod", "Node", "PodListeners", "Node", "Volume"}; !slices.Equal(kinds, want) || problem != "" {
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
	if _, problem := why(); problem != "Gateway outside: does not exist, and class "+w.class.Name+" names it" {
		t.Errorf("problem %q", problem)
	}
}
