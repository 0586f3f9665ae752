package ingress_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/ingress"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// newListener returns a Listener of a class with Ingresses, with the ports http, admin and dns, of which the last one
// is UDP.
func newListener(change func(*listenersv1alpha1.IngressExposure)) *exposure.Listener {
	exposed := &listenersv1alpha1.IngressExposure{ClassName: "public", HostTemplate: "{port}.{listener}.{namespace}.example.com", Path: "/"}
	if change != nil {
		change(exposed)
	}
	return &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "listener-uid", Labels: map[string]string{"team": "blue"}}},
		Class: &listenersv1alpha1.ListenerClass{
			ObjectMeta: metav1.ObjectMeta{Name: "class"},
			Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: exposed},
		},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
				{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 9000}, {Name: "http", Port: 8080}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
			}},
		},
	}
}

// ofPod turns the Listener into one that was created for the claim of a Pod.
func ofPod(l *exposure.Listener, pod string) *exposure.Listener {
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: l.Name}}
	l.Pods = []string{pod}
	return l
}

func TestIngressesGolden(t *testing.T) {
	for name, listener := range map[string]*exposure.Listener{
		"one-for-each-tcp-port": newListener(nil),
		"everything": ofPod(newListener(func(e *listenersv1alpha1.IngressExposure) {
			e.HostTemplate, e.Path, e.Ports = "{podName}.{namespace}.example.com", "/shop", []string{"http", "other"}
			e.TLS = &listenersv1alpha1.IngressTLS{SecretName: "{podName}-{port}.tls"}
			e.Annotations = map[string]string{"nginx.ingress.kubernetes.io/proxy-body-size": "0"}
		}), "web-1"),
		"certificate-of-the-controller": newListener(func(e *listenersv1alpha1.IngressExposure) {
			e.TLS, e.Ports, e.Path = &listenersv1alpha1.IngressTLS{}, []string{"http"}, ""
		}),
	} {
		t.Run(name, func(t *testing.T) {
			desired, err := ingress.Backend().Objects(listener, exposure.Others{})
			if err != nil {
				t.Fatal(err)
			}
			objects := make([]any, len(desired))
			for i := range desired {
				objects[i] = desired[i].Object
			}
			golden.Compare(t, name, objects)
		})
	}
}

func TestIngressIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		reason   string
		message  string
	}{
		"no TCP port": {
			newListener(func(e *listenersv1alpha1.IngressExposure) { e.Ports = []string{"dns"} }),
			listenersv1alpha1.ReasonNoRoutablePorts, "Ingresses support only TCP, and ListenerClass class lists the ports dns",
		},
		"same host for two ports": {
			newListener(func(e *listenersv1alpha1.IngressExposure) { e.HostTemplate = "{listener}.{namespace}" }),
			listenersv1alpha1.ReasonInvalidHost, "add {port} to spec.ingress.hostTemplate of ListenerClass class, or list only one of them in its spec.ports",
		},
		"ambiguous host": {
			newListener(func(e *listenersv1alpha1.IngressExposure) { e.HostTemplate = "{listener}-{namespace}-{port}" }),
			listenersv1alpha1.ReasonInvalidHost, "may give Listeners of different namespaces or Pods the same host",
		},
		"no Pod": {
			newListener(func(e *listenersv1alpha1.IngressExposure) { e.HostTemplate = "{podName}.{namespace}" }),
			listenersv1alpha1.ReasonNoSinglePod, "spec.ingress.hostTemplate of ListenerClass class refers to the Pod",
		},
		"Secret of a Pod that is not in the host": {
			newListener(func(e *listenersv1alpha1.IngressExposure) {
				e.TLS = &listenersv1alpha1.IngressTLS{SecretName: "{podName}-tls"}
			}),
			listenersv1alpha1.ReasonInvalidHost, "has the placeholder {podName}, which has no value",
		},
		"name that no Secret has": {
			newListener(func(e *listenersv1alpha1.IngressExposure) {
				e.TLS = &listenersv1alpha1.IngressTLS{SecretName: "-{listener}"}
			}),
			listenersv1alpha1.ReasonInvalidHost, `results in "-web" for port admin, which is not a name of a Secret`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := ingress.Backend().Objects(tc.listener, exposure.Others{})
			if refusal == nil || refusal.Reason != tc.reason || !strings.Contains(refusal.Message, tc.message) {
				t.Errorf("got %v, want the refusal %s with %q", refusal, tc.reason, tc.message)
			}
		})
	}
}

// observed returns a port's Ingress, which a controller has taken if it has an address.
func observed(port, host, class string, tls bool, address ...networkingv1.IngressLoadBalancerIngress) *networkingv1.Ingress {
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-" + port},
		Spec:       networkingv1.IngressSpec{IngressClassName: ptr.To(class), Rules: []networkingv1.IngressRule{{Host: host}}},
		Status:     networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: address}},
	}
	if tls {
		i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}}}
	}
	return i
}

func TestAddressesAreTheHostsThatAControllerHasTaken(t *testing.T) {
	taken := networkingv1.IngressLoadBalancerIngress{IP: "192.0.2.1"}
	address := func(host, port string, number int32) listenersv1alpha1.IngressAddress {
		return listenersv1alpha1.IngressAddress{Address: host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{port: number}}
	}
	noRules := observed("http", "", "public", false, taken)
	noRules.Spec.Rules = nil
	withoutIngress := newListener(nil)
	withoutIngress.Class.Spec.Ingress = nil
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		objects  []exposure.Object
		want     []listenersv1alpha1.IngressAddress
		complete bool
		message  string
	}{
		"taken": {
			listener: newListener(nil), complete: true, message: "port dns (Ingresses do not support UDP)",
			objects: []exposure.Object{
				observed("http", "a.example.com", "public", false, taken),
				observed("admin", "b.example.com", "public", true, networkingv1.IngressLoadBalancerIngress{Hostname: "lb.example.com"}),
			},
			want: []listenersv1alpha1.IngressAddress{address("b.example.com", "admin", 443), address("a.example.com", "http", 80)},
		},
		"one not taken": {
			listener: newListener(nil), message: "Ingress shop/web-admin has no address in its status yet, which the controller of IngressClass public reports",
			objects: []exposure.Object{observed("http", "a.example.com", "public", false, taken), observed("admin", "b.example.com", "public", false)},
			want:    []listenersv1alpha1.IngressAddress{address("a.example.com", "http", 80)},
		},
		"empty address": {
			listener: newListener(func(e *listenersv1alpha1.IngressExposure) { e.Ports = []string{"http"} }), message: "no address in its status yet",
			objects: []exposure.Object{observed("http", "a.example.com", "public", false, networkingv1.IngressLoadBalancerIngress{})},
		},
		"by a controller with an address that leads nobody outside to it, and an error": {
			listener: newListener(func(e *listenersv1alpha1.IngressExposure) { e.Ports = []string{"http"} }), complete: true,
			objects: []exposure.Object{observed("http", "a.example.com", "public", false, networkingv1.IngressLoadBalancerIngress{
				IP: "127.0.0.1", Hostname: "gw.infra.svc", Ports: []networkingv1.IngressPortStatus{{Port: 443}, {Port: 80, Error: ptr.To("PortInUse")}},
			})},
			want: []listenersv1alpha1.IngressAddress{address("a.example.com", "http", 80)},
			message: "Ingress shop/web-http has an error at port 80 of its controller: PortInUse; Ingress shop/web-http has addresses of its controller that " +
				"clients outside the cluster cannot use: 127.0.0.1 (a loopback address), gw.infra.svc (a name in the DNS of the cluster)",
		},
		"none":             {listener: newListener(nil), message: "Ingress shop/web-http does not exist yet"},
		"rules removed":    {listener: newListener(nil), message: "Ingress shop/web-http has no rule", objects: []exposure.Object{noRules}},
		"of another class": {listener: withoutIngress, complete: true, objects: []exposure.Object{observed("http", "a.example.com", "public", false, taken)}, want: []listenersv1alpha1.IngressAddress{address("a.example.com", "http", 80)}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.listener.Objects = tc.objects
			got := ingress.Backend().Addresses(tc.listener, exposure.Placement{})
			if tc.want == nil {
				tc.want = []listenersv1alpha1.IngressAddress{}
			}
			check.Equal(t, "addresses", tc.want, got.Addresses)
			if got.Complete != tc.complete || !strings.Contains(got.Message, tc.message) {
				t.Errorf("complete is %t with the message %q, want %t with %q", got.Complete, got.Message, tc.complete, tc.message)
			}
			if want := map[bool]string{false: listenersv1alpha1.ReasonWaitingForIngress}[tc.complete]; got.Reason != want {
				t.Errorf("the reason is %q, want %q", got.Reason, want)
			}
		})
	}
}

// A Listener whose class has changed keeps the former addresses only while there are any.
func TestFormerExposureWithoutIngressesIsNotComplete(t *testing.T) {
	l := newListener(nil)
	l.Class.Spec.Ingress = nil
	if got := ingress.Backend().Addresses(l, exposure.Placement{}); got.Complete || len(got.Addresses) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestIngressOfAnotherIngressClassIsCreatedAgain(t *testing.T) {
	for class, want := range map[string]bool{"public": false, "other": true} {
		l := newListener(func(e *listenersv1alpha1.IngressExposure) { e.Ports = []string{"http"} })
		l.Objects = []exposure.Object{observed("http", "a.example.com", class, false)}
		desired, err := ingress.Backend().Objects(l, exposure.Others{})
		if err != nil {
			t.Fatal(err)
		}
		if desired[0].Recreate != want {
			t.Errorf("IngressClass %s: Recreate is %t, want %t", class, desired[0].Recreate, want)
		}
	}
}
