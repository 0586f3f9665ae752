package exposure

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Service returns the Service to apply for a Listener of this class: the generated Service with the overrides of the
// class and then those of the Listener (contract: the Service). Fields that Kubernetes chooses are not set;
// WithNodePorts and WithTargetPorts set two of them.
func (b *Backend) Service(class *listenersv1alpha1.ListenerClass,
	listener *listenersv1alpha1.Listener) (*corev1ac.ServiceApplyConfiguration, *Refusal) {
	if refusal := checkSize(listener); refusal != nil {
		return nil, refusal
	}
	ports, refusal := servicePorts(class, listener)
	if refusal != nil {
		return nil, refusal
	}
	service, refusal := override(b.generate(class, listener, ports), class, listener)
	if refusal == nil {
		refusal = checkNames(service)
	}
	if refusal == nil && b.Headless {
		refusal = checkHeadless(service, class)
	}
	switch {
	case refusal != nil:
		return nil, refusal
	case len(service.Spec.Ports) == 0:
		return nil, noPorts(class, listener)
	}
	if refusal := checkNumber(class, len(service.Spec.Ports)); refusal != nil {
		return nil, refusal
	}
	return service, nil
}

// CheckPorts returns a refusal if there are too many ports for a Listener of a class. Nobody then should create one.
func CheckPorts(class *listenersv1alpha1.ListenerClass, ports []listenersv1alpha1.ListenerPort) *Refusal {
	listener := &listenersv1alpha1.Listener{Spec: listenersv1alpha1.ListenerSpec{Ports: ports}}
	if refusal := checkSize(listener); refusal != nil {
		return refusal
	}
	return checkNumber(class, len(ExposedPorts(class, listener)))
}

func checkNumber(class *listenersv1alpha1.ListenerClass, ports int) *Refusal {
	if ports <= class.MaxPorts() {
		return nil
	}
	return Refuse(listenersv1alpha1.ReasonInvalidPorts, "the Listener has %d ports, and ListenerClass %s allows %d; "+
		"remove some of spec.ports, or list those of the Pod to expose in %s, or raise spec.maxPorts of the class",
		ports, class.Name, class.MaxPorts(), names.AnnotationPorts)
}

// checkSize returns a refusal if a Listener has more of something than is worked on.
func checkSize(listener *listenersv1alpha1.Listener) *Refusal {
	for _, list := range []struct {
		reason, name, entries string
		number, limit         int
	}{
		{listenersv1alpha1.ReasonInvalidPorts, "spec.ports", "entries", len(listener.Spec.Ports), maxListedPorts},
		{listenersv1alpha1.ReasonServiceRejected, "spec.extraPodSelectorLabels", "labels",
			len(listener.Spec.ExtraPodSelectorLabels), maxSelectorLabels},
		{listenersv1alpha1.ReasonServiceRejected, "metadata.labels", "labels", len(listener.Labels), maxLabels},
		{listenersv1alpha1.ReasonInvalidOverrides, "spec.objectOverrides", "entries",
			len(listener.Spec.ObjectOverrides), maxListedOverrides},
	} {
		if list.number > list.limit {
			return Refuse(list.reason, "%s has %d %s, of at most %d; remove some", list.name, list.number, list.entries,
				list.limit)
		}
	}
	return nil
}

func (b *Backend) generate(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener,
	ports []port) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().
		WithType(corev1.ServiceType(class.Spec.ServiceType)).
		WithSelector(listener.Spec.ExtraPodSelectorLabels).
		WithSelector(map[string]string{names.PodMountLabel(listener.UID): names.ListenerLabel(listener.Name)}).
		WithPublishNotReadyAddresses(listener.PublishesNotReady() && !OnlyReady(class, listener))
	spec.IPFamilies, spec.IPFamilyPolicy = class.Spec.IPFamilies, class.Spec.IPFamilyPolicy
	if b.Headless {
		spec.WithClusterIP(corev1.ClusterIPNone)
	}
	for _, p := range ports {
		spec.WithPorts(corev1ac.ServicePort().WithName(p.name).WithProtocol(p.protocol).WithPort(p.number))
	}
	if class.Spec.ServiceType != listenersv1alpha1.ServiceTypeClusterIP {
		spec.ExternalTrafficPolicy = class.Spec.ServiceExternalTrafficPolicy
	}
	if class.Spec.ServiceType == listenersv1alpha1.ServiceTypeLoadBalancer {
		spec.LoadBalancerClass = class.Spec.LoadBalancerClass
		spec.AllocateLoadBalancerNodePorts = class.Spec.LoadBalancerAllocateNodePorts
		clients, _ := AllowedClients(class, listener)
		spec.LoadBalancerSourceRanges = FormatClients(clients)
		if families := FamiliesOf(clients); !class.ChoosesIPFamilies() && len(families) == 1 {
			spec.IPFamilies = families // others are not restricted by these ranges
		}
	}
	return corev1ac.Service(names.Service(listener.Name), listener.Namespace).
		WithLabels(Labels(listener, nil)).
		WithAnnotations(class.Spec.ServiceAnnotations).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(listenersv1alpha1.GroupVersion.String()).WithKind("Listener").
			WithName(listener.Name).WithUID(listener.UID).
			WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(spec)
}

// OnlyReady reports whether the class has the Listener send clients to ready Pods only, whatever the Listener says: it
// was not created for a claim, so several Pods can share it. By the default of publishNotReadyAddresses, the operator
// cannot tell what its author wants (contract: publishNotReadyAddresses).
func OnlyReady(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) bool {
	return class.Spec.NotReadyAddressPolicy == listenersv1alpha1.NotReadyAddressPolicyPerPodOnly &&
		!claim.OwnsListener(listener)
}

// IsHeadless reports whether a Service has no cluster IP, and leads to its Pods by DNS alone.
func IsHeadless(service *corev1.Service) bool { return service.Spec.ClusterIP == corev1.ClusterIPNone }

func checkHeadless(service *corev1ac.ServiceApplyConfiguration, class *listenersv1alpha1.ListenerClass) *Refusal {
	field := ""
	switch {
	case ptr.Deref(service.Spec.Type, "") != corev1.ServiceTypeClusterIP:
		field = "spec.type"
	case ptr.Deref(service.Spec.ClusterIP, "") != corev1.ClusterIPNone:
		field = "spec.clusterIP"
	default:
		return nil
	}
	return Refuse(listenersv1alpha1.ReasonInvalidOverrides,
		"the Services of ListenerClass %s have to be headless, and overrides change %s; remove that", class.Name, field)
}

// checkNames returns a refusal if labels, annotations or the selector of a Service have names or values that
// Kubernetes does not allow. The API server would reject the Service, and not even as invalid if a name is very long.
func checkNames(service *corev1ac.ServiceApplyConfiguration) *Refusal {
	problems := slices.Concat(
		metav1validation.ValidateLabels(service.Labels, field.NewPath("metadata", "labels")),
		apivalidation.ValidateAnnotations(service.Annotations, field.NewPath("metadata", "annotations")),
		metav1validation.ValidateLabels(service.Spec.Selector, field.NewPath("spec", "selector")),
	)
	if len(problems) == 0 {
		return nil
	}
	return Refuse(listenersv1alpha1.ReasonServiceRejected, "the API server would reject Service %s/%s: %v",
		*service.Namespace, *service.Name, problems[:min(len(problems), maxProblems)].ToAggregate())
}

// Labels returns the labels of an object that is generated for a Listener: those of the Listener, overridden by those
// of the class for this kind of object, overridden by three recommended labels for the object itself.
func Labels(listener *listenersv1alpha1.Listener, class map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, listener.Labels)
	maps.Copy(labels, class)
	labels["app.kubernetes.io/name"] = names.ServiceAppName
	labels["app.kubernetes.io/instance"] = names.ListenerLabel(listener.Name)
	labels[names.LabelManagedBy] = names.ServiceManagedBy
	return labels
}

// NewObject returns an object that is generated for a Listener, in its namespace and with it as the controller. labels
// are those of the class for this kind of object.
func NewObject(l *Listener, kind schema.GroupVersionKind, name string, labels, annotations map[string]string,
	spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(l.Namespace)
	o.SetName(name)
	o.SetLabels(Labels(l.Listener, labels))
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	SetOwner(o, l.Listener)
	return o
}

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// port is a port of a Listener, or a port of a Pod, which may have no name.
type port struct {
	protocol corev1.Protocol
	name     string
	number   int32
}

func ProtocolOf(p listenersv1alpha1.ListenerPort) corev1.Protocol {
	return cmp.Or(ptr.Deref(p.Protocol, ""), corev1.ProtocolTCP)
}

func sorted(ports iter.Seq[port]) []port {
	return slices.SortedFunc(ports, func(a, b port) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
}

// ExposedPorts returns the ports of a Listener that its class exposes, in the order of the Listener.
func ExposedPorts(class *listenersv1alpha1.ListenerClass,
	listener *listenersv1alpha1.Listener) []listenersv1alpha1.ListenerPort {
	return slices.DeleteFunc(slices.Clone(listener.Spec.Ports), func(p listenersv1alpha1.ListenerPort) bool {
		return len(class.Spec.Ports) > 0 && !slices.Contains(class.Spec.Ports, p.Name)
	})
}

func noPorts(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) *Refusal {
	if len(listener.Spec.Ports) == 0 {
		return Refuse(listenersv1alpha1.ReasonNoPorts,
			"spec.ports is empty, and overrides add no port; name at least one port to expose")
	}
	names := make([]string, 0, len(listener.Spec.Ports))
	for _, p := range listener.Spec.Ports {
		names = append(names, p.Name)
	}
	return Refuse(listenersv1alpha1.ReasonNoPorts,
		"ListenerClass %s exposes only the ports %s, and the Listener has only %s; rename a port, or use another class",
		class.Name, strings.Join(class.Spec.Ports, ", "), strings.Join(names, ", "))
}

// servicePorts returns the ports of the Service of a Listener, sorted by protocol and name. Of several ports with the
// same protocol and name, the last one applies. The refusal is for ports that no Service can have.
func servicePorts(class *listenersv1alpha1.ListenerClass, listener *listenersv1alpha1.Listener) ([]port, *Refusal) {
	last, byName, byNumber := map[port]port{}, map[string]port{}, map[port]string{}
	for _, p := range ExposedPorts(class, listener) {
		last[port{protocol: ProtocolOf(p), name: p.Name}] = port{ProtocolOf(p), p.Name, p.Port}
	}
	ports := sorted(maps.Values(last))
	for _, p := range ports {
		if problem := checkPort(p); problem != "" {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidPorts, "spec.ports: port %q: %s", p.name, problem)
		}
		if other, ok := byName[p.name]; ok {
			return nil, Refuse(listenersv1alpha1.ReasonDuplicatePortName,
				"spec.ports: the name %q is used for both %s and %s; each port of a Service must have a name of its "+
					"own", p.name, other.protocol, p.protocol)
		}
		byName[p.name] = p
		number := port{protocol: p.protocol, number: p.number}
		if other, ok := byNumber[number]; ok {
			return nil, Refuse(listenersv1alpha1.ReasonInvalidPorts,
				"spec.ports: %q and %q are both %s port %d; remove one of them", other, p.name, p.protocol, p.number)
		}
		byNumber[number] = p.name
	}
	return ports, nil
}

// RepeatedPorts returns the names that ports with the same protocol share, sorted. Only the last of these is exposed.
func RepeatedPorts(listener *listenersv1alpha1.Listener) []string {
	seen, repeated := sets.New[port](), sets.New[string]()
	for _, l := range listener.Spec.Ports {
		p := port{protocol: ProtocolOf(l), name: l.Name}
		if seen.Has(p) {
			repeated.Insert(message.Printable(l.Name, validation.DNS1123LabelMaxLength))
		}
		seen.Insert(p)
	}
	return sets.List(repeated)
}

// checkPort returns why a port is invalid, or "". The rules are those of Kubernetes for the ports of a Service, except
// that Kubernetes allows a single port without a name. Here it must have one, because ports are published by name.
func checkPort(p port) string {
	if problems := validation.IsDNS1123Label(p.name); len(problems) > 0 {
		return "the name is not valid: " + strings.Join(problems, ", ")
	}
	if problems := validation.IsValidPortNum(int(p.number)); len(problems) > 0 {
		return "the port number is not valid: " + strings.Join(problems, ", ")
	}
	if !slices.Contains(protocols, p.protocol) {
		return "the protocol " + string(p.protocol) + " is none of TCP, UDP and SCTP"
	}
	return ""
}

// ContainerPort returns the number of a port of a Pod that is given by its number or its name, or 0.
func ContainerPort(pod *corev1.Pod, port intstr.IntOrString, protocol corev1.Protocol) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, p := range claim.ContainerPorts(pod) {
		if p.Name == port.StrVal && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol {
			return p.ContainerPort
		}
	}
	return 0
}
