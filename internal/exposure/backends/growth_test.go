package backends_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// maxGatewayListeners is the number of listeners that the Gateway API allows in a Gateway.
const maxGatewayListeners = 64

// works are what tenants write, each with the work that it makes.
func works() map[string]growth.Work {
	works := map[string]growth.Work{
		"Listener: ports": service(512, func(l *listenersv1alpha1.Listener, n int) {
			l.Spec.Ports = nil
			for i := range n {
				l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
			}
		}),
		"Listener: ports with one name": service(512, func(l *listenersv1alpha1.Listener, n int) {
			l.Spec.Ports = nil
			for i := range n {
				l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "web", Port: int32(i + 1)})
			}
		}),
		"Listener: labels": service(64, func(l *listenersv1alpha1.Listener, n int) { l.Labels = values(n) }),
		"Listener: labels that Pods must have": service(32, func(l *listenersv1alpha1.Listener, n int) {
			l.Spec.ExtraPodSelectorLabels = values(n)
		}),
		"Listener: invalid labels that Pods must have": service(32, func(l *listenersv1alpha1.Listener, n int) {
			l.Spec.ExtraPodSelectorLabels = map[string]string{}
			for key := range values(n) {
				l.Spec.ExtraPodSelectorLabels[key+" "] = key
			}
		}),
		"Listener: overrides of other objects": service(512, func(l *listenersv1alpha1.Listener, n int) {
			for range n {
				l.Spec.ObjectOverrides = append(l.Spec.ObjectOverrides, runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"}}`)})
			}
		}),
		"Listener: overrides of the Service": service(8, func(l *listenersv1alpha1.Listener, n int) {
			for i := range n {
				override(l, map[string]any{"metadata": map[string]any{"annotations": map[string]any{fmt.Sprint("a", i): "b"}}})
			}
		}),
		"Listener: annotations in an override": service(1000, func(l *listenersv1alpha1.Listener, n int) {
			override(l, map[string]any{"metadata": map[string]any{"annotations": values(n)}})
		}),
		"Listener: ports in an override": service(500, func(l *listenersv1alpha1.Listener, n int) {
			ports := make([]any, n)
			for i := range ports {
				ports[i] = map[string]any{"name": fmt.Sprint("p", i), "port": i + 100}
			}
			override(l, map[string]any{"spec": map[string]any{"ports": ports}})
		}),
		"Listener: finalizers in an override": service(64, func(l *listenersv1alpha1.Listener, n int) {
			finalizers := make([]any, n)
			for i := range finalizers {
				finalizers[i] = fmt.Sprint("example.com/", i)
			}
			override(l, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
		}),
		"Listener: node ports of a range": {Size: 256, Do: func(n int) {
			l := listener(listenersv1alpha1.ListenerClassSpec{}, n)
			desired := corev1ac.Service(l.Name, l.Namespace).WithSpec(corev1ac.ServiceSpec().WithType(corev1.ServiceTypeNodePort))
			for _, p := range l.Spec.Ports {
				desired.Spec.WithPorts(corev1ac.ServicePort().WithName(p.Name).WithPort(p.Port))
			}
			numbers, _ := exposure.AllocateNodePorts(desired, nil, nil, utilnet.PortRange{Base: 30000, Size: 2768}, func(int32) bool { return false })
			exposure.LostNodePorts(exposure.WithNodePorts(desired, numbers), nil, numbers)
		}},
		"Service: ports whose target is their node port": {Size: 32, Do: func(n int) {
			l := listener(listenersv1alpha1.ListenerClassSpec{NodePorts: &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}}, n)
			l.Class.Spec.ServiceType = listenersv1alpha1.ServiceTypeNodePort
			for i := range l.Service.Spec.Ports {
				l.Service.Spec.Ports[i].NodePort = int32(30000 + i)
			}
			backends.All().Of(l.Class).Addresses(l, exposure.Placement{})
		}},
		"Pod: ports": {Size: 1000, Do: func(n int) {
			claim.PodPorts(pod(n, "p%d"))
			claim.DuplicatePorts(pod(n, "p%d"))
		}},
		"Pod: ports with one name": {Size: 1000, Do: func(n int) {
			claim.PodPorts(pod(n, "web%.0d"))
			claim.DuplicatePorts(pod(n, "web%.0d"))
		}},
		"PersistentVolumeClaim: ports that it lists": {Size: 1000, Do: func(n int) {
			listed := make([]string, n)
			for i := range listed {
				listed[i] = fmt.Sprint("p", 2*i) // every other port, and as many that do not exist
			}
			claim.Request{Annotations: map[string]string{names.AnnotationPorts: strings.Join(listed, ",")}}.Ports(pod(n, "p%d"))
		}},
	}
	maps.Copy(works, kinds())
	for name, spec := range classes() {
		works[name+": ports"] = growth.Work{Size: maxGatewayListeners / 2, Do: func(n int) {
			l := listener(spec, n)
			backend := backends.All().Of(l.Class)
			if backend.Objects != nil {
				if _, refusal := backend.Objects(l, exposure.Others{}); refusal != nil {
					panic(refusal)
				}
			}
			backend.Addresses(l, exposure.Placement{Mounting: []*corev1.Pod{pod(n, "p%d")}})
			if backend.PodAddresses != nil {
				backend.PodAddresses(&exposure.Listener{Listener: l.Listener, Class: l.Class}, pod(n, "p%d"), &corev1.Node{})
			}
		}}
	}
	return works
}

// service returns the work of making the Service of a Listener, of which the class allows everything.
func service(size int, change func(l *listenersv1alpha1.Listener, n int)) growth.Work {
	return growth.Work{Size: size, Do: func(n int) {
		l := listener(listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeClusterIP, MaxPorts: ptr.To[int32](1024),
			ListenerOverrides: &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"metadata.annotations", "metadata.finalizers", "spec.ports"}},
		}, 1)
		change(l.Listener, n)
		_, err := backends.All().Of(l.Class).Service(l.Class, l.Listener)
		if err != nil && l.Spec.ExtraPodSelectorLabels == nil { // of which some are invalid
			panic(err)
		}
		exposure.IgnoredOverrides(l.Listener)
	}}
}

// classes are classes of all backends for whose objects the number of ports matters.
func classes() map[string]listenersv1alpha1.ListenerClassSpec {
	const template = "{port}.{listener}.{namespace}.example.com"
	specs := map[string]listenersv1alpha1.ListenerClassSpec{
		"Service of a class": {},
		"Route":              {Route: &listenersv1alpha1.RouteExposure{HostTemplate: template}},
		"Ingress":            {Ingress: &listenersv1alpha1.IngressExposure{HostTemplate: template}},
		"host port":          {HostPort: &listenersv1alpha1.HostPortExposure{}},
	}
	for _, kind := range []listenersv1alpha1.GatewayRouteKind{
		listenersv1alpha1.GatewayRouteKindTLS, listenersv1alpha1.GatewayRouteKindHTTP, listenersv1alpha1.GatewayRouteKindTCP,
	} {
		exposed := &listenersv1alpha1.GatewayExposure{Kind: kind, ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}}
		if kind != listenersv1alpha1.GatewayRouteKindTCP {
			exposed.HostTemplate = template
		}
		specs[string(kind)] = listenersv1alpha1.ListenerClassSpec{Gateway: exposed}
	}
	specs["range of a Gateway"] = listenersv1alpha1.ListenerClassSpec{Gateway: &listenersv1alpha1.GatewayExposure{
		Kind: listenersv1alpha1.GatewayRouteKindTCP, PortRange: "20000-20999", ParentRefs: []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}},
	}}
	return specs
}

// listener returns a Listener of a class with n ports, its Service, and a Gateway.
func listener(spec listenersv1alpha1.ListenerClassSpec, n int) *exposure.Listener {
	spec.ServiceType = listenersv1alpha1.ServiceTypeClusterIP
	l := &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "0123abcd-0000-4000-8000-00000000beef"},
		},
		Class:   &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Spec: spec},
		Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"192.0.2.1"}}},
		Pods:    []string{"web-0"},
	}
	gateway := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}}
	gateway.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	for i := range maxGatewayListeners {
		gateway.Spec.Listeners = append(gateway.Spec.Listeners, gatewayv1.Listener{
			Name: gatewayv1.SectionName(fmt.Sprint("p", i)), Protocol: gatewayv1.TCPProtocolType, Port: gatewayv1.PortNumber(i + 1),
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
		})
	}
	for i := range n {
		name := fmt.Sprint("p", i)
		l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: name, Port: int32(i + 1)})
		l.Service.Spec.Ports = append(l.Service.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
	}
	l.Referenced = []exposure.Object{gateway}
	return l
}

// pod returns a Pod with n ports, whose names have a format.
func pod(n int, format string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}
	for i := range n {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Name: fmt.Sprintf(format, i), ContainerPort: int32(i + 1), HostPort: int32(i + 1)})
	}
	return p
}

func values(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("key", i)] = "value"
	}
	return all
}

// override adds an override of its Service to a Listener.
func override(l *listenersv1alpha1.Listener, content map[string]any) {
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"], metadata["namespace"] = l.Name, l.Namespace
	content["apiVersion"], content["kind"], content["metadata"] = "v1", "Service", metadata
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	l.Spec.ObjectOverrides = append(l.Spec.ObjectOverrides, runtime.RawExtension{Raw: raw})
}

func TestWhatTenantsWriteCostsLinearTime(t *testing.T) {
	const module = "github.com/listener-operator/listener-operator"
	growth.CheckLinear(t, works(), module+"/internal/...", module+"/api/...", "k8s.io/apimachinery/pkg/util/strategicpatch")
}

func BenchmarkWhatTenantsWrite(b *testing.B) {
	for name, work := range works() {
		for _, size := range []int{work.Size, 2 * work.Size} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				for b.Loop() {
					work.Do(size)
				}
			})
		}
	}
}
