package exposure_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// policyFor returns the NetworkPolicy of a Listener with its Service as it is applied.
func policyFor(t *testing.T, l *exposure.Listener, pods []*corev1.Pod, others ...*networkingv1.NetworkPolicy) *unstructured.Unstructured {
	t.Helper()
	service, refusal := backends.All().Of(l.Class).Service(l.Class, l.Listener)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if l.Class.TargetsNodePorts() {
		service = exposure.WithTargetPorts(service, l.Service)
	}
	return backends.All().Of(l.Class).ClientPolicy(l, service, exposure.ReadPolicies(l.Listener, pods, others))
}

// typedPolicy returns a policy as the API server has it.
func typedPolicy(t *testing.T, o *unstructured.Unstructured) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, policy))
	return policy
}

// restricted returns newListener with a class whose clients are restricted.
func restricted(serviceType listenersv1alpha1.ServiceType) *exposure.Listener {
	l := &exposure.Listener{Listener: newListener(), Class: newClass(serviceType)}
	l.Class.Spec.AllowedClients = cidrs("198.51.100.0/24", "2001:db8::/32")
	local(l.Class)
	return l
}

// mountingPod returns a Pod that mounts newListener, and has other labels, too.
func mountingPod(with map[string]string) *corev1.Pod {
	own := map[string]string{names.PodMountLabel(newListener().UID): "web"}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", Labels: labels.Merge(own, with)}}
}

func TestClientPolicyGolden(t *testing.T) {
	app := map[string]string{"app": "web"}
	ofUser := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: app}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	other := restricted(nodePort)
	other.Name, other.UID = "bootstrap", types.UID("4567abcd-0000-4000-8000-00000000beef")
	other.Spec.Ports = []listenersv1alpha1.ListenerPort{{Name: "http", Port: 81}, {Name: "first", Port: 1}, {Name: "last", Port: 65535}}
	ofOther := typedPolicy(t, policyFor(t, other, nil))
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		change   func(*exposure.Listener)
		pods     []*corev1.Pod
		others   []*networkingv1.NetworkPolicy
	}{
		"node-ports": {listener: restricted(nodePort)},
		"ports-of-all-protocols": {listener: restricted(nodePort), change: func(l *exposure.Listener) {
			l.Spec.Ports = []listenersv1alpha1.ListenerPort{
				{Name: "first", Port: 1}, {Name: "second", Port: 2}, {Name: "fourth", Port: 4}, {Name: "last", Port: 65535},
				{Name: "dns", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: "sctp", Port: 9, Protocol: ptr.To(corev1.ProtocolSCTP)},
			}
		}},
		"target-ports": {listener: restricted(nodePort), change: func(l *exposure.Listener) {
			l.Class.Spec.ServiceOverrides = rawYAML(t, `spec: {ports: [{port: 80, targetPort: 8080}]}`)
		}},
		"node-ports-as-target": {listener: restricted(nodePort), change: func(l *exposure.Listener) {
			l.Class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
			l.Service = &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", NodePort: 30080}}}}
		}},
		"host-ports": {listener: restricted(clusterIP), change: func(l *exposure.Listener) {
			l.Class.Spec.HostPort = &listenersv1alpha1.HostPortExposure{}
			l.Spec.AllowedClients = cidrs("198.51.100.7/32")
		}},
		"pods": {listener: restricted(clusterIP), change: func(l *exposure.Listener) {
			l.Class.Spec.Pod = &listenersv1alpha1.PodExposure{}
			l.Class.Spec.ServiceOverrides = rawYAML(t, `spec: {ports: [{port: 80, targetPort: 8080}]}`)
		}},
		"with-that-of-another-listener": {
			listener: restricted(nodePort), others: []*networkingv1.NetworkPolicy{ofOther},
			pods: []*corev1.Pod{mountingPod(map[string]string{names.PodMountLabel(other.UID): "bootstrap"})},
		},
		"with-those-of-users": {
			listener: restricted(nodePort), others: []*networkingv1.NetworkPolicy{ofOther, ofUser}, pods: []*corev1.Pod{mountingPod(nil), mountingPod(app)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.listener)
			}
			golden.Compare(t, "clientpolicy-"+name, policyFor(t, tc.listener, tc.pods, tc.others...))
		})
	}
}

// Policies of other Pods, and for egress, do not matter.
func TestClientPolicyAdmitsOtherPortsUnlessAnotherSelects(t *testing.T) {
	ingress, egress := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	for name, tc := range map[string]struct {
		pod   *corev1.Pod
		other networkingv1.NetworkPolicySpec
		want  bool
	}{
		"another one selects the Pod":     {pod: mountingPod(map[string]string{"app": "web"}), other: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		"another one selects all Pods":    {pod: mountingPod(nil), other: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{egress, ingress}}},
		"and none mounts the Listener":    {other: networkingv1.NetworkPolicySpec{}},
		"another one selects other Pods":  {pod: mountingPod(map[string]string{"app": "web"}), other: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}, want: true},
		"another one denies only egress":  {pod: mountingPod(nil), other: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{egress}}, want: true},
		"another one has no valid labels": {pod: mountingPod(nil), other: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "/"}}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			if tc.pod != nil {
				pods = append(pods, tc.pod)
			}
			policy := typedPolicy(t, policyFor(t, restricted(nodePort), pods, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: tc.other}))
			if got := len(policy.Spec.Ingress) > 1; got != tc.want {
				t.Errorf("the rules are %+v", policy.Spec.Ingress)
			}
		})
	}
}

// They are not compared with many Pods.
func TestManyPoliciesAreTakenForPoliciesThatSelectThePods(t *testing.T) {
	other := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}
	for name, tc := range map[string]struct {
		policies, pods int
		want           bool
	}{
		"few": {1024, 501, true}, "many policies": {1025, 501, false}, "many Pods": {1024, 502, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := typedPolicy(t, policyFor(t, restricted(nodePort), slices.Repeat([]*corev1.Pod{mountingPod(nil)}, tc.pods),
				slices.Repeat([]*networkingv1.NetworkPolicy{other}, tc.policies)...))
			if got := len(policy.Spec.Ingress) > 1; got != tc.want {
				t.Errorf("the rules are %+v", policy.Spec.Ingress)
			}
		})
	}
}

func TestNoClientPolicyIfNoneRestricts(t *testing.T) {
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		change      func(*exposure.Listener)
	}{
		"all clients may":                  {nodePort, func(l *exposure.Listener) { l.Class.Spec.AllowedClients = nil }},
		"the load balancer restricts":      {loadBalancer, nil},
		"the router restricts":             {clusterIP, func(l *exposure.Listener) { l.Class.Spec.Route = &listenersv1alpha1.RouteExposure{} }},
		"the addresses are those of nodes": {nodePort, func(l *exposure.Listener) { l.Class.Spec.ServiceExternalTrafficPolicy = nil }},
		"no port is known yet": {nodePort, func(l *exposure.Listener) {
			l.Class.Spec.NodePorts = &listenersv1alpha1.NodePorts{Target: listenersv1alpha1.NodePortTargetSame}
		}},
		"the Listener wants more": {nodePort, func(l *exposure.Listener) { l.Spec.AllowedClients = cidrs("0.0.0.0/0") }},
	} {
		t.Run(name, func(t *testing.T) {
			l := restricted(tc.serviceType)
			if tc.change != nil {
				tc.change(l)
			}
			if policy := policyFor(t, l, nil); policy != nil {
				t.Errorf("the policy is %+v", policy)
			}
		})
	}
}
