package exposure_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func TestRepeatedPortsAreNamed(t *testing.T) {
	l := newListener()
	l.Spec.Ports = []listenersv1alpha1.ListenerPort{
		{Name: "http", Port: 80}, {Name: "http", Port: 81, Protocol: ptr.To(corev1.ProtocolTCP)}, {Name: "dns", Port: 53}, {Name: "dns", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)},
	}
	if got := exposure.RepeatedPorts(l); !slices.Equal(got, []string{"http"}) {
		t.Errorf("got %q", got)
	}
}
