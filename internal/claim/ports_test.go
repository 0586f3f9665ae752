package claim_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The proxies of service meshes are sidecars, and declare ports that containers may have the names of.
func TestPodPortsAreThoseOfAllContainersAndThenOfSidecars(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "setup", ContainerPort: 1}}},
			sidecar(corev1.ContainerPort{Name: "metrics", ContainerPort: 2}, corev1.ContainerPort{Name: "http", ContainerPort: 3}),
			sidecar(corev1.ContainerPort{Name: "metrics", ContainerPort: 4}),
		},
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}},
			{Ports: []corev1.ContainerPort{{ContainerPort: 9, Protocol: corev1.ProtocolUDP}, {Name: "bare", ContainerPort: 7}}},
		},
	}}
	want := []listenersv1alpha1.ListenerPort{
		{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)},
		{Name: "port-9", Port: 9, Protocol: ptr.To(corev1.ProtocolUDP)},
		{Name: "bare", Port: 7},
		{Name: "metrics", Port: 4},
	}
	check.Equal(t, "ports", want, claim.PodPorts(pod))
	for _, duplicate := range []string{"http is 8080/TCP, not 3/TCP", "metrics is 4/TCP, not 2/TCP"} {
		if got := claim.DuplicatePorts(pod); !strings.Contains(got, duplicate) {
			t.Errorf("duplicates %q lack %q", got, duplicate)
		}
	}
}

func sidecar(ports ...corev1.ContainerPort) corev1.Container {
	return corev1.Container{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: ports}
}

// podWith returns a Pod with these ports, a container for each list.
func podWith(containers ...[]corev1.ContainerPort) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}
	for _, ports := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Ports: ports})
	}
	return pod
}

func TestClaimRestrictsPorts(t *testing.T) {
	pod := podWith([]corev1.ContainerPort{{Name: "http", ContainerPort: 80}, {Name: "admin", ContainerPort: 81}, {ContainerPort: 82}})
	for name, tc := range map[string]struct {
		annotation *string
		want       []string
		problem    string // a part of it
	}{
		"no annotation":       {nil, []string{"http", "admin", "port-82"}, ""},
		"one":                 {ptr.To("admin"), []string{"admin"}, ""},
		"in its order":        {ptr.To("port-82, http"), []string{"port-82", "http"}, ""},
		"twice":               {ptr.To("http,http"), []string{"http"}, ""},
		"missing":             {ptr.To("http,https"), []string{"http"}, `lists "https", but the containers of Pod web-0 have only the ports http, admin, port-82`},
		"only missing":        {ptr.To("a,b"), nil, `lists "a", "b", but`},
		"empty":               {ptr.To(" , "), []string{"http", "admin", "port-82"}, ""},
		"separated by blanks": {ptr.To("admin http"), []string{"admin", "http"}, ""},
		"a long name":         {ptr.To(strings.Repeat("x", 5000)), nil, "xxx..."},
		"case is not ignored": {ptr.To("HTTP"), nil, `lists "HTTP", but`},
	} {
		t.Run(name, func(t *testing.T) {
			var request claim.Request
			if tc.annotation != nil {
				request.Annotations = map[string]string{names.AnnotationPorts: *tc.annotation}
			}
			ports, problem := request.Ports(pod)
			var got []string
			for _, p := range ports {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || !strings.Contains(problem, tc.problem) || (tc.problem == "") != (problem == "") {
				t.Errorf("problem %q, ports (-want +got):\n%s", problem, diff)
			}
		})
	}
}

func TestLastOfSeveralPortsWithTheSameNameIsExposed(t *testing.T) {
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		want    []listenersv1alpha1.ListenerPort
		message string
	}{
		"other numbers": {
			podWith([]corev1.ContainerPort{{Name: "http", ContainerPort: 80}}, []corev1.ContainerPort{{Name: "admin", ContainerPort: 1}, {Name: "http", ContainerPort: 81}}),
			[]listenersv1alpha1.ListenerPort{{Name: "admin", Port: 1}, {Name: "http", Port: 81}}, "http is 81/TCP, not 80/TCP",
		},
		"other protocols": {
			podWith([]corev1.ContainerPort{{Name: "dns", ContainerPort: 53}}, []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}),
			[]listenersv1alpha1.ListenerPort{{Name: "dns", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}}, "dns is 53/UDP, not 53/TCP",
		},
		"the same port": {
			podWith([]corev1.ContainerPort{{Name: "http", ContainerPort: 80}}, []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}),
			[]listenersv1alpha1.ListenerPort{{Name: "http", Port: 80, Protocol: ptr.To(corev1.ProtocolTCP)}}, "",
		},
		"other names": {
			podWith([]corev1.ContainerPort{{Name: "a", ContainerPort: 80}}, []corev1.ContainerPort{{Name: "b", ContainerPort: 81}}),
			[]listenersv1alpha1.ListenerPort{{Name: "a", Port: 80}, {Name: "b", Port: 81}}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "ports", tc.want, claim.PodPorts(tc.pod))
			if got := claim.DuplicatePorts(tc.pod); !strings.Contains(got, tc.message) || (got == "") != (tc.message == "") {
				t.Errorf("message %q", got)
			}
		})
	}
}
