package listener_test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// The API server says the reasons, in its own words.
func TestTheRemedyOfARejectedServiceFollowsFromWhoRejectsIt(t *testing.T) {
	override := func(spec string) listenersv1alpha1.ListenerClassSpec {
		return listenersv1alpha1.ListenerClassSpec{
			ServiceType: nodePort, ServiceOverrides: runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)},
		}
	}
	for name, tc := range map[string]struct {
		class          listenersv1alpha1.ListenerClassSpec
		prepare        func(*fixture)
		reason, remedy string
	}{
		"a quota on node ports": {ofType(nodePort), func(f *fixture) { f.createQuota("services.nodeports") }, "QuotaExceeded", "raise the ResourceQuota"},
		"a quota on Services":   {ofType(nodePort), func(f *fixture) { f.createQuota("count/services") }, "QuotaExceeded", "raise the ResourceQuota"},
		"a range outside that of the cluster": {
			listenersv1alpha1.ListenerClassSpec{ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "20000-20009"}},
			nil, "ServiceRejected", "spec.nodePorts.range of ListenerClass",
		},
		"a fixed node port outside the range of the cluster": {
			override(`{"ports":[{"port":80,"nodePort":20000}]}`), nil, "ServiceRejected", "correct the node port in the overrides",
		},
		"a fixed node port that another Service has": { // one of no other test; Kubernetes allocates such low numbers last
			override(`{"ports":[{"port":80,"nodePort":30025}]}`), func(f *fixture) {
				service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30025}}}}
				service.Namespace, service.Name = f.key.Namespace, "other"
				f.Expect(f.Create(f.Context(), service)).To(Succeed())
			}, "ServiceRejected", "set another number in the overrides",
		},
		"an invalid override": {override(`{"sessionAffinity":"Sometimes"}`), nil, "ServiceRejected", "correct it in the overrides of the Listener or of its class"},
		"an admission policy": {ofType(nodePort), func(f *fixture) { f.createPolicy() }, "ServiceRejected", "the administrator of this admission policy"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.class)
			if tc.prepare != nil {
				tc.prepare(f)
			}
			f.createListener(nil)
			l := f.eventually(listenersv1alpha1.ListenerAccepted, tc.reason)
			f.Expect(l.Status.Conditions[0].Message).To(And(ContainSubstring("the API server rejects Service "+f.key.String()), ContainSubstring(tc.remedy)))
		})
	}
}

// createQuota creates a ResourceQuota that permits nothing of a resource.
func (f *fixture) createQuota(name corev1.ResourceName) {
	none := corev1.ResourceList{name: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	f.Expect(f.Create(f.Context(), quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as the controller of quotas, which does not run here
	f.Expect(f.Status().Update(f.Context(), quota)).To(Succeed())
}

// createPolicy creates an admission policy that forbids the Services of the namespace, and waits until it does.
func (f *fixture) createPolicy() {
	meta := metav1.ObjectMeta{Name: "none-" + f.key.Namespace}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.namespace != %q", f.key.Namespace), Message: "no Services here"}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	f.Expect(f.Create(f.Context(), policy)).To(Succeed())
	f.Expect(f.Create(f.Context(), binding)).To(Succeed())
	f.Cleanup(func() {
		f.Expect(f.Delete(context.Background(), binding)).To(Succeed()) // the test's context has ended
		f.Expect(f.Delete(context.Background(), policy)).To(Succeed())
	})
	f.Eventually(func() error {
		probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, GenerateName: "probe-"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		return f.Create(f.Context(), probe)
	}).Should(MatchError(ContainSubstring("no Services here")))
}

// noService fails the test if there is a Service with the Listener's name.
func (f *fixture) noService() {
	f.Helper()
	f.Eventually(f.idle).Should(BeTrue())
	f.Expect(client.IgnoreNotFound(f.Get(f.Context(), f.key, &corev1.Service{}))).To(Succeed())
	f.Expect(f.Get(f.Context(), f.key, &corev1.Service{})).NotTo(Succeed())
}

func TestListenerInANamespaceThatTheClassDoesNotAllowGetsNoService(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort,
		AllowedNamespaces: &listenersv1alpha1.AllowedNamespaces{
			Names: []string{"other"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"exposure": "public"}},
		},
	})
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNamespaceNotAllowed)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("does not allow namespace " + f.key.Namespace + "; name another class"))
	f.Expect(l.Status.IngressAddresses).To(And(Not(BeNil()), BeEmpty()))
	f.Eventually(func() []string { return f.warnings(listenersv1alpha1.ReasonNamespaceNotAllowed) }).Should(HaveLen(1))
	f.noService()

	// An administrator labels the namespace.
	namespace := &corev1.Namespace{}
	f.Expect(f.Get(t.Context(), client.ObjectKey{Name: f.key.Namespace}, namespace)).To(Succeed())
	f.change(namespace, func() { namespace.Labels = map[string]string{"exposure": "public"} })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeNodePort))
	f.Expect(f.listener().Status.KeptClassName).To(BeEmpty())
}

func TestListenersKeepAClassThatNoLongerAllowsTheirNamespace(t *testing.T) {
	f := newFixture(t, ofType(clusterIP))
	l := f.createListener(nil)
	addresses := f.eventually(listenersv1alpha1.ListenerReady, listenersv1alpha1.ReasonAddressesAssigned).Status.IngressAddresses
	f.change(f.class, func() {
		f.class.Spec.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{Names: []string{"other"}}
	})
	f.Eventually(func() string { return accepted(f.listener()).Message }).Should(ContainSubstring("the class no longer allows namespace " + f.key.Namespace))
	f.Eventually(func() []string { return f.warnings(listenersv1alpha1.ReasonNamespaceNotAllowed) }).Should(HaveLen(1))
	f.Expect(accepted(f.listener()).Status).To(Equal(metav1.ConditionTrue))
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(addresses))
	f.Expect(f.listener().Status.KeptClassName).To(Equal(f.class.Name))

	// It still follows its spec and its class, and gets its Service again.
	f.change(l, func() { l.Spec.Ports = append(l.Spec.Ports, listenersv1alpha1.ListenerPort{Name: "https", Port: 443}) })
	f.Eventually(func() int { return len(f.service().Spec.Ports) }).Should(Equal(2))
	first := f.service()
	f.Expect(f.Delete(t.Context(), first)).To(Succeed())
	f.Expect(awaited(f, f, f.key.Name, &corev1.Service{}).UID).NotTo(Equal(first.UID))

	// Another class is another matter, also one with the same restriction.
	other := f.class.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{GenerateName: "class-"}
	other.Spec.ServiceType = loadBalancer
	f.Expect(f.Create(t.Context(), other)).To(Succeed())
	before := f.listener().Status.IngressAddresses
	f.change(l, func() { l.Spec.ClassName = &other.Name })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNamespaceNotAllowed)
	f.Expect(f.service().Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
	f.Expect(f.listener().Status.IngressAddresses).To(Equal(before))
	f.Expect(f.listener().Status.KeptClassName).To(BeEmpty())

	// Once it has left the class, it cannot return.
	f.change(l, func() { l.Spec.ClassName = &f.class.Name })
	f.Eventually(func() string { return accepted(f.listener()).Message }).Should(ContainSubstring("ListenerClass " + f.class.Name + " does not allow namespace"))
	f.change(f.class, func() { f.class.Spec.AllowedNamespaces = nil })
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
}
