// Package tunnel is a backend that the operator does not have. Tests add it to the others, to show that all the rest of
// the operator follows from what a backend declares. Each port of a Listener has a Tunnel, whose controller reports in
// the status at which address it serves the host.
package tunnel

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/exposure/perport"
	"github.com/listener-operator/listener-operator/internal/registry"
)

// Annotation among the serviceAnnotations of a class stands for the field by which a class would ask for the backend.
// Its value is the template of hosts.
const Annotation = "example.com/tunnel-host-template"

// GroupVersion is the version of the API of Tunnels.
var GroupVersion = schema.GroupVersion{Group: "tunnels.example.com", Version: "v1"}

var kind = GroupVersion.WithKind("Tunnel")

var tunnels = perport.Objects[*Tunnel]{
	Kind: "Tunnel", Plural: "Tunnels", Protocol: corev1.ProtocolTCP,
	Exposes: func(class *listenersv1alpha1.ListenerClass) bool { return template(class) != "" },
}

func template(class *listenersv1alpha1.ListenerClass) string {
	return class.Spec.ServiceAnnotations[Annotation]
}

// Backend returns the backend.
func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:    "Tunnel",
		Exposes: tunnels.Exposes,
		Generates: []*exposure.Kind{{
			GroupVersionKind: kind,
			Resource:         "tunnels",
			Holds: func(o exposure.Object) []registry.Key {
				return registry.Keys(listenersv1alpha1.WaitingKindHost, o.(*Tunnel).Spec.Host)
			},
			AddToScheme: func(scheme *runtime.Scheme) error {
				scheme.AddKnownTypes(GroupVersion, &Tunnel{}, &TunnelList{})
				metav1.AddToGroupVersion(scheme, GroupVersion)
				return nil
			},
		}},
		Objects:   objects,
		Addresses: addresses,
	}
}

func objects(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
	template := host.Template{Path: "serviceAnnotations", Text: template(l.Class)}
	return tunnels.Desired(l, template,
		func(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal) {
			return exposure.Desired{Unstructured: exposure.NewObject(l, kind, tunnels.Name(l, port), nil,
				hosts.Annotations(nil), map[string]any{"host": hosts.ByPort[port], "serviceName": l.Service.Name})}, nil
		})
}

func addresses(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
	return tunnels.Addresses(l, func(port string, tunnel *Tunnel) ([]listenersv1alpha1.IngressAddress,
		[]perport.Problem) {
		if tunnel.Status.Port == 0 {
			return nil, []perport.Problem{{Text: "has no port in its status yet"}}
		}
		return []listenersv1alpha1.IngressAddress{{
			Address:     cmp.Or(tunnel.Status.Host, tunnel.Spec.Host),
			AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: tunnel.Status.Port},
		}}, nil
	})
}
