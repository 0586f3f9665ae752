package ingress

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

// objects returns an Ingress for each exposed port.
func objects(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	class := l.Class.Spec.Ingress
	ports, _ := exposedPorts(l)
	if len(ports) == 0 {
		return nil, exposure.NoPorts(l, "Ingresses", "TCP")
	}
	hosts, refusal := host.Template{Exposure: "spec.ingress", Field: "hostTemplate", Text: string(class.HostTemplate)}.Of(l, ports)
	if refusal != nil {
		return nil, refusal
	}
	var ingresses []exposure.Desired
	for _, port := range ports {
		desired, refusal := desiredIngress(l, port, hosts)
		if refusal != nil {
			return nil, refusal
		}
		ingresses = append(ingresses, desired)
	}
	return ingresses, nil
}

// exposedPorts returns the names of the ports that have an Ingress, in the order of preference, and descriptions of
// those that cannot have one although the class does not exclude them.
func exposedPorts(l *exposure.Listener) (ports, leftOut []string) {
	return exposure.PortsOf(l, "Ingresses", corev1.ProtocolTCP)
}

// nameOf returns the name of a port's Ingress, which has at most 127 characters.
func nameOf(l *exposure.Listener, port string) string { return l.Name + "-" + port }

// desiredIngress returns the Ingress of a port. An Ingress of another class is created again, because the controller of
// that class may never remove its address from the status.
func desiredIngress(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
	class := l.Class.Spec.Ingress
	spec := map[string]any{
		"ingressClassName": class.ClassName,
		"rules": []any{map[string]any{
			"host": hosts.ByPort[port],
			"http": map[string]any{"paths": []any{map[string]any{
				"path":     cmp.Or(class.Path, "/"),
				"pathType": string(networkingv1.PathTypePrefix),
				"backend":  map[string]any{"service": map[string]any{"name": l.Service.Name, "port": map[string]any{"name": port}}},
			}}},
		}},
	}
	if class.TLS != nil {
		tls := map[string]any{"hosts": []any{hosts.ByPort[port]}}
		secret, refusal := secretOf(l, port, hosts.Pod)
		if refusal != nil {
			return exposure.Desired{}, refusal
		}
		if secret != "" {
			tls["secretName"] = secret
		}
		spec["tls"] = []any{tls}
	}
	desired := exposure.NewObject(l, kind, nameOf(l, port), nil, hosts.Annotations(class.Annotations), spec)
	existing := find(l, desired.GetName())
	return exposure.Desired{
		Unstructured: desired, Recreate: existing != nil && ptr.Deref(existing.Spec.IngressClassName, "") != class.ClassName,
	}, nil
}

// secretOf returns the name of the Secret with the certificate of a port's Ingress, or "" for that of the controller.
func secretOf(l *exposure.Listener, port, pod string) (string, *exposure.Refusal) {
	unknown := ""
	secret := host.Replace(l.Class.Spec.Ingress.TLS.SecretName, func(name string) string {
		value, ok := host.Value(l, port, pod, name)
		if !ok || value == "" {
			unknown = name
		}
		return value
	})
	switch problems := validation.IsDNS1123Subdomain(secret); {
	case unknown != "":
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "spec.ingress.tls.secretName of ListenerClass %s has the placeholder {%s}, which has no value "+
			"for Listener %s/%s; those of Pods need to be in hostTemplate, too", l.Class.Name, unknown, l.Namespace, l.Name)
	case secret != "" && len(problems) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost, "spec.ingress.tls.secretName of ListenerClass %s results in %q for port %s, which is not a name of a "+
			"Secret: %s", l.Class.Name, secret, port, strings.Join(problems, ", "))
	}
	return secret, nil
}

// find returns the Listener's Ingress with the name, or nil.
func find(l *exposure.Listener, name string) *networkingv1.Ingress {
	for _, o := range l.Objects {
		if o.GetName() == name {
			return o.(*networkingv1.Ingress)
		}
	}
	return nil
}

// hostsOf returns the hosts of an Ingress.
func hostsOf(o exposure.Object) []string {
	var hosts []string
	if ingress, ok := o.(*networkingv1.Ingress); ok {
		for i := range ingress.Spec.Rules {
			hosts = append(hosts, ingress.Spec.Rules[i].Host)
		}
	}
	return hosts
}
