package podaddresses_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/podaddresses"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestNameLeadsToThePodsAtTheirPorts(t *testing.T) {
	const dnsName, name = "web.shop.svc.example.org", "web.shop.example.com"
	hostname := &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com"}
	for testName, tc := range map[string]struct {
		class   func(*listenersv1alpha1.ListenerClassSpec)
		service func(*corev1.Service)
		want    string // the address, "" if there is none
		ports   map[string]int32
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
		"none while the Service has a cluster IP": {service: func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.1" }},
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
			backend := podaddresses.Backend()
			if !backend.Exposes(l.Class) {
				t.Fatal("the class is not that of the backend")
			}
			got := backend.Addresses(l, exposure.Placement{})
			if tc.want == "" {
				if len(got.Addresses) > 0 || got.Addresses == nil || got.Complete || got.Reason != listenersv1alpha1.ReasonWaitingForClusterIP {
					t.Errorf("got %+v", got)
				}
				return
			}
			want := exposure.Exposed{Complete: true, Addresses: []listenersv1alpha1.IngressAddress{
				{Address: tc.want, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: tc.ports},
			}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
