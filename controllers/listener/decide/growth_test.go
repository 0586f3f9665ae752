package decide

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// Authors of Pods choose how many ports their containers declare.
func TestPortsOfPodsCostLinearTime(t *testing.T) {
	growth.CheckLinear(t, map[string]growth.Work{
		"Pod: ports, and those of the Service": {Size: 100, Do: func(n int) {
			service, pod := &corev1.Service{}, &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}
			for i := range n {
				service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)}) //nolint:gosec // few
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: int32(n + i + 1)})
			}
			undeclaredPorts(service, []*corev1.Pod{pod, pod}, false)
		}},
	}, ".")
}
