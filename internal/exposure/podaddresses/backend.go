// Package podaddresses is the backend that exposes Listeners at the addresses of their Pods, for clients in a network
// that routes these. It generates no object: package exposure builds the Service, which is headless. A Pod has its
// files before it has an IP address, so what is published is a name.
//
// It must never publish a port that nothing listens on: a headless Service translates no ports.
package podaddresses

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/names"
)

func Backend() *exposure.Backend {
	return &exposure.Backend{
		Name:      "Pod",
		Exposes:   func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.Pod != nil },
		Addresses: addresses,
		Headless:  true,
		Clients: exposure.Clients{
			ByPolicy: func(*corev1ac.ServiceApplyConfiguration) bool { return true },
			Problem:  exposure.PodsProblem,
		},
	}
}

// addresses returns the name that leads to the Pods: that of the class, or else the DNS name of the Service.
func addresses(l *exposure.Listener, p exposure.Placement) exposure.Exposed {
	e := exposure.Exposed{Addresses: []listenersv1alpha1.IngressAddress{}}
	if !exposure.IsHeadless(l.Service) {
		e.Reason = listenersv1alpha1.ReasonWaitingForClusterIP
		e.Message = "Service " + names.ServiceKey(l).String() +
			" is not headless, so its name does not lead to the Pods"
		return e
	}
	address := listenersv1alpha1.IngressAddress{
		Address: cmp.Or(host.NameOfService(l), l.DNSName()), AddressType: listenersv1alpha1.AddressTypeHostname,
		Ports: map[string]int32{},
	}
	var unknown []string
	for i := range l.Service.Spec.Ports {
		port := &l.Service.Spec.Ports[i]
		switch number := target(l, address.Address, port, p.Mounting); {
		case port.Name == "": // ports are published by name
		case number == 0:
			unknown = append(unknown, fmt.Sprintf("%s (%s)", port.TargetPort.StrVal, port.Name))
		default:
			address.Ports[port.Name] = number
		}
	}
	if len(unknown) > 0 {
		e.Message = "the Pods that mount the Listener declare no container ports of these names, or different " +
			"numbers: " + strings.Join(unknown, ", ")
	}
	switch e.Complete = len(address.Ports) > 0; {
	case e.Complete:
		e.Addresses = append(e.Addresses, address)
	case len(p.Mounting) > 0:
		e.Reason = listenersv1alpha1.ReasonWaitingForPods
	default:
		e.Reason, e.Message = listenersv1alpha1.ReasonWaitingForPods,
			"no Pod mounts a volume of this Listener yet, whose container ports have the names that overrides name"
	}
	return e
}

// target returns the number that the Pods listen on for a port of the Service, or 0 if it is not known. While there is
// no Pod, it is the one that is published at an address.
func target(l *exposure.Listener, address string, port *corev1.ServicePort, pods []*corev1.Pod) int32 {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntVal, port.Port)
	}
	numbers := sets.New[int32]()
	for _, pod := range pods {
		numbers.Insert(exposure.ContainerPort(pod, port.TargetPort, cmp.Or(port.Protocol, corev1.ProtocolTCP)))
	}
	for _, published := range l.Status.TargetAddresses() {
		if len(pods) == 0 && published.Address == address {
			return published.Ports[port.Name]
		}
	}
	if numbers.Delete(0); numbers.Len() != 1 {
		return 0
	}
	return numbers.UnsortedList()[0]
}
