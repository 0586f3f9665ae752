package podaddresses_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/podaddresses"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestNameLeadsToThePodsAtTheirPorts(t *testing.T) {
	const dnsName, name = "web.shop.svc.example.org", "web.shop.example.com"
	hostname := &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com"}
	named := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") }
	pod := func(number int32) *corev1.Pod {
		container := corev1.Container{Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}}}
		if number != 0 {
			container.Ports = append(container.Ports, corev1.ContainerPort{Name: "web", ContainerPort: number})
		}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}, container}}}
	}
	sidecar := func(number int32) *corev1.Pod {
		p := pod(number)
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		p.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		return p
	}
	for testName, tc := range map[string]struct {
		class     func(*listenersv1alpha1.ListenerClassSpec)
		service   func(*corev1.Service)
		pods      []*corev1.Pod
		published map[string]int32
		want      string // the address, "" if there is none
		ports     map[string]int32
		reason    string
		message   string // the beginning
	}{
		"the DNS name of the Service": {want: dnsName, ports: map[string]int32{"http": 80}},
		"the name of the class": {
			class:   func(spec *listenersv1alpha1.ListenerClassSpec) { spec.Hostname = hostname },
			service: func(s *corev1.Service) { s.Annotations = map[string]string{names.AnnotationHostname: name} },
			want:    name, ports: map[string]int32{"http": 80},
		},
		"a name that another client has written": {
			class: func(spec *listenersv1alpha1.ListenerClassSpec) { spec.Hostname = hostname },
			service: func(s *corev1.Service) {
				s.Annotations = map[string]string{names.AnnotationHostname: "db.theirs.example.com"}
			},
			want: dnsName, ports: map[string]int32{"http": 80},
		},
		"the port that the container listens on": {
			service: func(s *corev1.Service) {
				s.Spec.Ports[0].TargetPort = intstr.FromInt32(8080)
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "same", Port: 81, TargetPort: intstr.FromInt32(81)}, corev1.ServicePort{Port: 82})
			},
			want: dnsName, ports: map[string]int32{"http": 8080, "same": 81},
		},
		"the port by the name that containers give it": {service: named, pods: []*corev1.Pod{pod(8080), pod(8080), pod(0)}, want: dnsName, ports: map[string]int32{"http": 8080}},
		"the port by the name that a sidecar gives it": {service: named, pods: []*corev1.Pod{sidecar(8080)}, want: dnsName, ports: map[string]int32{"http": 8080}},
		"the port by its name while there is no Pod":   {service: named, published: map[string]int32{"http": 8080}, want: dnsName, ports: map[string]int32{"http": 8080}},
		"none before there is a Pod":                   {service: named, reason: listenersv1alpha1.ReasonWaitingForPods, message: "no Pod mounts a volume"},
		"none of a name that no container has": {
			service: named, published: map[string]int32{"http": 8080}, pods: []*corev1.Pod{pod(0)},
			reason: listenersv1alpha1.ReasonWaitingForPods, message: "the Pods that mount the Listener declare no container ports of these names, or different numbers: web (http)",
		},
		"no number that differs": {
			service: func(s *corev1.Service) {
				named(s)
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 81})
			},
			pods: []*corev1.Pod{pod(8080), pod(8081)}, want: dnsName, ports: map[string]int32{"admin": 81},
			message: "the Pods that mount the Listener declare no container ports of these names, or different numbers: web (http)",
		},
		"none while the Service has a cluster IP": {
			service: func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.1" },
			reason:  listenersv1alpha1.ReasonWaitingForClusterIP, message: "Service shop/web is not headless",
		},
	} {
		t.Run(testName, func(t *testing.T) {
			l := &exposure.Listener{
				Listener: &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
				Class: &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
					ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Pod: &listenersv1alpha1.PodExposure{},
				}},
				Service: &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
					Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
				},
				ClusterDomain: "example.org",
			}
			if tc.class != nil {
				tc.class(&l.Class.Spec)
			}
			if tc.service != nil {
				tc.service(l.Service)
			}
			if tc.published != nil {
				l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: dnsName, Ports: tc.published}}}
			}
			backend := podaddresses.Backend()
			if !backend.Exposes(l.Class) {
				t.Fatal("the class is not that of the backend")
			}
			got := backend.Addresses(l, exposure.Placement{Mounting: tc.pods})
			want := []listenersv1alpha1.IngressAddress{}
			if tc.want != "" {
				want = append(want, listenersv1alpha1.IngressAddress{Address: tc.want, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: tc.ports})
			}
			if diff := cmp.Diff(want, got.Addresses); diff != "" || got.Complete != (tc.want != "") {
				t.Errorf("complete: %t, addresses (-want +got):\n%s", got.Complete, diff)
			}
			if got.Reason != tc.reason || !strings.HasPrefix(got.Message, tc.message) || tc.message == "" && got.Message != "" {
				t.Errorf("%s: %q, want %s: %q", got.Reason, got.Message, tc.reason, tc.message)
			}
		})
	}
}
