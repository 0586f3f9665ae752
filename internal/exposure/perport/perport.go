// Package perport is what backends have in common that generate an object for each port of a Listener: which ports have
// one, its host, and how the addresses follow from the objects.
package perport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
)

type Objects[T exposure.Object] struct {
	// Kind is the kind of the objects, and Plural is how messages call them.
	Kind, Plural string
	Protocol     corev1.Protocol
	Exposes      func(class *listenersv1alpha1.ListenerClass) bool
	// NameOf returns the name of a port's object. If nil, it consists of the names of the Listener and of the port.
	NameOf func(l *exposure.Listener, port string) string
	// Is reports whether an object is one of these, rather than another one of the backend. If nil, all are.
	Is func(exposure.Object) bool
	// Waiting is the reason of listenersv1alpha1.ListenerReady for an object that is not served yet. Empty is
	// reasons.WaitingFor the Kind.
	Waiting string
}

func (o Objects[T]) Name(l *exposure.Listener, port string) string {
	if o.NameOf != nil {
		return o.NameOf(l, port)
	}
	return l.Name + "-" + port
}

func (o Objects[T]) Find(l *exposure.Listener, port string) (object T, exists bool) {
	name := o.Name(l, port)
	i := slices.IndexFunc(l.Objects, func(existing exposure.Object) bool {
		return existing.GetName() == name && (o.Is == nil || o.Is(existing))
	})
	if i < 0 {
		return object, false
	}
	return l.Objects[i].(T), true
}

// Ports returns the names of the ports that have an object, in the order of preference: those of the Service that the
// class lists, or all if it lists none. leftOut describes those that the class does not exclude, but that have another
// protocol. If the class has no such objects any more, the ports are those of the remaining ones.
func (o Objects[T]) Ports(l *exposure.Listener) (ports, leftOut []string) {
	exposes, listed := o.Exposes(l.Class), l.Class.ListedPorts()
	for _, p := range l.OrderedPorts() {
		switch {
		case !exposes:
			if _, exists := o.Find(l, p.Name); exists {
				ports = append(ports, p.Name)
			}
		case p.Name == "", len(listed) > 0 && !slices.Contains(listed, p.Name):
		case cmp.Or(p.Protocol, corev1.ProtocolTCP) != o.Protocol:
			leftOut = append(leftOut, fmt.Sprintf("port %s (%s do not support %s)", p.Name, o.Plural, p.Protocol))
		default:
			ports = append(ports, p.Name)
		}
	}
	return ports, leftOut
}

// Desired returns the object of each port, which may have a host by the template of the class.
func (o Objects[T]) Desired(
	l *exposure.Listener, template host.Template,
	desired func(l *exposure.Listener, port string, hosts host.Hosts) (exposure.Desired, *exposure.Refusal),
) ([]exposure.Desired, *exposure.Refusal) {
	ports, _ := o.Ports(l)
	if len(ports) == 0 {
		lists := ""
		if listed := l.Class.ListedPorts(); len(listed) > 0 {
			lists = fmt.Sprintf(", and ListenerClass %s lists the ports %s", l.Class.Name, strings.Join(listed, ", "))
		}
		return nil, exposure.Refuse(listenersv1alpha1.ReasonNoRoutablePorts,
			"no port of the Listener can be exposed by %s: %s support only %s%s; use another class, or list other "+
				"ports in the class", o.Plural, o.Plural, o.Protocol, lists)
	}
	hosts, refusal := template.Of(l, ports)
	if refusal != nil {
		return nil, refusal
	}
	var objects []exposure.Desired
	for _, port := range ports {
		object, refusal := desired(l, port, hosts)
		if refusal != nil {
			return nil, refusal
		}
		objects = append(objects, object)
	}
	return objects, nil
}

type Problem struct {
	Text string
	// Reason is the reason of listenersv1alpha1.ListenerReady if a user or an administrator has to change something.
	Reason string
}

// Addresses returns the addresses of all ports, in the order of preference. served returns those at which clients reach
// a port by its object, and the problems with it.
func (o Objects[T]) Addresses(l *exposure.Listener,
	served func(port string, object T) ([]listenersv1alpha1.IngressAddress, []Problem)) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	ports, leftOut := o.Ports(l)
	var missing []string
	for _, port := range ports {
		var addresses []listenersv1alpha1.IngressAddress
		problems := []Problem{{Text: "does not exist yet"}}
		if object, exists := o.Find(l, port); exists {
			addresses, problems = served(port, object)
		}
		e.Addresses = append(e.Addresses, addresses...)
		for _, p := range problems {
			text := fmt.Sprintf("%s %s/%s %s", o.Kind, l.Namespace, o.Name(l, port), p.Text)
			if len(addresses) > 0 {
				leftOut = append(leftOut, text)
				continue
			}
			missing = append(missing, text)
			e.Reason = cmp.Or(e.Reason, p.Reason)
		}
	}
	if e.Complete = len(ports) > 0 && len(missing) == 0; len(missing) > 0 {
		e.Reason = cmp.Or(e.Reason, o.Waiting, reasons.WaitingFor(o.Kind))
	}
	e.Message = strings.Join(slices.Concat(missing, leftOut), "; ")
	return e
}
