package backends_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// kinds are what the operator reads of each kind, with the work of keeping it in the cache, and of reading it.
func kinds() map[string]growth.Work {
	return map[string]growth.Work{
		"NetworkPolicy: policies and values of their selectors": {Size: 30, Product: true, Do: func(n int) { readPolicies(policies(n, n), pods(3)) }},
		"NetworkPolicy: large selectors":                        {Size: 30, Product: true, Do: func(n int) { readPolicies(policies(n, 1000*n), pods(3)) }},
		// Above the limit: the product of policies and Pods is a constant.
		"NetworkPolicy: policies, and Pods that mount the Listener": {Size: 1000, Do: func(n int) { readPolicies(policies(n, 1), pods(n)) }},
		"NetworkPolicy: policies of Listeners and their ports": {Size: 30, Product: true, Do: func(n int) {
			all := policies(n, 0)
			for _, policy := range all {
				ports := make([]networkingv1.NetworkPolicyPort, n) // without numbers
				policy.Name, policy.OwnerReferences = "web-allowed-clients", []metav1.OwnerReference{{Kind: "Listener", Name: "web", Controller: ptr.To(true)}}
				policy.Spec.PodSelector = metav1.LabelSelector{}
				policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: ports}}
			}
			readPolicies(all, pods(3))
		}},
		"Pod: volumes, ports and labels": {Size: 500, Do: func(n int) {
			p := pod(n, "p%d")
			p.Labels, p.Annotations = values(n), values(n)
			for i := range n {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("v", i)},
				}})
			}
			claim.NamesOf(cached(p))
		}},
		"Pod: volumes of one claim": {Size: 500, Do: func(n int) {
			p := pod(0, "")
			for range n {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "v"},
				}})
			}
			claim.NamesOf(cached(p))
		}},
		"Pod: volumes that are kept for the next Pod": {Size: 500, Do: func(n int) {
			p := pod(0, "")
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", Controller: ptr.To(true)}}
			for i := range n {
				ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: ephemeral})
			}
			for _, name := range claim.NamesOf(p) {
				claim.Keeper(p, name)
			}
		}},
		"Service: ports, annotations and addresses": {Size: 200, Do: func(n int) {
			l := listener(listenersv1alpha1.ListenerClassSpec{}, n)
			l.Class.Spec.ServiceType, l.Service.Annotations = listenersv1alpha1.ServiceTypeLoadBalancer, values(n)
			l.Service.Spec.Type = corev1.ServiceTypeLoadBalancer
			l.Service.OwnerReferences = []metav1.OwnerReference{{Kind: "Listener", Name: "web", Controller: ptr.To(true)}}
			for i := range 4 { // each with all ports
				l.Service.Status.LoadBalancer.Ingress = append(l.Service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprint("192.0.2.", i)})
			}
			l.Service = cached(l.Service)
			backends.All().Of(l.Class).Addresses(l, exposure.Placement{})
		}},
		"Node: nodes and their addresses": {Size: 30, Product: true, Do: func(n int) {
			l := listener(listenersv1alpha1.ListenerClassSpec{}, 1)
			l.Class.Spec.ServiceType, l.Service.Spec.Type, l.Service.Spec.Ports[0].NodePort = listenersv1alpha1.ServiceTypeNodePort, corev1.ServiceTypeNodePort, 30000
			var placement exposure.Placement
			for i := range n {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: values(n), Annotations: values(n)}}
				for j := range n {
					node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.%d.0.%d", i, j)})
				}
				placement.Nodes = append(placement.Nodes, cached(node))
			}
			backends.All().Of(l.Class).Addresses(l, placement)
		}},
		"Namespace: labels": {Size: 500, Do: func(n int) {
			namespace := tenancy.Namespace()
			namespace.Labels, namespace.Annotations = values(n), values(n)
			cached(namespace)
		}},
		"PersistentVolume: nodes and attributes": {Size: 500, Do: func(n int) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: values(n), Annotations: values(n)}}
			pv.Spec.NodeAffinity = claim.NodeAffinity("node-1")
			expression := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
			for i := range n {
				expression.Values = append(expression.Values, fmt.Sprint("node-", i))
			}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeAttributes: values(n)}
			claim.VolumeNodes(cached(pv))
		}},
		"PersistentVolumeClaim: labels and annotations": {Size: 500, Do: func(n int) {
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: values(n), Annotations: values(n)}}
			pvc.Annotations[names.AnnotationProvisioner], pvc.Spec.VolumeName = names.Driver, "pvc-1"
			cached(pvc)
		}},
		"PodListeners: volumes and their addresses": {Size: 30, Product: true, Do: func(n int) {
			mounts := &listenersv1alpha1.PodListeners{Spec: listenersv1alpha1.PodListenersSpec{
				Listeners: map[string]listenersv1alpha1.PodListener{}, StartAddresses: map[string][]listenersv1alpha1.IngressAddress{},
			}}
			for i := range n {
				addresses := make([]listenersv1alpha1.IngressAddress, n)
				mounts.Spec.Listeners[fmt.Sprint("v", i)] = listenersv1alpha1.PodListener{ListenerName: "web", IngressAddresses: addresses}
				mounts.Spec.StartAddresses[fmt.Sprint("v", i)] = addresses
			}
			mounts = cached(mounts)
			index.PodListenersListeners(mounts)
			mounts.Spec.Outdated()
		}},
		"TCPRoute: routes of others at a Gateway": {Size: 32, Do: func(n int) { besideRoutes(gatewayv1.TCPProtocolType, n, func(*gatewayv1.ParentReference, int) {}) }},
		"TCPRoute: routes of others at listeners of a Gateway": {Size: 32, Do: func(n int) {
			besideRoutes(gatewayv1.TCPProtocolType, n, func(parent *gatewayv1.ParentReference, i int) {
				parent.SectionName = ptr.To(gatewayv1.SectionName(fmt.Sprint("other-", i)))
			})
		}},
		"TCPRoute: routes of others at ports of a Gateway": {Size: 32, Do: func(n int) {
			besideRoutes(gatewayv1.TCPProtocolType, n, func(parent *gatewayv1.ParentReference, i int) { parent.Port = ptr.To(gatewayv1.PortNumber(i + 1000)) }) //nolint:gosec // few
		}},
		"UDPRoute: routes of others at a Gateway": {Size: 32, Do: func(n int) {
			besideRoutes(gatewayv1.UDPProtocolType, n, func(*gatewayv1.ParentReference, int) {})
		}},
		"ListenerSet: those of others, and their listeners": {Size: 30, Product: true, Do: func(n int) {
			l := listener(classes()["range of a Gateway"], 1)
			var others exposure.Others
			for i := range n {
				set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("set-", i)}}
				set.Spec.ParentRef = gatewayv1.ParentGatewayReference{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "edge"}
				for j := range n {
					set.Spec.Listeners = append(set.Spec.Listeners, gatewayv1.ListenerEntry{Port: gatewayv1.PortNumber(i*n + j + 1)}) //nolint:gosec // few
				}
				others.Objects = append(others.Objects, set)
			}
			if _, refusal := backends.All().Of(l.Class).Objects(l, others); refusal != nil {
				panic(refusal)
			}
		}},
		"Gateway: addresses and listeners": {Size: 30, Do: func(n int) { // administrators write it
			l := listener(classes()["TCPRoute"], 1)
			gateway := l.Referenced[0].(*gatewayv1.Gateway)
			gateway.Spec.Listeners = gateway.Spec.Listeners[:n]
			for i := range n {
				gateway.Status.Addresses = append(gateway.Status.Addresses, gatewayv1.GatewayStatusAddress{Value: fmt.Sprint("192.0.2.", i)})
			}
			if _, refusal := backends.All().Of(l.Class).Objects(l, exposure.Others{}); refusal != nil {
				panic(refusal)
			}
		}},
	}
}

// besideRoutes plans the routes of a Listener at a Gateway with n listeners, beside 100*n routes that this Gateway does
// not allow.
func besideRoutes(protocol gatewayv1.ProtocolType, n int, change func(parent *gatewayv1.ParentReference, i int)) {
	l := listener(classes()["TCPRoute"], n)
	gateway := l.Referenced[0].(*gatewayv1.Gateway)
	gateway.Spec.Listeners = gateway.Spec.Listeners[:n]
	l.Class.Spec.Gateway.Kind = listenersv1alpha1.GatewayRouteKind(protocol + "Route")
	for i := range gateway.Spec.Listeners {
		l.Spec.Ports[i].Protocol = ptr.To(corev1.Protocol(protocol))
		l.Service.Spec.Ports[i].Protocol = corev1.Protocol(protocol)
		listener := &gateway.Spec.Listeners[i]
		listener.Protocol = protocol
		allowed := listener.AllowedRoutes.Namespaces
		allowed.From, allowed.Selector = ptr.To(gatewayv1.NamespacesFromSelector), &metav1.LabelSelector{MatchLabels: map[string]string{"gateway": "shop"}}
	}
	l.NamespaceLabels = map[string]string{"gateway": "shop"}
	var others exposure.Others
	for i := range 100 * n {
		meta := metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("route-", i), CreationTimestamp: metav1.NewTime(time.Unix(int64(-i), 0))}
		parents := []gatewayv1.ParentReference{{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "edge"}}
		change(&parents[0], i)
		if protocol == gatewayv1.UDPProtocolType {
			others.Objects = append(others.Objects, &gatewayv1.UDPRoute{ObjectMeta: meta, Spec: gatewayv1.UDPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: parents}}})
		} else {
			others.Objects = append(others.Objects, &gatewayv1.TCPRoute{ObjectMeta: meta, Spec: gatewayv1.TCPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: parents}}})
		}
	}
	if _, refusal := backends.All().Of(l.Class).Objects(l, others); refusal != nil {
		panic(refusal)
	}
}

// policies returns n policies for Pods of other applications, each with so many values.
func policies(n, values int) []*networkingv1.NetworkPolicy {
	all := make([]*networkingv1.NetworkPolicy, n)
	for i := range all {
		app := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"db"}}
		for j := range values {
			app.Values = append(app.Values, fmt.Sprint("db-", j))
		}
		all[i] = &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("policy-", i)},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{app}}},
		}
	}
	return all
}

func pods(n int) []*corev1.Pod {
	all := make([]*corev1.Pod, n)
	for i := range all {
		all[i] = pod(1, "p%d")
		all[i].Labels = map[string]string{"app": "web", "pod": fmt.Sprint(i)}
	}
	return all
}

func readPolicies(policies []*networkingv1.NetworkPolicy, pods []*corev1.Pod) {
	for i := range policies {
		policies[i] = cached(policies[i])
	}
	l := listener(listenersv1alpha1.ListenerClassSpec{HostPort: &listenersv1alpha1.HostPortExposure{}, AllowedClients: []listenersv1alpha1.CIDR{"198.51.100.0/24"}}, 1)
	service, refusal := backends.All().Of(l.Class).Service(l.Class, l.Listener)
	if refusal != nil {
		panic(refusal)
	}
	backends.All().Of(l.Class).ClientPolicy(l, service, exposure.ReadPolicies(l.Listener, pods, policies))
}

// cached returns an object as the operator's cache keeps it.
func cached[T client.Object](o T) T {
	options := cache.Options("operators")
	transform := options.DefaultTransform
	for kind, by := range options.ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(o) && by.Transform != nil && kind.GetObjectKind().GroupVersionKind() == o.GetObjectKind().GroupVersionKind() {
			transform = by.Transform
		}
	}
	kept, err := transform(o)
	if err != nil {
		panic(err)
	}
	return kept.(T)
}

// If the operator reads more objects of a kind than its own, the kind has a row in a test of growth.
func TestTheWorkForEveryKindIsLinear(t *testing.T) {
	read := sets.New("PodCertificateRequest", "Certificate") // those of the signer, and of cert-manager
	for o, by := range cache.Options("operators").ByObject {
		if by.Field == nil && len(by.Namespaces) == 0 { // not single objects by their names
			read.Insert(kindOf(o))
		}
	}
	for _, kind := range backends.All().OptionalKinds() {
		read.Insert(kind.Kind)
	}
	root, err := checkout.Root()
	check.Must(t, err)
	var tests strings.Builder
	for _, pattern := range []string{"internal/exposure/backends/*growth_test.go", "controllers/*/growth_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		check.Must(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			check.Must(t, err)
			tests.Write(content)
		}
	}
	ofBackends := classes()
	for kind := range read {
		if _, ok := ofBackends[kind]; !ok && !strings.Contains(tests.String(), `"`+kind+`: `) {
			t.Errorf("no test shows that the work for objects of kind %s is linear", kind)
		}
	}
	if len(read) < 18 {
		t.Errorf("found %d kinds", len(read))
	}
}

func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(o).Elem().Name()
}
