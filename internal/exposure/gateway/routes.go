package gateway

import (
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// objects returns a route for each exposed port.
func (b routes) objects(l *exposure.Listener, others exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	ports, _ := b.exposedPorts(l)
	if len(ports) == 0 {
		return nil, exposure.NoPorts(l, b.plural(), string(b.transport))
	}
	if b.ownPort {
		return b.routesWithPorts(l, others, ports)
	}
	hosts, refusal := host.Template{Exposure: "spec.gateway", Field: "hostTemplate", Text: string(l.Class.Spec.Gateway.HostTemplate)}.Of(l, ports)
	if refusal != nil {
		return nil, refusal
	}
	var parents []gatewayv1.ParentReference
	for _, parent := range l.Class.Spec.Gateway.ParentRefs {
		reference := referenceTo(gatewayName{Namespace: parent.Namespace, Name: parent.Name}, parent.SectionName)
		if parent.Port != 0 {
			reference.Port = ptr.To(gatewayv1.PortNumber(parent.Port))
		}
		parents = append(parents, reference)
	}
	var all []exposure.Desired
	for _, port := range ports {
		all = append(all, b.desiredRoute(l, port, hosts, parents...))
	}
	return all, nil
}

// routesWithPorts returns a route for each exposed port, which has a listener of a Gateway for itself.
func (b routes) routesWithPorts(l *exposure.Listener, others exposure.Others, ports []string) ([]exposure.Desired, *exposure.Refusal) {
	parents, refusal := b.choose(l, others, ports)
	if refusal != nil {
		return nil, refusal
	}
	var all []exposure.Desired
	for _, port := range ports {
		all = append(all, b.desiredRoute(l, port, host.Hosts{}, parents[port]))
	}
	return all, nil
}

// exposedPorts returns the names of the ports that have a route, in the order of preference, and descriptions of those
// that cannot have one although the class does not exclude them.
func (b routes) exposedPorts(l *exposure.Listener) (ports, leftOut []string) {
	return exposure.PortsOf(l, b.plural(), b.transport)
}

// nameOf returns the name of a port's route, which has at most 127 characters.
func nameOf(l *exposure.Listener, port string) string { return l.Name + "-" + port }

// referenceTo returns a parent reference to a Gateway. An empty section is none.
func referenceTo(gateway gatewayName, section string) gatewayv1.ParentReference {
	reference := gatewayv1.ParentReference{
		Group: ptr.To[gatewayv1.Group](gatewayv1.GroupName), Kind: ptr.To[gatewayv1.Kind]("Gateway"),
		Namespace: ptr.To(gatewayv1.Namespace(gateway.Namespace)), Name: gatewayv1.ObjectName(gateway.Name),
	}
	if section != "" {
		reference.SectionName = ptr.To(gatewayv1.SectionName(section))
	}
	return reference
}

// desiredRoute returns the route of a port. It sets the fields that have defaults, too: an item of a list without them
// would look as if another writer had changed it.
func (b routes) desiredRoute(l *exposure.Listener, port string, hosts host.Hosts, parents ...gatewayv1.ParentReference) exposure.Desired {
	var references []any
	for _, parent := range parents {
		reference := map[string]any{
			"group": string(*parent.Group), "kind": string(*parent.Kind), "namespace": string(*parent.Namespace), "name": string(parent.Name),
		}
		if parent.SectionName != nil {
			reference["sectionName"] = string(*parent.SectionName)
		}
		if parent.Port != nil {
			reference["port"] = int64(*parent.Port)
		}
		references = append(references, reference)
	}
	rule := map[string]any{"backendRefs": []any{map[string]any{
		"group": "", "kind": "Service", "name": l.Service.Name, "port": servicePort(l, port), "weight": int64(1),
	}}}
	if b.kind == "HTTPRoute" {
		rule["matches"] = []any{map[string]any{"path": map[string]any{"type": string(gatewayv1.PathMatchPathPrefix), "value": "/"}}}
	}
	spec := map[string]any{"parentRefs": references, "rules": []any{rule}}
	if name := hosts.ByPort[port]; name != "" {
		spec["hostnames"] = []any{name}
	}
	return exposure.Desired{Unstructured: exposure.NewObject(l, b.gvk(), nameOf(l, port), nil, hosts.Annotations(nil), spec)}
}

// servicePort returns the number of a port of the Service.
func servicePort(l *exposure.Listener, name string) int64 {
	var number int32
	for i := range l.Service.Spec.Ports {
		if p := &l.Service.Spec.Ports[i]; p.Name == name {
			number = p.Port
		}
	}
	return int64(number)
}
