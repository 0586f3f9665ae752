// Package ingress is the backend that exposes Listeners through Ingresses. Each port has an Ingress of its own; the
// addresses are the hosts of the Ingresses that a controller has taken.
package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
	"github.com/listener-operator/listener-operator/internal/registry"
)

var kind = networkingv1.SchemeGroupVersion.WithKind("Ingress")

var ingresses = perport.Objects[*networkingv1.Ingress]{
	Kind: "Ingress", Plural: "Ingresses", Protocol: corev1.ProtocolTCP,
	Exposes: func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Ingress != nil },
}

func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:    "Ingress",
		Exposes: ingresses.Exposes,
		Generates: []*exposure.Kind{{
			GroupVersionKind: kind,
			Resource:         "ingresses",
			BuiltIn:          true,
			Holds: func(o exposure.Object) []registry.Key {
				return registry.Keys(listenersv1alpha1.WaitingKindHost, hostsOf(o)...)
			},
			AddToScheme: networkingv1.AddToScheme,
			Annotated:   true,
		}},
		Objects:   objects,
		Addresses: addresses,
		Assumed: func(class *listenersv1alpha1.ListenerClass) (schema.GroupVersionKind, string) {
			return networkingv1.SchemeGroupVersion.WithKind("IngressClass"), class.Spec.Ingress.ClassName
		},
	}
}

func objects(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	template := host.Template{Path: "spec.ingress.hostTemplate", Text: string(l.Class.Spec.Ingress.HostTemplate)}
	return ingresses.Desired(l, template, desiredIngress)
}

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
				"backend": map[string]any{"service": map[string]any{"name": l.Service.Name,
					"port": map[string]any{"name": port}}},
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
	existing, exists := ingresses.Find(l, port)
	return exposure.Desired{
		Unstructured: exposure.NewObject(l, kind, ingresses.Name(l, port), nil, hosts.Annotations(class.Annotations),
			spec),
		Recreate: exists && ptr.Deref(existing.Spec.IngressClassName, "") != class.ClassName,
	}, nil
}

// secretOf returns the name of the Secret with the certificate of a port's Ingress, or "" for that of the controller.
func secretOf(l *exposure.Listener, port, pod string) (string, *exposure.Refusal) {
	secret, unknown := host.Expand(l.Class.Spec.Ingress.TLS.SecretName, l, port, pod)
	switch problems := validation.IsDNS1123Subdomain(secret); {
	case len(unknown) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost,
			"spec.ingress.tls.secretName of ListenerClass %s has the placeholder {%s}, which has no value "+
				"for Listener %s/%s; those of Pods need to be in hostTemplate, too", l.Class.Name, unknown[0],
			l.Namespace, l.Name)
	case secret != "" && len(problems) > 0:
		return "", exposure.Refuse(listenersv1alpha1.ReasonInvalidHost,
			"spec.ingress.tls.secretName of ListenerClass %s results in %q for port %s, which is not a name of a "+
				"Secret: %s", l.Class.Name, secret, port, strings.Join(problems, ", "))
	}
	return secret, nil
}

func hostsOf(o exposure.Object) []string {
	var hosts []string
	for _, rule := range o.(*networkingv1.Ingress).Spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	return hosts
}

// addresses returns the host of each Ingress that a controller has taken, in the order of preference of the ports.
func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	return ingresses.Addresses(l, func(port string, ingress *networkingv1.Ingress) ([]listenersv1alpha1.IngressAddress,
		[]perport.Problem) {
		if problem := notTaken(ingress); problem != "" {
			return nil, []perport.Problem{{Text: problem}}
		}
		problems := notes(l, ingress)
		number := int32(80)
		if len(ingress.Spec.TLS) > 0 {
			number = 443
		}
		return []listenersv1alpha1.IngressAddress{{
			Address: ingress.Spec.Rules[0].Host, AddressType: listenersv1alpha1.AddressTypeHostname,
			Ports: map[string]int32{port: number},
		}}, problems
	})
}

// notes returns what is wrong in the status of an Ingress, whose host may lead to a proxy in front of the cluster.
func notes(l *exposure.Listener, ingress *networkingv1.Ingress) (problems []perport.Problem) {
	var reported []listenersv1alpha1.IngressAddress
	for _, i := range ingress.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			reported = append(reported, listenersv1alpha1.IngressAddress{Address: i.IP,
				AddressType: listenersv1alpha1.AddressTypeIP})
		}
		if i.Hostname != "" {
			reported = append(reported, listenersv1alpha1.IngressAddress{Address: i.Hostname,
				AddressType: listenersv1alpha1.AddressTypeHostname})
		}
		for _, p := range i.Ports {
			if p.Error != nil {
				problems = append(problems, perport.Problem{Text: fmt.Sprintf("has an error at port %d of its "+
					"controller: %s", p.Port, exposure.Quote(*p.Error, ""))})
			}
		}
	}
	if _, leftOut := l.Usable(reported...); leftOut != "" {
		problems = append(problems, perport.Problem{Text: "has addresses of its controller that clients outside the " +
			"cluster cannot use: " + leftOut})
	}
	return problems
}

// notTaken returns why no controller serves the Ingress, or "". One that does reports its own address in the status.
func notTaken(ingress *networkingv1.Ingress) string {
	switch {
	case len(ingress.Spec.Rules) == 0:
		return "has no rule; another client has removed it"
	case !slices.ContainsFunc(ingress.Status.LoadBalancer.Ingress,
		func(i networkingv1.IngressLoadBalancerIngress) bool { return i.IP != "" || i.Hostname != "" }):
		return fmt.Sprintf("has no address in its status yet, which the controller of IngressClass %s reports; if "+
			"this lasts, check whether the IngressClass exists, and whether its controller runs and is configured to "+
			"publish its address", ptr.Deref(ingress.Spec.IngressClassName, ""))
	}
	return ""
}
