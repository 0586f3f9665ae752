package dnsendpoint_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/dnsendpoint"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// world has an operator, and a Listener "web" whose status the test writes.
type world struct {
	*apiserver.World
	class    *listenersv1alpha1.ListenerClass
	listener *listenersv1alpha1.Listener
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: apiserver.NewWorld(t)}
	apis, err := platform.Watch(t.Context(), apiserver.Config(t))
	w.Expect(err).NotTo(HaveOccurred())
	apiserver.StartManager(t, nil, "operators", func(mgr ctrl.Manager) error {
		return (&dnsendpoint.Reconciler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder(names.EventReporter), Platform: apis}).SetupWithManager(mgr)
	})
	w.class = &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "named-"},
		Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, Hostname: &listenersv1alpha1.Hostname{
			Template: "{listener}.{namespace}.example.com", Records: listenersv1alpha1.HostnameRecordsDNSEndpoint, TTLSeconds: ptr.To[int32](5),
		}},
	}
	w.Expect(w.Create(t.Context(), w.class)).To(Succeed())
	w.listener = &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web", Labels: map[string]string{"team": "shop"}},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(w.class.Name), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	return w
}

// publish lets the name of the Listener lead to addresses, which it creates if it does not exist.
func (w *world) publish(addresses ...string) {
	w.Helper()
	if w.listener.UID == "" {
		w.Expect(w.Create(w.Context(), w.listener)).To(Succeed())
	}
	before := w.listener.DeepCopy()
	ports := map[string]int32{"http": 80}
	w.listener.Status = &listenersv1alpha1.ListenerStatus{}
	for _, a := range addresses {
		w.listener.Status.Targets = append(w.listener.Status.Targets, listenersv1alpha1.Target{
			Address: a, AddressType: listenersv1alpha1.AddressTypeIP, Ports: ports,
			Advertised: listenersv1alpha1.IngressAddress{Address: "web." + w.Namespace + ".example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: ports},
		})
	}
	w.Expect(w.Status().Patch(w.Context(), w.listener, client.MergeFrom(before))).To(Succeed())
}

// endpoint returns the DNSEndpoint, or nil if it does not exist.
func (w *world) endpoint() *unstructured.Unstructured {
	o := apply.Object(names.KindDNSEndpoint, client.ObjectKey{Namespace: w.Namespace, Name: "web"})
	if w.Get(w.Context(), client.ObjectKeyFromObject(o), o) != nil {
		return nil
	}
	return o
}

// records returns what the DNSEndpoint has, or nil if it does not exist.
func (w *world) records() []any {
	if o := w.endpoint(); o != nil {
		records, _, _ := unstructured.NestedSlice(o.Object, "spec", "endpoints")
		return records
	}
	return nil
}

// record returns the records of the name with these addresses.
func (w *world) record(addresses ...any) []any {
	return []any{map[string]any{"dnsName": "web." + w.Namespace + ".example.com", "recordType": "A", "recordTTL": int64(5), "targets": addresses}}
}

// dnsReady returns the condition of the Listener, without the time, or an empty one.
func (w *world) dnsReady() metav1.Condition {
	l := &listenersv1alpha1.Listener{}
	w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(w.listener), l)).To(Succeed())
	c := ptr.Deref(meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerDNSReady), metav1.Condition{})
	c.LastTransitionTime = metav1.Time{}
	return c
}

func reason(want string) OmegaMatcher { return HaveField("Reason", want) }

func TestRecordsFollowTheAddresses(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w := newWorld(t)
	w.publish("192.0.2.1")
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
	w.Eventually(w.dnsReady).Should(Equal(metav1.Condition{
		Type: listenersv1alpha1.ListenerDNSReady, Status: metav1.ConditionFalse, Reason: listenersv1alpha1.ReasonWaitingForExternalDNS, ObservedGeneration: 1,
		Message: "external-dns has not read DNSEndpoint " + w.Namespace + "/web yet; it has to run with --source=crd, and to manage records of the types A",
	}))
	owned := w.endpoint()
	w.Expect(owned.GetLabels()).To(HaveKeyWithValue("team", "shop"))
	w.Expect(metav1.IsControlledBy(owned, w.listener)).To(BeTrue())

	// external-dns reads it, and again when a Pod has moved.
	read := func() {
		o := w.endpoint()
		w.Expect(unstructured.SetNestedField(o.Object, o.GetGeneration(), "status", "observedGeneration")).To(Succeed())
		w.Expect(w.Status().Update(t.Context(), o)).To(Succeed())
	}
	read()
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonRecordsRead))
	w.publish("192.0.2.2", "192.0.2.3")
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.2", "192.0.2.3")))
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonWaitingForExternalDNS))
	read()
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonRecordsRead))

	// A Listener without an address keeps its records.
	w.publish()
	w.Consistently(w.records).Should(Equal(w.record("192.0.2.2", "192.0.2.3")))
	w.publish("192.0.2.2")
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.2")))

	// By others, by hand, and by the class.
	o := w.endpoint()
	w.Expect(unstructured.SetNestedSlice(o.Object, []any{map[string]any{"dnsName": "victim.example.com"}}, "spec", "endpoints")).To(Succeed())
	w.Expect(w.Update(t.Context(), o)).To(Succeed())
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.2")))
	w.Expect(w.Delete(t.Context(), w.endpoint())).To(Succeed())
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.2")))
	w.Expect(w.Patch(t.Context(), w.class, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hostname":{"records":"None"}}}`)))).To(Succeed())
	w.Eventually(w.endpoint).Should(BeNil())
	w.Eventually(w.dnsReady).Should(Equal(metav1.Condition{}))
}

func TestADNSEndpointOfOthersStaysAsItIs(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w := newWorld(t)
	foreign := apply.Object(names.KindDNSEndpoint, client.ObjectKey{Namespace: w.Namespace, Name: "web"})
	foreign.Object["spec"] = map[string]any{"endpoints": w.record("198.51.100.1")}
	w.Expect(w.Create(t.Context(), foreign)).To(Succeed())
	w.publish("192.0.2.1")
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonForeignDNSEndpoint))
	w.Expect(w.dnsReady().Message).To(Equal("DNSEndpoint " + w.Namespace + "/web already exists and has no controller; delete it, or rename the Listener"))
	w.Expect(w.records()).To(Equal(w.record("198.51.100.1")))
	w.Expect(w.Delete(t.Context(), foreign)).To(Succeed())
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonWaitingForExternalDNS))
}

func TestARejectedDNSEndpointIsWrittenAgain(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w := newWorld(t)
	hard := corev1.ResourceList{"count/dnsendpoints.externaldns.k8s.io": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.Expect(w.Create(t.Context(), quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard} // as its controller does
	w.Expect(w.Status().Update(t.Context(), quota)).To(Succeed())
	w.publish("192.0.2.1")
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonDNSEndpointRejected))
	w.Expect(w.dnsReady().Message).To(ContainSubstring("exceeded quota: none"))
	w.Expect(w.Delete(t.Context(), quota)).To(Succeed())
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonWaitingForExternalDNS))
}

// The cache may show the Service, which says which Pod the name is made from, after the status.
func TestANameOfAPodIsRecordedWhenItsServiceIsKnown(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w := newWorld(t)
	w.class.Spec.Hostname.Template = "{podName}.{namespace}.example.com"
	w.Expect(w.Update(t.Context(), w.class)).To(Succeed())
	w.publish("192.0.2.1")
	w.Consistently(w.records).Should(BeNil())
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web", Annotations: map[string]string{names.AnnotationPod: "web"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	exposure.SetOwner(service, w.listener)
	w.Expect(w.Create(t.Context(), service)).To(Succeed())
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
}

// The operator also takes over what comes from a backup, whose owner does not exist any more.
func TestARestoredDNSEndpointIsTakenOver(t *testing.T) {
	crds.Install(t, apiserver.Client(t), crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w := newWorld(t)
	restored := apply.Object(names.KindDNSEndpoint, client.ObjectKey{Namespace: w.Namespace, Name: "web"})
	restored.SetLabels(map[string]string{"app.kubernetes.io/name": names.ServiceAppName, "app.kubernetes.io/instance": "web", names.LabelManagedBy: names.ServiceManagedBy})
	restored.Object["spec"] = map[string]any{"endpoints": w.record("198.51.100.1")}
	w.Expect(w.Create(t.Context(), restored)).To(Succeed())
	w.publish("192.0.2.1")
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
	w.Expect(w.endpoint().GetUID()).To(Equal(restored.GetUID()))
}

func TestExternalDNSThatIsInstalledLater(t *testing.T) {
	w := newWorld(t)
	w.publish("192.0.2.1")
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonNotServed))
	crds.Install(t, w.Client, crds.DNSEndpoints)
	defer crds.Remove(t, apiserver.Client(t), crds.DNSEndpoints)
	w.Eventually(w.records).Should(Equal(w.record("192.0.2.1")))
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonWaitingForExternalDNS))
	crds.Remove(t, w.Client, crds.DNSEndpoints)
	w.Eventually(w.dnsReady).Should(reason(listenersv1alpha1.ReasonNotServed))
}
