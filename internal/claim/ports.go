package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Ports returns the ports of the Listener of a class-based claim: those that the annotation names.AnnotationPorts
// lists, in its order, or else all of the Pod. problem names the listed ports that the Pod does not have, or is empty.
func Ports(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) (ports []listenersv1alpha1.ListenerPort, problem string) {
	all := PodPorts(pod)
	annotation, ok := claim.Annotations[names.AnnotationPorts]
	if !ok {
		return all, ""
	}
	byName := map[string]listenersv1alpha1.ListenerPort{}
	var existing, missing []string
	for _, p := range all {
		byName[p.Name] = p
		existing = append(existing, p.Name)
	}
	listed := sets.New[string]()
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.TrimSpace(name)
		if listed.Has(name) {
			continue
		}
		listed.Insert(name)
		if p, ok := byName[name]; ok {
			ports = append(ports, p)
		} else {
			missing = append(missing, fmt.Sprintf("%q", message.Printable(name, maxName)))
		}
	}
	if len(missing) > 0 {
		problem = fmt.Sprintf("the %s %s lists %s, but the containers of Pod %s have only the ports %s; correct the %[1]s",
			Field(claim), names.AnnotationPorts, strings.Join(missing, ", "), pod.Name, strings.Join(existing, ", "))
	}
	return ports, problem
}

// PodPorts returns the ports of a Pod, in the order of ContainerPorts; one without a name is named "port-<number>"
// (contract: the Listener). Of several of a name, the last one counts, but a sidecar takes no name from a container.
func PodPorts(pod *corev1.Pod) []listenersv1alpha1.ListenerPort {
	all := listenerPorts(pod)
	sidecars := len(all) - len(SidecarPorts(pod))
	last := map[string]int{}
	for i, p := range all {
		if taken, ok := last[p.Name]; !ok || i < sidecars || taken >= sidecars {
			last[p.Name] = i
		}
	}
	var ports []listenersv1alpha1.ListenerPort
	for i, p := range all {
		if last[p.Name] == i {
			ports = append(ports, p)
		}
	}
	return ports
}

// DuplicatePorts describes the ports of a Pod that a later one of the same name replaces, or returns "".
func DuplicatePorts(pod *corev1.Pod) string {
	exposed := map[string]string{}
	for _, port := range PodPorts(pod) {
		exposed[port.Name] = describe(port)
	}
	var duplicates []string
	for _, port := range listenerPorts(pod) {
		if exposed[port.Name] != describe(port) {
			duplicates = append(duplicates, fmt.Sprintf("%s is %s, not %s", port.Name, exposed[port.Name], describe(port)))
		}
	}
	if len(duplicates) == 0 {
		return ""
	}
	return "several containers have a port of the same name, and only one is exposed: " + strings.Join(duplicates, ", ") +
		"; rename one of them, so that both are exposed"
}

// ContainerPorts returns the ports of the containers of a Pod and then of its sidecars, as Kubernetes looks for a name.
func ContainerPorts(pod *corev1.Pod) []corev1.ContainerPort {
	return append(containerPorts(pod.Spec.Containers), SidecarPorts(pod)...)
}

// SidecarPorts returns the ports of the init containers that run as long as the Pod.
func SidecarPorts(pod *corev1.Pod) []corev1.ContainerPort {
	return containerPorts(slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool {
		return ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
	}))
}

func containerPorts(containers []corev1.Container) (ports []corev1.ContainerPort) {
	for i := range containers {
		ports = append(ports, containers[i].Ports...)
	}
	return ports
}

func listenerPorts(pod *corev1.Pod) (ports []listenersv1alpha1.ListenerPort) {
	for _, p := range ContainerPorts(pod) {
		port := listenersv1alpha1.ListenerPort{Name: cmp.Or(p.Name, fmt.Sprintf("port-%d", p.ContainerPort)), Port: p.ContainerPort}
		if p.Protocol != "" {
			port.Protocol = &p.Protocol
		}
		ports = append(ports, port)
	}
	return ports
}

func describe(port listenersv1alpha1.ListenerPort) string {
	return fmt.Sprintf("%d/%s", port.Port, cmp.Or(ptr.Deref(port.Protocol, ""), corev1.ProtocolTCP))
}
