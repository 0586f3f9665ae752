package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/listener-operator/listener-operator/internal/message"
)

// libraryClientset is the clientset of the provisioner library. It emits the library's warnings by the recorder of the
// operator, in the group events.k8s.io, and drops its normal events, that it provisions a volume and that it has
// succeeded: when many claims are provisioned at once, they are a large part of all writes, and Kubernetes itself
// reports both, by an event of the claim and by its phase.
type libraryClientset struct {
	kubernetes.Interface
	events events.EventRecorder
}

// CoreV1 implements kubernetes.Interface.
func (c libraryClientset) CoreV1() corev1client.CoreV1Interface {
	return libraryCore{c.Interface.CoreV1(), c.events}
}

type libraryCore struct {
	corev1client.CoreV1Interface
	events events.EventRecorder
}

// Events implements corev1client.CoreV1Interface.
func (c libraryCore) Events(namespace string) corev1client.EventInterface {
	return libraryEvents{c.CoreV1Interface.Events(namespace), c.events}
}

type libraryEvents struct {
	corev1client.EventInterface
	events events.EventRecorder
}

// CreateWithEventNamespace implements corev1client.EventInterface. The library's recorder creates all events by it.
func (e libraryEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	if event.Type != corev1.EventTypeNormal {
		e.events.Eventf(&event.InvolvedObject, nil, event.Type, event.Reason, actionProvision, "%s", message.Printable(event.Message, message.MaxEvent))
	}
	return event, nil
}

// PatchWithEventNamespace implements corev1client.EventInterface. The library's recorder counts repeated events by it.
func (e libraryEvents) PatchWithEventNamespace(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return e.CreateWithEventNamespace(event)
}
