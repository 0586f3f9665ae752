package walk

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestPoliciesThatPlainlyAdmitEverySource(t *testing.T) {
	type port = networkingv1.NetworkPolicyPort
	numbered := func(number int32) port { return port{Port: ptr.To(intstr.FromInt32(number))} }
	rule := func(ports ...port) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{Ports: ports}
	}
	from := rule()
	from.From = []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "198.51.100.0/24"}}}
	service := func(ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}
	}
	http := corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("http")}
	admin := corev1.ServicePort{Port: 81, TargetPort: intstr.FromInt32(9000)}
	dns := corev1.ServicePort{Port: 53, TargetPort: intstr.FromInt32(9000), Protocol: corev1.ProtocolUDP}
	type rules = []networkingv1.NetworkPolicyIngressRule
	for name, tc := range map[string]struct {
		policies []rules
		service  *corev1.Service
		want     bool
	}{
		"none admits anything":                    {[]rules{nil}, service(http), false},
		"only some sources":                       {[]rules{{from}}, service(http), false},
		"every source at every port":              {[]rules{{rule()}}, service(http, admin), true},
		"the same, and the ports are not known":   {[]rules{{rule()}}, nil, true},
		"some ports, and those are not known":     {[]rules{{rule(numbered(8080))}}, nil, false},
		"the number of a port that has a name":    {[]rules{{rule(numbered(8080))}}, service(http), true},
		"the name of a port":                      {[]rules{{rule(port{Port: ptr.To(intstr.FromString("http"))})}}, service(http), true},
		"a name that the Pod does not have":       {[]rules{{rule(port{Port: ptr.To(intstr.FromString("other"))})}}, service(admin), false},
		"the port of the Service":                 {[]rules{{rule(numbered(80))}}, service(http), false},
		"a target that the Pod does not have":     {[]rules{{rule(numbered(8080))}}, service(corev1.ServicePort{TargetPort: intstr.FromString("other")}), false},
		"one of two ports":                        {[]rules{{rule(numbered(8080))}}, service(http, admin), false},
		"two ports, by different policies":        {[]rules{{rule(numbered(8080))}, nil, {from, rule(numbered(9000))}}, service(http, admin), true},
		"a range":                                 {[]rules{{rule(port{Port: ptr.To(intstr.FromInt32(8000)), EndPort: ptr.To[int32](9000)})}}, service(http, admin), true},
		"another range":                           {[]rules{{rule(port{Port: ptr.To(intstr.FromInt32(8000)), EndPort: ptr.To[int32](8999)})}}, service(http, admin), false},
		"all ports of a protocol":                 {[]rules{{rule(port{Protocol: ptr.To(corev1.ProtocolUDP)})}}, service(dns), true},
		"the same number, and another protocol":   {[]rules{{rule(numbered(9000))}}, service(dns), false},
		"all ports of a protocol, but not of two": {[]rules{{rule(port{Protocol: ptr.To(corev1.ProtocolUDP)})}}, service(dns, admin), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}}}
			var policies []networkingv1.NetworkPolicy
			for _, ingress := range tc.policies {
				policies = append(policies, networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: ingress}})
			}
			if got := admitAll(policies, pod, tc.service); got != tc.want {
				t.Errorf("it is plain: %v, want %v", got, tc.want)
			}
		})
	}
}
