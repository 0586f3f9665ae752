package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// maxClaims is how many volumes of a Pod count that have claims. Of inline ones, MaxVolumes count.
const maxClaims = 64

func IsInline(volume *corev1.Volume) bool {
	return volume.CSI != nil && volume.CSI.Driver == names.Driver
}

// Volumes returns the volumes of a Pod with claims, and its inline ones, but no more than count. beyond is the first
// one that does not, or nil. Authors of Pods choose how many there are: nothing may be stored or done for them.
func Volumes(pod *corev1.Pod) (volumes []*corev1.Volume, beyond *corev1.Volume) {
	left := map[bool]int{true: listenersv1alpha1.MaxVolumes, false: maxClaims}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		inline := IsInline(volume)
		switch {
		case NameOf(pod, volume) == "":
		case left[inline] > 0:
			left[inline]--
			volumes = append(volumes, volume)
		case beyond == nil:
			beyond = volume
		}
	}
	return volumes, beyond
}

// NamesOf returns the names of the claims of a Pod's Volumes, as NameOf returns them.
func NamesOf(pod *corev1.Pod) []string {
	var claims []string
	volumes, _ := Volumes(pod)
	for _, volume := range volumes {
		claims = append(claims, NameOf(pod, volume))
	}
	return claims
}

// NameOf returns the name of the claim of a Pod's volume, or that an inline volume stands for, or "" if it has none.
func NameOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil, IsInline(volume):
		return pod.Name + "-" + volume.Name
	}
	return ""
}

// TokenVolume returns the name of the volume with the token of a Pod's ServiceAccount, or "". The API server generates
// it for each Pod, except copies of another Pod, which have it already.
func TokenVolume(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if name := pod.Spec.Volumes[i].Name; strings.HasPrefix(name, "kube-api-access-") {
			return name
		}
	}
	return ""
}

// IsCopy reports whether a Pod without a controller has what only another Pod with one can have been given: the name of
// a token's volume, or the host name of a StatefulSet's Pod. So have the copies of kubectl debug.
func IsCopy(pod, original *corev1.Pod) bool {
	if metav1.GetControllerOf(pod) != nil || metav1.GetControllerOf(original) == nil || pod.Name == original.Name {
		return false
	}
	token, host := TokenVolume(pod), pod.Spec.Hostname
	return token != "" && token == TokenVolume(original) || host != "" && host == original.Spec.Hostname &&
		host == original.Name
}

// PodFinished reports whether a Pod has run to its end. It mounts nothing any more, although it exists.
func PodFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// PodAccepted reports whether the kubelet of a Pod's node has accepted the Pod. The first status that it writes has the
// start time, and says at once that the Pod has failed if the kubelet rejects it.
func PodAccepted(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.StartTime != nil && !PodFinished(pod)
}

func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// NodeLost reports whether a node cannot run the Pods any more that are bound to it: it does not exist, which is nil,
// or an administrator has declared by the taint out-of-service that it is shut down.
func NodeLost(node *corev1.Node) bool {
	return node == nil || slices.ContainsFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// NodeReady reports whether the kubelet of a node responds. A node without the condition counts as ready.
func NodeReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// Unschedulable returns what the scheduler says about a Pod that it finds no node for, or "".
func Unschedulable(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// AwaitsAgent reports whether the scheduler says about a Pod that it rejected a node because no node agent is
// registered there, as of Kubernetes 1.37. While the agents are replaced, that passes by itself.
func AwaitsAgent(verdict string) bool {
	return strings.Contains(verdict, names.Driver+" CSI driver is not installed on the node")
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
			duplicates = append(duplicates, fmt.Sprintf("%s is %s, not %s", port.Name, exposed[port.Name],
				describe(port)))
		}
	}
	if len(duplicates) == 0 {
		return ""
	}
	return "several containers have a port of the same name, and only one is exposed: " + message.List(duplicates) +
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
		port := listenersv1alpha1.ListenerPort{Name: cmp.Or(p.Name, fmt.Sprintf("port-%d", p.ContainerPort)),
			Port: p.ContainerPort}
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
