// Package samples contains example manifests. They are applied with kubectl, and the operator offers them in the
// console of OpenShift.
package samples

import _ "embed" // for the files

// YAML with comments.
var (
	//go:embed listenerclass.yaml
	listenerClass string
	//go:embed listener.yaml
	listener string
	//go:embed statefulset.yaml
	statefulSet string
)

// ListenerClass returns a class for Pods that stay on their node.
func ListenerClass() string { return listenerClass }

// Listener returns a Listener that several Pods share.
func Listener() string { return listener }

// StatefulSet returns Pods with an address for each, and a shared one.
func StatefulSet() string { return statefulSet }
