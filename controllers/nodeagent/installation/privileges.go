package installation

import (
	corev1 "k8s.io/api/core/v1"
)

// The SELinux options of the node agent. The level has to be set: otherwise OpenShift requires that of the namespace.
const (
	seLinuxType  = "spc_t"
	seLinuxLevel = "s0"
)

// addedCapabilities returns the capabilities that the node agent has.
func addedCapabilities() []corev1.Capability { return []corev1.Capability{"DAC_OVERRIDE", "FOWNER"} }

// privilege is a permission that a node agent has, and an ordinary Pod has not.
type privilege struct{ what, why string }

// privileges returns all privileges of the node agent, each with its reason. DaemonSet and SecurityContextConstraints
// have these and no others; nothing that is not listed here may be added to them.
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
