// Package samples has examples of what users write. They are files, to be applied with kubectl; the operator also
// offers them in OpenShift's console.
package samples

import _ "embed" // for the files

// The examples, as YAML with comments.
var (
	//go:embed listenerclass.yaml
	listenerClass string
	//go:embed listener.yaml
	listener string
	//go:embed statefulset.yaml
	statefulSet string
)

// ListenerClass is a class for Pods that keep their node.
func ListenerClass() string { return listenerClass }

// Listener is what several Pods share.
func Listener() string { return listener }

// StatefulSet has Pods with an address each, and one that they share.
func StatefulSet() string { return statefulSet }
