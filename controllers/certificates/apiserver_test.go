package certificates_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/certificates"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/metric"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// world has an operator, and Pods. The test is their kubelet, and the controller of PodListeners.
type world struct {
	*apiserver.World
	// operators is the operator's namespace.
	operators string
	stop      func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: apiserver.NewWorld(t), operators: apiserver.Namespace(t)}
	t.Cleanup(func() { // there is no garbage collector, and the operator of the next test would repair them
		for _, o := range w.published(w.Namespace) {
			w.Expect(client.IgnoreNotFound(w.Delete(context.Background(), o))).To(Succeed())
		}
	})
	return w
}

// newRunningWorld returns a world in which the operator runs.
func newRunningWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.start(clock.RealClock{})
	return w
}

// start starts the operator. Its authorities have a clock of their own.
func (w *world) start(authoritiesClock clock.PassiveClock) {
	w.Helper()
	apis, err := platform.Watch(w.Context(), apiserver.Config(w))
	w.Expect(err).NotTo(HaveOccurred())
	_, w.stop = apiserver.RunManager(w.T, nil, w.operators, func(mgr ctrl.Manager) error {
		events, applier := mgr.GetEventRecorder(names.EventReporter), apply.New(mgr.GetClient(), names.FieldManagerOperator)
		a := &certificates.Authorities{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: events, Applier: applier, Platform: apis, Namespace: w.operators, Clock: authoritiesClock,
		}
		trust := &certificates.Trust{Authorities: a}
		signer := &certificates.Signer{Trust: trust, Clock: clock.RealClock{}}
		for _, c := range []interface{ SetupWithManager(ctrl.Manager) error }{a, trust, signer} {
			if err := c.SetupWithManager(mgr); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *world) create(o client.Object) {
	w.Helper()
	w.Expect(w.Client.Create(w.Context(), o)).To(Succeed())
}

// pod creates a Pod with a volume for each claim, each with the provisioner that its name begins with.
func (w *world) pod(name string, claims ...string) *corev1.Pod {
	w.Helper()
	var volumes []corev1.Volume
	for _, c := range claims {
		volume, provisioner, _ := strings.Cut(c, "@")
		w.claim(name+"-"+volume, provisioner, w.Namespace+"-"+name+"-"+volume)
		volumes = append(volumes, objects.ClaimVolume(volume, name+"-"+volume))
	}
	return w.podWith(name, volumes...)
}

// exposedPod creates a Pod whose volume has an address.
func (w *world) exposedPod() *corev1.Pod {
	w.Helper()
	pod := w.pod("web-0", "own@"+names.Driver)
	w.publish(pod, map[string]string{"own": "web-0:203.0.113.7"})
	return pod
}

func (w *world) podWith(name string, volumes ...corev1.Volume) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "web", Image: "web"}}, Volumes: volumes},
	}
	w.create(pod)
	return pod
}

// claim creates a claim. The name of its volume is empty if it is not bound.
func (w *world) claim(name, provisioner, volume string) {
	w.Helper()
	w.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Annotations: map[string]string{names.AnnotationProvisioner: provisioner}},
		Spec:       objects.ClaimSpec(volume),
	})
}

// listen creates a Listener, with a status.
func (w *world) listen(name string) *listenersv1alpha1.Listener {
	w.Helper()
	l := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	w.create(l)
	before := l.DeepCopy()
	l.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{}}
	w.Expect(w.Status().Patch(w.Context(), l, client.MergeFrom(before))).To(Succeed())
	return l
}

// publish publishes addresses of a Pod by volume, each of the Listener whose name is before the colon, which it creates
// unless it exists.
func (w *world) publish(pod *corev1.Pod, byVolume map[string]string) {
	w.Helper()
	o := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, pod.Spec.NodeName)
	for volume, value := range byVolume {
		listener, list, _ := strings.Cut(value, ":")
		l := &listenersv1alpha1.Listener{}
		if apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: listener}, l)) {
			l = w.listen(listener)
		}
		entry := listenersv1alpha1.PodListener{Scope: listenersv1alpha1.ListenerScopeNode, ListenerName: listener}
		for a := range strings.FieldsSeq(list) {
			entry.IngressAddresses = append(entry.IngressAddresses, listenersv1alpha1.IngressAddress{
				Address: a, AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80},
			})
		}
		o.Spec.Listeners[volume] = entry
		before := l.DeepCopy()
		l.Status.IngressAddresses = append(l.Status.IngressAddresses, entry.IngressAddresses...)
		w.Expect(w.Status().Patch(w.Context(), l, client.MergeFrom(before))).To(Succeed())
	}
	w.create(o)
}

// request creates a request as the kubelet does.
func (w *world) request(pod *corev1.Pod, signer string, annotations map[string]string) *certificatesv1.PodCertificateRequest {
	w.Helper()
	r := w.newRequest(pod, signer, annotations)
	w.create(r)
	return r
}

// newRequest returns a request with a key of its own.
func (w *world) newRequest(pod *corev1.Pod, signer string, annotations map[string]string) *certificatesv1.PodCertificateRequest {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	// What a request asks for beside its key counts for nothing.
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"example.com"}}, key)
	w.Expect(err).NotTo(HaveOccurred())
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "req-"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signer, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: "default", ServiceAccountUID: "uid",
			NodeName: types.NodeName(pod.Spec.NodeName), NodeUID: "uid", MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub, UnverifiedUserAnnotations: annotations,
		},
	}
}

// decided waits until a request is decided, and returns the condition.
func (w *world) decided(r *certificatesv1.PodCertificateRequest) metav1.Condition {
	w.Helper()
	w.Eventually(func() []metav1.Condition {
		w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
		return r.Status.Conditions
	}).Should(HaveLen(1))
	return r.Status.Conditions[0]
}

// issued waits until a certificate is issued, and returns it.
func (w *world) issued(r *certificatesv1.PodCertificateRequest) *x509.Certificate {
	w.Helper()
	w.Expect(w.decided(r).Type).To(Equal(certificatesv1.PodCertificateRequestConditionTypeIssued), "%v", r.Status.Conditions)
	block, _ := pem.Decode([]byte(r.Status.CertificateChain))
	c, err := x509.ParseCertificate(block.Bytes)
	w.Expect(err).NotTo(HaveOccurred())
	return c
}

// events returns the reasons and the messages of the events of a namespace.
func (w *world) events(namespace string) (texts []string, _ error) {
	var all corev1.EventList
	err := w.List(w.Context(), &all, client.InNamespace(namespace))
	for _, e := range all.Items {
		texts = append(texts, e.Reason+" "+e.Message)
	}
	return texts, err
}

// waiting returns what the requests of Pods wait for, by the name of the Pod, as the events of the Pods say.
func (w *world) waiting() (map[string]string, error) {
	var all corev1.EventList
	err := w.List(w.Context(), &all, client.InNamespace(w.Namespace))
	texts := map[string]string{}
	for _, e := range all.Items {
		if e.Reason == listenersv1alpha1.ReasonCertificateWaiting {
			texts[e.InvolvedObject.Name] = e.Message
		}
	}
	return texts, err
}

// secret returns the Secret with the roots of the authorities.
func (w *world) secret() *corev1.Secret {
	w.Helper()
	secret := &corev1.Secret{}
	w.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: w.operators, Name: names.CertificateAuthoritySecret}, secret)).To(Succeed())
	return secret
}

// published returns what is published for a namespace.
func (w *world) published(namespace string) []client.Object {
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "listener-ca.crt"}},
		&certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "listener-operator.dev:address:" + namespace}},
	}
}

// trusted returns the certificates to trust in a namespace, which ConfigMap and ClusterTrustBundle both have.
func (w *world) trusted(g Gomega, namespace string) string {
	cm, ctb := &corev1.ConfigMap{}, &certificatesv1.ClusterTrustBundle{}
	g.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "listener-ca.crt"}, cm)).To(Succeed())
	g.Expect(w.Get(w.Context(), client.ObjectKey{Name: "listener-operator.dev:address:" + namespace}, ctb)).To(Succeed())
	g.Expect(ctb.Spec.TrustBundle).To(Equal(cm.Data["ca.crt"]))
	return ctb.Spec.TrustBundle
}

// verify verifies a certificate for an address, as a client that trusts the authorities of a namespace.
func (w *world) verify(c *x509.Certificate, namespace, address string) error {
	w.Helper()
	pool := x509.NewCertPool()
	w.Expect(pool.AppendCertsFromPEM([]byte(w.trusted(w, namespace)))).To(BeTrue())
	_, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: address})
	return err
}

func TestAPodWithAnInlineVolumeHasACertificate(t *testing.T) {
	w := newRunningWorld(t)
	pod := w.podWith("web-0", objects.InlineVolume("listener", map[string]string{names.AnnotationListenerClass: "public"}))
	request := w.request(pod, names.Signer, nil)
	w.Eventually(w.waiting).Should(HaveKeyWithValue("web-0", ContainSubstring(`volume "listener" has no address yet`)))
	w.publish(pod, map[string]string{"listener": "web-0-listener:203.0.113.7"})
	w.Expect(w.verify(w.issued(request), w.Namespace, "203.0.113.7")).To(Succeed())
}

// They are for all addresses of the Pod, those of the Pods that share its Listener, and nothing that the request or a
// Listener says. They are issued as soon as the last address is known.
func TestCertificatesAreForPublishedAddresses(t *testing.T) {
	w := newRunningWorld(t)
	pod, other := w.pod("web-0", "own@"+names.Driver, "shared@"+names.Driver, "data@example.com/disk"), w.pod("web-1", "shared@"+names.Driver)
	w.publish(other, map[string]string{"shared": "web:203.0.113.8"})
	request := w.request(pod, names.Signer, nil)
	w.Eventually(w.waiting).Should(HaveKeyWithValue("web-0", ContainSubstring(`volume "own" has no address yet`)))
	w.publish(pod, map[string]string{"own": "web-0:203.0.113.7 2001:db8::7", "shared": "web:203.0.113.7"})

	c := w.issued(request)
	for _, o := range w.published(w.Namespace) {
		w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
		w.Expect(o.GetOwnerReferences()).To(HaveLen(1), "%T ends with the CRDs", o)
	}
	w.Expect(w.secret().OwnerReferences).To(BeEmpty(), "a restored Secret must not be garbage")
	for _, address := range []string{"203.0.113.7", "2001:db8::7", "203.0.113.8"} {
		w.Expect(w.verify(c, w.Namespace, address)).To(Succeed(), address)
	}
	w.Expect(len(c.IPAddresses)+len(c.DNSNames)).To(Equal(3), "%v %v", c.IPAddresses, c.DNSNames)
	w.Expect(c.NotAfter.Sub(c.NotBefore)).To(Equal(certificate.LeafLifetime))
	w.Expect(request.Status.BeginRefreshAt.Sub(c.NotBefore)).To(Equal(certificate.RefreshAfter))

	narrow := w.issued(w.request(pod, names.Signer, map[string]string{names.AnnotationCertificateVolumes: "own", names.AnnotationCertificateUsages: "server, client"}))
	w.Expect(w.verify(narrow, w.Namespace, "203.0.113.7")).To(Succeed())
	w.Expect(w.verify(narrow, w.Namespace, "203.0.113.8")).To(MatchError(ContainSubstring("203.0.113.8")))
	w.Expect(narrow.ExtKeyUsage).To(ContainElement(x509.ExtKeyUsageClientAuth))

	whole := w.issued(w.request(pod, names.Signer, map[string]string{names.AnnotationCertificateVolumes: "", names.AnnotationCertificateUsages: ""}))
	w.Expect(w.verify(whole, w.Namespace, "203.0.113.8")).To(Succeed(), "an empty value is as none")
	w.Expect(whole.ExtKeyUsage).NotTo(ContainElement(x509.ExtKeyUsageClientAuth))

	neighbour := newWorld(t)
	neighbour.stop = w.stop
	stranger := neighbour.pod("web-0", "own@"+names.Driver)
	neighbour.publish(stranger, map[string]string{"own": "web-0:203.0.113.7"})
	foreign := neighbour.issued(neighbour.request(stranger, names.Signer, nil))
	w.Expect(w.verify(foreign, neighbour.Namespace, "203.0.113.7")).To(Succeed())
	w.Expect(w.verify(foreign, w.Namespace, "203.0.113.7")).NotTo(Succeed(), "each namespace has its own authority")
}

// Each has a reason. Requests of other signers are not touched.
func TestWhatIsDenied(t *testing.T) {
	w := newRunningWorld(t)
	pod, plain := w.pod("web-0", "own@"+names.Driver, "data@example.com/disk"), w.pod("plain-0", "data@example.com/disk")
	w.publish(pod, map[string]string{"own": "web-0:203.0.113.7"})
	elsewhere := pod.DeepCopy()
	elsewhere.Spec.NodeName = "another-node"
	gone := pod.DeepCopy()
	gone.UID = "00000000-0000-0000-0000-000000000000"
	other := w.request(pod, "example.com/other", nil)
	invalid := certificatesv1.PodCertificateRequestConditionInvalidUserConfig
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		annotations  map[string]string
		reason, text string
	}{
		"no listener volume":    {plain, nil, listenersv1alpha1.ReasonNoListenerVolumes, "add a volume"},
		"another Pod of a name": {gone, nil, listenersv1alpha1.ReasonPodDeleted, string(gone.UID)},
		"another node":          {elsewhere, nil, listenersv1alpha1.ReasonPodDeleted, "on node another-node"},
		"unknown annotation":    {pod, map[string]string{"example.com/san": "example.com"}, invalid, "example.com/san"},
		"no volumes":            {pod, map[string]string{names.AnnotationCertificateVolumes: " , "}, invalid, "names no volume"},
		"unknown volume":        {pod, map[string]string{names.AnnotationCertificateVolumes: "own,broker"}, invalid, `no listener volume "broker"`},
		"volume of a disk":      {pod, map[string]string{names.AnnotationCertificateVolumes: "data"}, invalid, `no listener volume "data"`},
		"unknown usage":         {pod, map[string]string{names.AnnotationCertificateUsages: "ca"}, invalid, `"ca"`},
		"no server":             {pod, map[string]string{names.AnnotationCertificateUsages: "client"}, invalid, `"client"`},
	} {
		t.Run(name, func(t *testing.T) {
			condition := w.decided(w.request(tc.pod, names.Signer, tc.annotations))
			if condition.Type != certificatesv1.PodCertificateRequestConditionTypeDenied || condition.Reason != tc.reason || !strings.Contains(condition.Message, tc.text) {
				t.Errorf("%s %s: %s", condition.Type, condition.Reason, condition.Message)
			}
		})
	}
	w.issued(w.request(pod, names.Signer, nil))
	w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(other), other)).To(Succeed())
	w.Expect(other.Status.Conditions).To(BeEmpty())
}

// Each request says for what. A Pod whose class does not exist has no address yet.
func TestWhatWaits(t *testing.T) {
	w := newRunningWorld(t)
	noAddress := w.pod("no-address-0", "own@"+names.Driver)
	w.publish(noAddress, map[string]string{"own": "web-0:"})
	w.claim("foreign-0-own", names.Driver, "")
	w.claim("unbound-0-disk", "example.com/disk", "")
	var requests []*certificatesv1.PodCertificateRequest
	for _, pod := range []*corev1.Pod{
		noAddress,
		w.podWith("missing-0", objects.ClaimVolume("own", "missing-0-own")),
		w.podWith("foreign-0", objects.EphemeralVolume("own", nil)), // whose claim is not the Pod's
		w.podWith("unbound-0", objects.ClaimVolume("disk", "unbound-0-disk")),
	} {
		requests = append(requests, w.request(pod, names.Signer, nil))
	}
	w.Eventually(w.waiting).Should(And(
		HaveKeyWithValue("no-address-0", ContainSubstring(`volume "own" has no address yet`)),
		HaveKeyWithValue("missing-0", ContainSubstring(`the claim missing-0-own of volume "own" does not exist yet`)),
		HaveKeyWithValue("foreign-0", ContainSubstring(`the claim foreign-0-own of volume "own" does not exist yet`)),
		HaveKeyWithValue("unbound-0", ContainSubstring(`the claim unbound-0-disk of volume "disk" is not bound yet`)),
	))
	w.Expect(metric.Value(t, waitingRequests)).To(Equal(4.0))
	for _, request := range requests {
		w.Expect(w.Delete(w.Context(), request)).To(Succeed())
	}
	w.Eventually(func() float64 { return metric.Value(t, waitingRequests) }).Should(BeZero())
}

// Its request is denied.
func TestAPodOfTheSameNameGetsNothingOfItsPredecessor(t *testing.T) {
	w := newRunningWorld(t)
	first := w.pod("web-0", "own@"+names.Driver)
	early := w.request(first, names.Signer, nil)
	w.Expect(w.Delete(w.Context(), first, client.GracePeriodSeconds(0))).To(Succeed())
	second := w.podWith(first.Name, first.Spec.Volumes...)
	late := w.request(second, names.Signer, nil)
	w.publish(first, map[string]string{"own": "web-0:203.0.113.7"}) // what is left of it
	w.publish(second, map[string]string{"own": "web-0b:203.0.113.8"})
	c := w.issued(late)
	w.Expect(w.verify(c, w.Namespace, "203.0.113.8")).To(Succeed())
	w.Expect(c.IPAddresses).To(HaveLen(1))
	w.Expect(w.decided(early).Reason).To(Equal(listenersv1alpha1.ReasonPodDeleted))
}

// Others may have them. Another Listener of the name does not change that, until the Pod has its addresses.
func TestAddressesOfADeletedListenerGetNoCertificate(t *testing.T) {
	w := newWorld(t)
	l := w.listen("web-0")
	pod := w.exposedPod()
	patch := func(finalizers string) {
		w.Expect(w.Patch(t.Context(), l, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": `+finalizers+`}}`)))).To(Succeed())
	}
	patch(`["example.com/keep"]`)
	w.Expect(w.Delete(t.Context(), l)).To(Succeed())
	w.start(clock.RealClock{})
	waits := func(pod *corev1.Pod) {
		t.Helper()
		request := w.request(pod, names.Signer, nil)
		w.Eventually(w.waiting).Should(HaveKeyWithValue(pod.Name, ContainSubstring("Listener web-0 was deleted")))
		w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(request), request)).To(Succeed())
		w.Expect(request.Status.Conditions).To(BeEmpty())
	}
	waits(pod) // for a Listener that is being deleted
	patch("null")
	w.Eventually(func() error { return w.Get(t.Context(), client.ObjectKeyFromObject(l), l) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	same := w.pod("web-1", "own@"+names.Driver)
	w.publish(same, map[string]string{"own": "web-0:203.0.113.7"})
	w.Expect(w.Delete(t.Context(), &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-0"}})).To(Succeed())
	w.create(&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-0"}})
	waits(same)
}

// Nothing is left of it.
func TestTheEndOfANamespaceIsNoError(t *testing.T) {
	w := newRunningWorld(t)
	before := metric.Value(t, errorsOfAll)
	pod, late := w.pod("web-0", "own@"+names.Driver), w.pod("late-0", "own@"+names.Driver)
	w.publish(pod, map[string]string{"own": "web-0:203.0.113.7"})
	w.publish(late, map[string]string{"own": "late-0:"})
	w.issued(w.request(pod, names.Signer, nil))
	request := w.request(late, names.Signer, nil)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	w.Expect(w.Delete(w.Context(), namespace)).To(Succeed())
	configMap, bundle := w.published(w.Namespace)[0], w.published(w.Namespace)[1]
	w.Expect(w.Delete(w.Context(), configMap)).To(Succeed()) // as Kubernetes does, in any order
	o := &listenersv1alpha1.PodListeners{}
	w.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: w.Namespace, Name: listenersv1alpha1.PodListenersName(late.UID)}, o)).To(Succeed())
	o.Spec.Listeners["own"] = listenersv1alpha1.PodListener{
		Scope: listenersv1alpha1.ListenerScopeNode, ListenerName: "late-0", IngressAddresses: []listenersv1alpha1.IngressAddress{
			{Address: "203.0.113.8", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80}},
		},
	}
	w.Expect(w.Update(w.Context(), o)).To(Succeed())
	w.Consistently(func() error { return w.Get(w.Context(), client.ObjectKeyFromObject(configMap), &corev1.ConfigMap{}) }).
		WithTimeout(500 * time.Millisecond).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	w.Expect(w.Delete(w.Context(), request)).To(Succeed())
	w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
	namespace.Spec.Finalizers = nil
	w.Expect(w.SubResource("finalize").Update(w.Context(), namespace)).To(Succeed())
	w.Eventually(func() error {
		return w.Get(w.Context(), client.ObjectKeyFromObject(bundle), &certificatesv1.ClusterTrustBundle{})
	}).
		Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	w.Expect(metric.Value(t, errorsOfAll)).To(Equal(before))
}

// Metrics.
const (
	waitingRequests = "listener_operator_waiting_certificate_requests"
	errorsOfAll     = "controller_runtime_reconcile_errors_total"
)

// They trust the previous authority as long as it may be in use.
func TestClientsTrustAnAuthorityBeforeItSigns(t *testing.T) {
	w := newWorld(t)
	began := time.Now().Add(-time.Hour).Truncate(time.Second)
	now := clocktesting.NewFakePassiveClock(began)
	w.start(now)
	pod := w.exposedPod()
	first := w.issued(w.request(pod, names.Signer, nil))
	configuration := &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName},
		Spec: operatorv1alpha1.ListenerOperatorSpec{CertificateAuthorities: operatorv1alpha1.CertificateAuthoritiesSpec{
			NotBefore: ptr.To(metav1.NewTime(began.Add(10 * time.Minute))), Overlap: metav1.Duration{Duration: 30 * time.Minute},
		}},
	}
	now.SetTime(began.Add(10 * time.Minute))
	w.create(configuration)
	w.Cleanup(func() { _ = w.Delete(context.Background(), configuration) })
	trusted := func(g Gomega) int { return strings.Count(w.trusted(g, w.Namespace), "BEGIN") }
	w.Eventually(trusted).Should(Equal(2))
	second := w.issued(w.request(pod, names.Signer, nil))
	w.Expect(second.AuthorityKeyId).To(Equal(first.AuthorityKeyId), "clients may not trust the new one yet")

	now.SetTime(began.Add(40 * time.Minute))
	third := w.issued(w.request(pod, names.Signer, nil))
	w.Expect(third.AuthorityKeyId).NotTo(Equal(first.AuthorityKeyId))
	for _, c := range []*x509.Certificate{first, second, third} {
		w.Expect(w.verify(c, w.Namespace, "203.0.113.7")).To(Succeed())
	}

	now.SetTime(began.Add(100 * time.Minute))
	w.stop()
	w.start(now) // in place of the timer, which follows the real time
	w.Eventually(trusted).Should(Equal(1))
	w.Expect(w.verify(third, w.Namespace, "203.0.113.7")).To(Succeed())
	w.Expect(w.verify(first, w.Namespace, "203.0.113.7")).NotTo(Succeed())
}

// They survive a restart of the operator, the deletion of their Secret, and damage, which stops the signer until it is
// repaired. What is published is repaired, too.
func TestAuthoritiesSurvive(t *testing.T) {
	w := newRunningWorld(t)
	pod := w.exposedPod()
	first := w.issued(w.request(pod, names.Signer, nil))
	same := func(when string) {
		w.Helper()
		w.Expect(w.issued(w.request(pod, names.Signer, nil)).AuthorityKeyId).To(Equal(first.AuthorityKeyId), when)
	}
	w.stop()
	w.start(clock.RealClock{})
	same("after a restart")

	secret := w.secret()
	for what, lose := range map[string]func(*corev1.Secret) error{
		"after the deletion of the Secret": func(o *corev1.Secret) error { return w.Delete(w.Context(), o) },
		"after all was removed from it": func(o *corev1.Secret) error {
			o.Data = nil
			return w.Update(w.Context(), o)
		},
	} {
		w.Expect(lose(w.secret())).To(Succeed())
		w.Eventually(func() (map[string][]byte, error) {
			restored := &corev1.Secret{}
			err := w.Get(w.Context(), client.ObjectKeyFromObject(secret), restored)
			return restored.Data, err
		}).Should(Equal(secret.Data))
		same(what)
	}

	bundle := w.trusted(w, w.Namespace)
	for _, o := range w.published(w.Namespace) {
		w.Expect(w.Delete(w.Context(), o)).To(Succeed())
		w.Eventually(w.trusted).WithArguments(w.Namespace).Should(Equal(bundle))
	}
}

// They are in a backup that is restored while the operator runs. Roots that have expired are replaced.
func TestOtherRootsAreUsedAtOnce(t *testing.T) {
	w := newRunningWorld(t)
	pod := w.exposedPod()
	first := w.issued(w.request(pod, names.Signer, nil))
	namespace := &corev1.Namespace{}
	w.Expect(w.Get(w.Context(), client.ObjectKey{Name: w.Namespace}, namespace)).To(Succeed())
	restore := func(root certificate.Root) []byte {
		secret := w.secret()
		secret.Data = certificate.Roots{root}.Encode()
		w.Expect(w.Update(w.Context(), secret)).To(Succeed())
		authority, err := root.Authority(namespace.Name, namespace.UID)
		w.Expect(err).NotTo(HaveOccurred())
		return authority.PEM()
	}
	backup := restore(certificate.NewRoot(time.Now().Add(-time.Hour)))
	w.Eventually(w.trusted).WithArguments(w.Namespace).Should(Equal(string(backup)))
	second := w.issued(w.request(pod, names.Signer, nil))
	w.Expect(w.verify(second, w.Namespace, "203.0.113.7")).To(Succeed())
	w.Expect(w.verify(first, w.Namespace, "203.0.113.7")).NotTo(Succeed())

	expired := restore(certificate.NewRoot(time.Now().Add(-certificate.AuthorityLifetime)))
	w.Eventually(w.trusted).WithArguments(w.Namespace).ShouldNot(Equal(string(backup)))
	w.Expect(w.trusted(w, w.Namespace)).NotTo(ContainSubstring(string(expired)))
	w.Expect(w.verify(w.issued(w.request(pod, names.Signer, nil)), w.Namespace, "203.0.113.7")).To(Succeed())
}

// Nothing is signed, and the Secret is not overwritten, until it is repaired.
func TestADamagedSecretIsReported(t *testing.T) {
	w := newWorld(t)
	configuration := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	w.create(configuration)
	w.Cleanup(func() { _ = w.Delete(context.Background(), configuration) })
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.operators, Name: names.CertificateAuthoritySecret},
		Data:       map[string][]byte{"20261126T120000Z": []byte("truncated")},
	}
	w.create(secret)
	w.start(clock.RealClock{})
	pod := w.exposedPod()
	request := w.request(pod, names.Signer, nil)
	w.Eventually(w.events).WithArguments("default").Should(ContainElement(And(
		HavePrefix(operatorv1alpha1.ReasonCertificateAuthorityDamaged), ContainSubstring(w.operators+"/"+names.CertificateAuthoritySecret), Not(ContainSubstring("truncated")))))
	w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(request), request)).To(Succeed())
	w.Expect(request.Status.Conditions).To(BeEmpty())
	w.Expect(w.Get(w.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	w.Expect(slices.Collect(maps.Keys(secret.Data))).To(Equal([]string{"20261126T120000Z"}))

	secret.Data = certificate.Roots{certificate.NewRoot(time.Now())}.Encode()
	w.Expect(w.Update(w.Context(), secret)).To(Succeed())
	w.issued(request)
}

// It does not matter who has created or changed it, or which labels it has.
func TestTheConfigMapOfANamespaceIsTheOperators(t *testing.T) {
	w := newWorld(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: names.CertificateAuthorityConfigMap}}
	foreign := cm.DeepCopy()
	foreign.Data = map[string]string{names.CertificateAuthorityKey: "of others", "other": "x"}
	w.create(foreign)
	w.start(clock.RealClock{})
	pod := w.exposedPod()
	c := w.issued(w.request(pod, names.Signer, nil))
	w.Expect(w.verify(c, w.Namespace, "203.0.113.7")).To(Succeed())
	w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)).To(Succeed())
	published := cm.Data
	w.Expect(published).To(HaveLen(1))

	for what, change := range map[string]func(){
		"without its label": func() {
			cm.Labels, cm.OwnerReferences, cm.Immutable, cm.Data = map[string]string{names.LabelManagedBy: "tenant"}, nil, ptr.To(false), map[string]string{names.CertificateAuthorityKey: "of others"}
		},
		"with another key": func() { cm.Data = map[string]string{names.CertificateAuthorityKey: "of others", "other": "x"} },
		"as binary data": func() {
			cm.Data, cm.BinaryData = nil, map[string][]byte{names.CertificateAuthorityKey: []byte("of others")}
		},
	} {
		w.Eventually(func() error {
			w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)).To(Succeed())
			change()
			return w.Update(t.Context(), cm)
		}).Should(Succeed(), what)
		w.Eventually(func(g Gomega) {
			g.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)).To(Succeed())
			g.Expect(cm.Data).To(Equal(published))
			g.Expect(cm.BinaryData).To(BeEmpty())
			g.Expect(cm.Immutable).To(BeNil())
		}).Should(Succeed(), what)
	}

	cm.Data, cm.Immutable = map[string]string{names.CertificateAuthorityKey: "of others"}, ptr.To(true)
	w.Expect(w.Update(t.Context(), cm)).To(Succeed())
	w.Eventually(w.events).WithArguments(w.Namespace).Should(ContainElement(And(HavePrefix(listenersv1alpha1.ReasonForeignConfigMap), ContainSubstring("Delete this ConfigMap"))))
	w.issued(w.request(pod, names.Signer, nil))
	w.Expect(w.Delete(t.Context(), cm)).To(Succeed())
	w.Eventually(w.trusted).WithArguments(w.Namespace).Should(Equal(published[names.CertificateAuthorityKey]))
}
