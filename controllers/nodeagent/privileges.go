package nodeagent

import (
	corev1 "k8s.io/api/core/v1"
)

// What the node agent runs as where there is SELinux. The level has to be said: OpenShift would demand that of the
// namespace otherwise.
const (
	seLinuxType  = "spc_t"
	seLinuxLevel = "s0"
)

// addedCapabilities are what is left of root's rights.
func addedCapabilities() []corev1.Capability { return []corev1.Capability{"DAC_OVERRIDE", "FOWNER"} }

// privilege is something that a node agent may do and an ordinary Pod may not.
type privilege struct{ what, why string }

// privileges are all that a node agent has, each with its reason. DaemonSet and SecurityContextConstraints have these
// and no others; nothing that is not listed here may be added to them.
func privileges() []privilege {
	return []privilege{
		{"host path plugin", "The socket that the kubelet calls to publish a volume lies there."},
		{"host path registry", "The kubelet learns of the driver by a socket in that directory."},
		{"host path pods", "The volumes of the node's Pods, whose files the agent writes, lie there."},
		{"user 0", "These directories belong to root, and nobody else may enter them."},
		{"capability DAC_OVERRIDE", "A container may leave files in its volume that are another user's, in directories that are closed to all others. " +
			"Unless all of them are removed, the kubelet cannot finish the Pod."},
		{"capability FOWNER", "A container may set the sticky bit on such a directory, so that only the owner of a file may remove it."},
		{"SELinux type spc_t", "A confined container may neither write to the kubelet's directories nor label files for other Pods to read."},
	}
}
