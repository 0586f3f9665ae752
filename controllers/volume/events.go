package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// quietClientset is the clientset of the provisioner library. It drops the library's normal events, that it provisions
// a volume and that it has succeeded: when many claims are provisioned at once, they are a large part of all writes,
// and Kubernetes itself reports both, by an event of the claim and by its phase.
type quietClientset struct{ kubernetes.Interface }

// CoreV1 implements kubernetes.Interface.
func (c quietClientset) CoreV1() corev1client.CoreV1Interface { return quietCore{c.Interface.CoreV1()} }

type quietCore struct{ corev1client.CoreV1Interface }

// Events implements corev1client.CoreV1Interface.
func (c quietCore) Events(namespace string) corev1client.EventInterface {
	return quietEvents{c.CoreV1Interface.Events(namespace)}
}

type quietEvents struct{ corev1client.EventInterface }

// CreateWithEventNamespace implements corev1client.EventInterface. The library's recorder creates all events by it.
func (e quietEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	if event.Type == corev1.EventTypeNormal {
		return event, nil
	}
	return e.EventInterface.CreateWithEventNamespace(event) //nolint:staticcheck // the interface of the recorder has no other
}
