package listener_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func routedClass(cidrs ...listenersv1alpha1.CIDR) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: clusterIP, PreferredAddressType: listenersv1alpha1.PreferredAddressTypeIP,
		ClusterIPs: &listenersv1alpha1.ClusterIPs{CIDRs: cidrs},
	}
}

// createServiceCIDR lets the API server allocate cluster IPs of a range until the test ends. Without a controller
// manager, nothing protects it, and it is ready at once.
func (f *fixture) createServiceCIDR(cidr string) {
	f.Helper()
	serviceCIDR := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
	f.Expect(f.Create(f.Context(), serviceCIDR)).To(Succeed())
	f.Cleanup(func() {
		if err := f.Delete(context.Background(), serviceCIDR); err != nil {
			f.Error(err)
		}
	})
}

// clusterIP returns the cluster IP of the Service of the Listener, or "".
func (f *fixture) clusterIP() string {
	service := &corev1.Service{}
	f.Expect(client.IgnoreNotFound(f.Get(f.Context(), f.key, service))).To(Succeed())
	return service.Spec.ClusterIP
}

// The Listener keeps its address while the Service is being deleted.
func TestAClusterIPOutlivesAServiceWithAFinalizer(t *testing.T) {
	f := newFixture(t, routedClass("10.97.64.16/30"))
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.Expect(accepted(l).Message).To(ContainSubstring("ask an administrator to create a ServiceCIDR (networking.k8s.io/v1) whose spec.cidrs contain 10.97.64.16/30, or to correct spec.clusterIPs.cidrs of ListenerClass " + f.class.Name))
	f.createServiceCIDR("10.97.64.0/20")
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	service, address := f.service(), f.clusterIP()
	f.eventuallyAddresses(address)
	f.change(f.class, func() { f.class.Spec.ClusterIPs.CIDRs = []listenersv1alpha1.CIDR{"10.97.64.32/30", "10.97.64.16/30"} })
	f.change(service, func() { service.Finalizers = []string{"example.com/wait"} })
	f.Expect(f.Delete(t.Context(), service)).To(Succeed())
	f.Consistently(func() []listenersv1alpha1.IngressAddress { return f.listener().Status.IngressAddresses }, "500ms", "20ms").Should(HaveLen(1))

	f.Expect(f.Get(t.Context(), f.key, service)).To(Succeed())
	service.Finalizers = nil
	f.Expect(f.Update(t.Context(), service)).To(Succeed())
	f.Eventually(f.clusterIP).Should(Equal(address))
	f.Expect(f.service().UID).NotTo(Equal(service.UID))
	f.eventuallyAddresses(address)
}

// This is why the pages recommend ranges of these.
func TestKubernetesAllocatesTheFirstAddressesOfAServiceCIDRLast(t *testing.T) {
	f := newFixture(t, routedClass("10.97.16.0/24"))
	f.createServiceCIDR("10.97.16.0/20")
	routed, all := netip.MustParsePrefix("10.97.16.0/24"), netip.MustParsePrefix("10.97.16.0/20")
	inRange := 0
	for i := range 50 {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: fmt.Sprint("plain-", i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		f.Expect(f.Create(t.Context(), service)).To(Succeed())
		address := netip.MustParseAddr(service.Spec.ClusterIP)
		f.Expect(routed.Contains(address)).To(BeFalse(), service.Spec.ClusterIP)
		if all.Contains(address) {
			inRange++
		}
	}
	f.Expect(inRange).To(BeNumerically(">", 0), "Kubernetes does allocate cluster IPs of the ServiceCIDR")
}

// TestOtherServicesAreKeptOutOfARange applies the policy of the page.
func TestOtherServicesAreKeptOutOfARange(t *testing.T) {
	f := newFixture(t, routedClass("10.97.48.0/24"))
	f.createServiceCIDR("10.97.48.0/20")
	policies := 0
	page, err := os.ReadFile("../../docs/routed-cluster-ips.md")
	f.Expect(err).NotTo(HaveOccurred())
	for block := range strings.SplitSeq(string(page), "```") {
		policy, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || !strings.Contains(policy, "kind: ValidatingAdmissionPolicy") {
			continue
		}
		for document := range strings.SplitSeq(policy, "\n---\n") {
			o := &unstructured.Unstructured{}
			f.Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(document, "10.120.0.0/24", "10.97.48.0/24")), &o.Object)).To(Succeed())
			f.Expect(f.Create(t.Context(), o)).To(Succeed())
			t.Cleanup(func() { _ = f.Delete(context.Background(), o) })
			policies++
		}
	}
	f.Expect(policies).To(Equal(2), "a policy and its binding")
	create := func(c client.Client, name, clusterIP string) error {
		return c.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
		})
	}
	number := 0
	f.Eventually(func() error { // when the API server has read the policy
		number++
		return create(f.Client, fmt.Sprint("foreign-", number), fmt.Sprint("10.97.48.", number))
	}).Should(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("cluster IPs of 10.97.48.0/24 are for Listeners"))))
	f.Expect(create(f.Client, "elsewhere", "10.97.49.7")).To(Succeed())
	f.Expect(create(f.Client, "any", "")).To(Succeed())

	config := rest.CopyConfig(apiserver.Config(t))
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + names.Operator + ":" + names.Operator, Groups: []string{"system:masters"}}
	operator, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(create(operator, "own", "10.97.48.200")).To(Succeed())
	own := &corev1.Service{}
	f.Expect(f.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: "own"}, own)).To(Succeed())
	own.Labels = map[string]string{"changed": "by-another-client"}
	f.Expect(f.Update(t.Context(), own)).To(Succeed(), "its other fields can be changed")
}
