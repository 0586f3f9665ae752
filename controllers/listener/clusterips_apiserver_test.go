package listener_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
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

// collect deletes the Services of deleted Listeners as the garbage collector does: also those that the operator has
// applied again, because it did not know of the deletion yet.
func (f *fixture) collect(deleted ...string) {
	for _, name := range deleted {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}}
		f.Expect(client.IgnoreNotFound(f.Delete(f.Context(), service))).To(Succeed())
	}
}

func TestListenersHaveClusterIPsOfARange(t *testing.T) {
	f := newFixture(t, routedClass("10.97.0.16/29"))
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = "web-0" })
	f.key.Name = "web-0"
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("ask an administrator to create a ServiceCIDR (networking.k8s.io/v1) whose spec.cidrs contain 10.97.0.16/29, or to correct spec.clusterIPs.cidrs of ListenerClass " + f.class.Name))
	f.createServiceCIDR("10.97.0.0/20")

	const size = 6 // without the first and the last address
	addresses := map[string]string{}
	for i := 1; i < size; i++ { // at the same time
		f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = fmt.Sprint("web-", i) })
	}
	for i := range size {
		f.key.Name = fmt.Sprint("web-", i)
		f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
		address := f.clusterIP()
		f.Expect(netip.MustParsePrefix("10.97.0.16/29").Contains(netip.MustParseAddr(address))).To(BeTrue(), address)
		f.Expect(addresses).NotTo(HaveKey(address))
		addresses[address] = f.key.Name
		f.eventuallyAddresses(address)
	}

	f.key.Name = "last"
	f.createListener(nil)
	l = f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClusterIPsExhausted)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("other Services and Listeners have all of 10.97.0.16/29; add a range to spec.clusterIPs.cidrs of ListenerClass " + f.class.Name))

	// An address survives its Service, although another Listener waits for one.
	for address, name := range addresses {
		f.key.Name = name
		f.deleteService()
		f.Eventually(f.clusterIP).Should(Equal(address))
		f.eventuallyAddresses(address)
	}

	// A range that is added serves another one, and the others keep theirs.
	f.change(f.class, func() { f.class.Spec.ClusterIPs.CIDRs = []listenersv1alpha1.CIDR{"10.97.0.24/31", "10.97.0.16/29"} })
	f.key.Name = "last"
	f.Eventually(f.clusterIP).Should(HavePrefix("10.97.0.2"))
	f.Expect(addresses).NotTo(HaveKey(f.clusterIP()))
	for address, name := range addresses {
		f.key.Name = name
		f.Expect(f.clusterIP()).To(Equal(address))
	}

	// When a Service is deleted with its Listener, one that waits gets the address.
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = "more-0" })
	f.key.Name = "more-0"
	f.Eventually(f.clusterIP).Should(HavePrefix("10.97.0.2"))
	f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = "more-1" })
	f.key.Name = "more-1"
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClusterIPsExhausted)
	for address, name := range addresses {
		gone := metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}
		f.Expect(f.Delete(t.Context(), &listenersv1alpha1.Listener{ObjectMeta: gone})).To(Succeed())
		f.Eventually(func() string { f.collect(name); return f.clusterIP() }).Should(Equal(address))
		delete(addresses, address)
		break
	}

	// If several are deleted at once, as many that wait get an address, one after the other.
	for i := range 4 {
		f.createListener(func(l *listenersv1alpha1.Listener) { l.Name = fmt.Sprint("later-", i) })
		f.key.Name = fmt.Sprint("later-", i)
		f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonClusterIPsExhausted)
	}
	freed := slices.Sorted(maps.Values(addresses))[:3]
	for _, name := range freed {
		gone := metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name}
		f.Expect(f.Delete(t.Context(), &listenersv1alpha1.Listener{ObjectMeta: gone})).To(Succeed())
	}
	served := func() (served int) {
		f.collect(freed...)
		for i := range 4 {
			f.key.Name = fmt.Sprint("later-", i)
			if f.clusterIP() != "" {
				served++
			}
		}
		return served
	}
	f.Eventually(served).Should(Equal(3))
}

// The Listener keeps its address while the Service is being deleted.
func TestAClusterIPOutlivesAServiceWithAFinalizer(t *testing.T) {
	f := newFixture(t, routedClass("10.97.64.16/30"))
	f.createServiceCIDR("10.97.64.0/20")
	f.createListener(nil)
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

// No Service can change its cluster IP.
func TestAServiceWithAnotherClusterIPStaysAsItIs(t *testing.T) {
	spec := routedClass()
	spec.ClusterIPs = nil
	f := newFixture(t, spec)
	f.createServiceCIDR("10.97.32.0/20")
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	before := f.service()
	f.eventuallyAddresses(before.Spec.ClusterIP)

	f.change(f.class, func() {
		f.class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{"10.97.32.0/24"}}
	})
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.Expect(l.Status.Conditions[0].Message).To(ContainSubstring("has the cluster IP " + before.Spec.ClusterIP + ", which no Service can change"))
	f.Expect(f.service().UID).To(Equal(before.UID))
	f.eventuallyAddresses(before.Spec.ClusterIP)

	f.deleteService()
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.clusterIP()).To(HavePrefix("10.97.32."))
	f.eventuallyAddresses(f.clusterIP())
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
