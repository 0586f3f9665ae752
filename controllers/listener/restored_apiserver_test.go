package listener_test

import (
	"fmt"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// restoredClasses have, by the kind of object that they have generated, a class of Listeners. The Gateway that some
// need has listeners at the ports 20000 and 20001.
func restoredClasses(edge string) map[string]listenersv1alpha1.ListenerClassSpec {
	sets := gatewayClass(listenersv1alpha1.GatewayRouteKindTCP, edge)
	sets.Gateway.PortRange = "20000-20009"
	return map[string]listenersv1alpha1.ListenerClassSpec{
		"Route": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Route: &listenersv1alpha1.RouteExposure{}},
		"Ingress": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{
			ClassName: "nginx", HostTemplate: "{listener}.{namespace}.example.com",
		}},
		"TLSRoute": gatewayClass(listenersv1alpha1.GatewayRouteKindTLS, edge), "HTTPRoute": gatewayClass(listenersv1alpha1.GatewayRouteKindHTTP, edge),
		"TCPRoute": gatewayClass(listenersv1alpha1.GatewayRouteKindTCP, edge), "UDPRoute": gatewayClass(listenersv1alpha1.GatewayRouteKindUDP, edge),
		"ListenerSet": sets,
		"NetworkPolicy": {
			ServiceType: listenersv1alpha1.ServiceTypeNodePort, AllowedClients: []listenersv1alpha1.CIDR{"198.51.100.0/24"},
			ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
		},
	}
}

// TestObjectsFromABackupAreAdopted that backups restore without owners, before the Listener or after it, but nothing
// that people have written.
func TestObjectsFromABackupAreAdopted(t *testing.T) {
	kinds := map[string]schema.GroupVersionKind{"NetworkPolicy": {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}}
	foreign := map[string]string{"NetworkPolicy": listenersv1alpha1.ReasonForeignNetworkPolicy}
	for _, backend := range backends.All() {
		for _, kind := range backend.Generates {
			kinds[kind.Kind], foreign[kind.Kind] = kind.GroupVersionKind, kind.ForeignReason
		}
	}
	classes := restoredClasses("")
	for kind := range kinds {
		if _, ok := classes[kind]; !ok {
			t.Errorf("no class has objects of kind %s", kind)
		}
	}
	optional := append(gatewayKinds(), crds.Routes, crds.ListenerSets)
	for kind := range classes {
		for order, tc := range map[string]struct{ listenerFirst, written bool }{"objects first": {}, "Listener first": {listenerFirst: true}, "written by people": {written: true}} {
			t.Run(kind+", "+order, func(t *testing.T) {
				g := newGateways(t, listenersv1alpha1.GatewayRouteKindTCP)
				crds.Install(t, g.Client, optional...)
				protocol := gatewayv1.TCPProtocolType
				switch kind {
				case "TLSRoute":
					protocol = gatewayv1.TLSProtocolType
				case "HTTPRoute":
					protocol = gatewayv1.HTTPProtocolType
				case "UDPRoute":
					protocol = gatewayv1.UDPProtocolType
				}
				gateway := g.createGateway(gatewayListener("first", protocol, 20000), gatewayListener("second", protocol, 20001))
				g.allowListenerSets(gateway, gatewayv1.NamespacesFromAll)
				g.change(g.class, func() { g.class.Spec = restoredClasses(g.edge)[kind] })
				g.createListener(func(l *listenersv1alpha1.Listener) {
					if kind == "UDPRoute" {
						l.Spec.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
					}
				})
				g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(kinds[kind])
				g.Eventually(func() []unstructured.Unstructured {
					g.Expect(client.IgnoreNotFound(g.api.List(t.Context(), list, client.InNamespace(g.key.Namespace)))).To(Succeed())
					return list.Items
				}).Should(HaveLen(1))
				if kind == "ListenerSet" { // a new one would get 20000
					g.Eventually(func() error {
						g.Expect(g.api.Get(t.Context(), client.ObjectKeyFromObject(gateway), gateway)).To(Succeed())
						gateway.Spec.Listeners = []gatewayv1.Listener{gatewayListener("other", protocol, 30000)}
						return g.api.Update(t.Context(), gateway)
					}).Should(Succeed())
				}

				// There is no garbage collector. Without a class, the operator creates nothing again in the meantime.
				listener, backup := g.listener(), list.Items[0]
				g.Expect(g.Delete(t.Context(), g.class.DeepCopy())).To(Succeed())
				g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClassNotFound)
				g.Expect(g.Delete(t.Context(), listener)).To(Succeed())
				g.Expect(g.Delete(t.Context(), g.service())).To(Succeed())
				g.Expect(g.api.Delete(t.Context(), backup.DeepCopy())).To(Succeed())
				labels := map[string]string{"velero.io/restore-name": "monday"}
				if !tc.written {
					maps.Copy(labels, backup.GetLabels())
				}
				restored := &unstructured.Unstructured{Object: map[string]any{"spec": backup.Object["spec"]}}
				restored.SetGroupVersionKind(kinds[kind])
				restored.SetNamespace(backup.GetNamespace())
				restored.SetName(backup.GetName())
				restored.SetLabels(labels)
				restored.SetAnnotations(backup.GetAnnotations())
				*listener = listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: listener.Namespace, Name: listener.Name}, Spec: listener.Spec}
				if tc.listenerFirst {
					g.Expect(g.Create(t.Context(), listener)).To(Succeed())
					g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClassNotFound)
				}
				g.Expect(g.api.Create(t.Context(), restored)).To(Succeed())
				if !tc.listenerFirst {
					g.Expect(g.Create(t.Context(), listener)).To(Succeed())
				}
				g.class.ResourceVersion = ""
				g.Expect(g.Create(t.Context(), g.class)).To(Succeed())

				now := restored.DeepCopy()
				if tc.written {
					g.eventually(listenersv1alpha1.ListenerAccepted, foreign[kind])
					g.Expect(g.api.Get(t.Context(), client.ObjectKeyFromObject(restored), now)).To(Succeed())
					g.Expect(now.GetOwnerReferences()).To(BeEmpty())
					return
				}
				g.Eventually(func() []metav1.OwnerReference {
					g.Expect(g.api.Get(t.Context(), client.ObjectKeyFromObject(restored), now)).To(Succeed())
					return now.GetOwnerReferences()
				}).Should(ConsistOf(HaveField("UID", listener.UID)))
				g.Expect(now.GetUID()).To(Equal(restored.GetUID()), "it was replaced")
				g.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
				if kind == "ListenerSet" {
					g.Expect(g.ports()).To(Equal(map[string]int32{"web-tcp/http": 20002}))
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
		changed   bool
	}{
		"a listener of the Gateway":        {"", 20001, 20001, false},
		"one that does not exist any more": {"", 20005, 20000, true},
		"a ListenerSet":                    {"20000-20009", 20007, 20007, false},
		"outside of the range":             {"20000-20009", 20010, 20002, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newListenerSets(t, listenersv1alpha1.GatewayRouteKindTCP, tc.portRange)
			crds.Install(t, g.Client, crds.ListenerSets)
			g.allowListenerSets(g.createGateway(gatewayListener("first", gatewayv1.TCPProtocolType, 20000), gatewayListener("second", gatewayv1.TCPProtocolType, 20001)),
				gatewayv1.NamespacesFromAll)
			g.createListener(func(l *listenersv1alpha1.Listener) {
				l.Annotations = map[string]string{names.AnnotationNumbers: numbersWith(tc.had)}
			})
			g.acceptTCP("web-http")
			if tc.portRange != "" {
				g.program("web-tcp")
			}
			g.Expect(g.eventuallyAddresses("192.0.2.1").Status.IngressAddresses[0].Ports).To(Equal(map[string]int32{"http": tc.want}))
			if tc.changed {
				g.Eventually(func() []string { return g.warnings(listenersv1alpha1.ReasonNumbersChanged) }).Should(ConsistOf(ContainSubstring("port http: ")))
			}
			g.Eventually(func() string { return g.listener().Annotations[names.AnnotationNumbers] }, "15s").Should(Equal(numbersWith(tc.want)))
			g.Expect(len(g.warnings(listenersv1alpha1.ReasonNumbersChanged)) > 0).To(Equal(tc.changed))
		})
	}
}

// numbersWith returns the annotation of a Listener with a port of a Gateway.
func numbersWith(port int32) string {
	return fmt.Sprintf(`{"addresses":[{"address":"192.0.2.1","addressType":"IP","ports":{"http":%d}}]}`, port)
}
