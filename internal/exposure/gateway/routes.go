package gateway

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// objects returns a route for each exposed port, and before them the ListenerSet, if the class has a range of ports.
func (b routes) objects(l *exposure.Listener, others exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	switch ports, _ := b.Ports(l); {
	case l.Class.GatewayPortRange() != "":
		return b.withListenerSet(l, others, ports)
	case b.ownPort:
		chosen, refusal := b.choose(l, others, ports)
		if refusal != nil {
			return nil, refusal
		}
		return b.Desired(l, host.Template{}, func(port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
			return b.desiredRoute(l, port, hosts, parentRef(chosen[port].gateway, chosen[port].name, 0)), nil
		})
	}
	var parents []any
	for _, parent := range l.Class.Spec.Gateway.ParentRefs {
		parents = append(parents, parentRef(gatewayName{Namespace: parent.Namespace, Name: parent.Name}, parent.SectionName, parent.Port))
	}
	template := host.Template{Path: "spec.gateway.hostTemplate", Text: string(l.Class.Spec.Gateway.HostTemplate)}
	return b.Desired(l, template, func(port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
		return b.desiredRoute(l, port, hosts, parents...), nil
	})
}

// parentRef returns a parent reference of a route to a Gateway. An empty section and port 0 are none.
func parentRef(gateway gatewayName, section string, port int32) map[string]any {
	reference := reference("Gateway", gateway)
	if section != "" {
		reference["sectionName"] = section
	}
	if port != 0 {
		reference["port"] = int64(port)
	}
	return reference
}

// reference returns a reference to an object of the Gateway API.
func reference(kind string, name types.NamespacedName) map[string]any {
	return map[string]any{"group": gatewayv1.GroupName, "kind": kind, "namespace": name.Namespace, "name": name.Name}
}

// desiredRoute returns the route of a port. It sets the fields that have defaults, too: an item of a list without them
// would look as if another writer had changed it.
func (b routes) desiredRoute(l *exposure.Listener, port string, hosts host.Hosts, parents ...any) exposure.Desired {
	i := slices.IndexFunc(l.Service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port })
	rule := map[string]any{"backendRefs": []any{map[string]any{
		"group": "", "kind": "Service", "name": l.Service.Name, "port": int64(l.Service.Spec.Ports[i].Port), "weight": int64(1),
	}}}
	if b.Kind == "HTTPRoute" {
		rule["matches"] = []any{map[string]any{"path": map[string]any{"type": string(gatewayv1.PathMatchPathPrefix), "value": "/"}}}
	}
	spec := map[string]any{"parentRefs": parents, "rules": []any{rule}}
	if name := hosts.ByPort[port]; name != "" {
		spec["hostnames"] = []any{name}
	}
	return exposure.Desired{Unstructured: exposure.NewObject(l, b.gvk(), b.Name(l, port), nil, hosts.Annotations(nil), spec)}
}
