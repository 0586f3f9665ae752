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
		{"host path plugin", "The directory of the socket at which the kubelet publishes volumes."},
		{"host path registry", "The directory of the sockets by which drivers register with the kubelet."},
		{"host path pods", "The directory of the volumes of the node's Pods, whose files the agent writes."},
		{"user 0", "These directories are owned by root, and only root may access them."},
		{"capability DAC_OVERRIDE", "A container may create files and directories in its volume that are owned by another user and not writable for others. " +
			"Until all of them are removed, the kubelet cannot terminate the Pod."},
		{"capability FOWNER", "A container may set the sticky bit on such a directory, so that only the owner of a file may remove it."},
		{"SELinux type spc_t", "A confined container may neither write to the kubelet's directories nor label files so that other Pods can read them."},
	}
}
