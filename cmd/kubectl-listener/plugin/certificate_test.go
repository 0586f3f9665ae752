package plugin_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// secured is a Pod that mounts a certificate, with the authority of its namespace.
type secured struct {
	*world
	authority *certificate.Authority
	key       *ecdsa.PrivateKey
	pod       *corev1.Pod
}

// newSecured creates a Pod that runs, and mounts the claim and a certificate.
func newSecured(t *testing.T, w *world) *secured {
	t.Helper()
	s := newUnpublished(t, w)
	w.create(t, w.newPodListeners(s.pod, addresses()))
	return s
}

// newUnpublished creates such a Pod without PodListeners.
func newUnpublished(t *testing.T, w *world) *secured {
	t.Helper()
	authority, err := certificate.NewRoot(time.Now()).Authority(w.namespace, "uid")
	check.Must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	s := &secured{world: w, authority: authority, key: key, pod: w.newPod("secured", w.claim.Name)}
	s.pod.Spec.NodeName = w.node.Name
	s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: names.Signer, KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem"},
		}}},
	}})
	w.create(t, s.pod)
	s.pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	w.updateStatus(t, s.pod)
	return s
}

// trust publishes the authority of the namespace as the operator does, and, where tenants can write, one of their own.
func (s *secured) trust(t *testing.T) {
	t.Helper()
	s.create(t, &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: names.TrustBundlePrefix + s.namespace},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: names.Signer, TrustBundle: string(s.authority.PEM())},
	})
	s.create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: names.CertificateAuthorityConfigMap},
		Data: map[string]string{names.CertificateAuthorityKey: string(pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: s.selfSigned(t, "127.0.0.1").Certificate[0],
		}))},
	})
}

// request creates a request for a certificate of the Pod, with this status.
func (s *secured) request(t *testing.T, status certificatesv1.PodCertificateRequestStatus) *certificatesv1.PodCertificateRequest {
	t.Helper()
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, s.key)
	check.Must(t, err)
	r := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "request"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: names.Signer, PodName: s.pod.Name, PodUID: s.pod.UID, ServiceAccountName: "default", ServiceAccountUID: "uid",
			NodeName: "node", NodeUID: "uid", MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub,
		},
	}
	s.create(t, r)
	if len(status.Conditions) > 0 {
		r.Status = status
		s.updateStatus(t, r)
	}
	return r
}

// issue issues a certificate for these addresses.
func (s *secured) issue(t *testing.T, now time.Time, all ...string) certificate.Issued {
	t.Helper()
	var published []listenersv1alpha1.IngressAddress
	for _, a := range all {
		published = append(published, listenersv1alpha1.IngressAddress{Address: a})
	}
	issued, err := s.authority.Issue(certificate.Leaf{
		PublicKey: s.key.Public(), Pod: client.ObjectKeyFromObject(s.pod), Names: certificate.NamesOf(published), Now: now, Lifetime: certificate.LeafLifetime,
	})
	check.Must(t, err)
	return issued
}

func statusOf(issued certificate.Issued) certificatesv1.PodCertificateRequestStatus {
	return certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{newCondition(certificatesv1.PodCertificateRequestConditionTypeIssued, metav1.ConditionTrue, "Issued")},
		CertificateChain: string(issued.Chain), NotBefore: ptr.To(metav1.NewTime(issued.NotBefore)), NotAfter: ptr.To(metav1.NewTime(issued.NotAfter)),
		BeginRefreshAt: ptr.To(metav1.NewTime(issued.NotBefore.Add(certificate.RefreshAfter))),
	}
}

// It follows the certificates that the Pod mounts.
func TestWhyFollowsCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		request func(*testing.T, *secured)
		state   string
		texts   []string
	}{
		"issued": {func(t *testing.T, s *secured) { s.request(t, statusOf(s.issue(t, time.Now(), "203.0.113.7"))) }, "OK", []string{"is valid until"}},
		"for an earlier address": {func(t *testing.T, s *secured) { s.request(t, statusOf(s.issue(t, time.Now(), "203.0.113.6"))) }, "Warning",
			[]string{"is not for its address 203.0.113.7, which is newer"}},
		"denied": {func(t *testing.T, s *secured) {
			s.request(t, certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{
				newCondition(certificatesv1.PodCertificateRequestConditionTypeDenied, metav1.ConditionTrue, "InvalidUserConfig"),
			}})
		}, "Failed", []string{"denied: message of InvalidUserConfig", "delete the Pod"}},
		"waiting": {func(t *testing.T, s *secured) {
			s.request(t, certificatesv1.PodCertificateRequestStatus{})
			s.event(t, s.pod, listenersv1alpha1.ReasonCertificateWaiting, "volume x has no address yet")
		}, "Failed", []string{"CertificateWaiting", "volume x has no address yet"}},
		"deleted by Kubernetes": {func(*testing.T, *secured) {}, "OK", []string{"none is left"}},
		"never requested": {func(t *testing.T, s *secured) {
			s.pod.Status.Phase = corev1.PodPending
			s.updateStatus(t, s.pod)
		}, "Failed", []string{"has requested no certificate for Pod secured"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSecured(t, newWorld(t))
			tc.request(t, s)
			s.expect(t, "secured", "PodCertificateRequest", tc.state, tc.texts...)
		})
	}
}

// expect expects of kubectl listener why that it finds one object of a kind, in this state, and says these texts of it.
func (w *world) expect(t *testing.T, pod, kind, state string, texts ...string) {
	t.Helper()
	var found []string
	for _, f := range whyOf(t, w.namespace, pod).Findings {
		if f.Kind == kind {
			found = append(found, f.State+" "+f.Reason+" "+f.Message+" "+f.Remedy)
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], state) {
		t.Fatalf("findings %q, want one that is %s", found, state)
	}
	for _, text := range texts {
		if !strings.Contains(found[0], text) {
			t.Errorf("%q does not contain %q", found[0], text)
		}
	}
}

// serve serves TLS with a certificate, and returns the port.
func serve(t *testing.T, certificate tls.Certificate) int32 {
	t.Helper()
	server, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	check.Must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = connection.(*tls.Conn).HandshakeContext(t.Context())
				_ = connection.Close()
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(server.Addr().String())
	number, err := strconv.ParseInt(port, 10, 32)
	check.Must(t, err)
	return int32(number)
}

func (s *secured) pair(issued certificate.Issued) tls.Certificate {
	block, _ := pem.Decode(issued.Chain)
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: s.key}
}

// selfSigned returns a certificate for an address that no authority has signed.
func (s *secured) selfSigned(t *testing.T, address string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, IPAddresses: []net.IP{net.ParseIP(address)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, s.key.Public(), s.key)
	check.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: s.key}
}

// It does so like a client that trusts the authority of the namespace, or the authority in a file.
func TestConnectVerifiesCertificates(t *testing.T) {
	w := newWorld(t)
	s := newSecured(t, w)
	plain, _ := listen(t)
	publish := func(port int32) { w.publish(t, at("127.0.0.1", map[string]int32{"http": port})) }
	connect := func(args ...string) (string, error) {
		return run(t, apiserver.Config(t), append([]string{"connect", "web-0", "-n", w.namespace, "-o", "json", "--timeout", "10s"}, args...)...)
	}
	if out, err := run(t, apiserver.Config(t), "ca", "-n", w.namespace); err == nil || !strings.Contains(err.Error(), "has no certificate authority") {
		t.Errorf("ca: %q, %v", out, err)
	}
	if _, err := connect("--tls"); err == nil || !strings.Contains(err.Error(), "or use --ca-file for the authority of the servers") {
		t.Errorf("without an authority: %v", err)
	}
	s.trust(t)
	if out, err := run(t, apiserver.Config(t), "ca", "-n", w.namespace); err != nil || out != string(s.authority.PEM()) {
		t.Errorf("ca: %q, %v", out, err)
	}
	config := rest.CopyConfig(apiserver.Config(t))
	config.Impersonate.UserName = "tenant"
	if out, err := run(t, config, "ca", "-n", w.namespace); err == nil || out != "" || !strings.Contains(err.Error(), "ask an administrator for the output of kubectl listener ca --namespace "+w.namespace) {
		t.Errorf("ca of a user who may not read it: %q, %v", out, err)
	}
	for name, tc := range map[string]struct {
		port  int32
		state string
		texts []string
	}{
		"right":                {serve(t, s.pair(s.issue(t, time.Now(), "127.0.0.1"))), "OK", []string{"CN=secured,O=" + w.namespace, "valid until"}},
		"for another address":  {serve(t, s.pair(s.issue(t, time.Now(), "203.0.113.7"))), "Failed", []string{"is not for this address, but for 203.0.113.7", "restart the Pod"}},
		"expired":              {serve(t, s.pair(s.issue(t, time.Now().Add(-25*time.Hour), "127.0.0.1"))), "Failed", []string{"the certificate is valid from", "read its certificate again"}},
		"of another authority": {serve(t, s.selfSigned(t, "127.0.0.1")), "Failed", []string{"is signed by CN=stranger, which is not trusted", "--ca-file"}},
	} {
		publish(tc.port)
		out, err := connect("--tls")
		f := decode(t, out, err).Findings
		if len(f) != 1 || f[0].State != tc.state {
			t.Errorf("%s: findings %+v, want one that is %s", name, f, tc.state)
			continue
		}
		for _, text := range tc.texts {
			if !strings.Contains(f[0].Message+" "+f[0].Remedy, text) {
				t.Errorf("%s: %q, %q do not contain %q", name, f[0].Message, f[0].Remedy, text)
			}
		}
	}
	publish(plain)
	out, err := connect("--tls", "--timeout", "100ms")
	if p := decode(t, out, err).Problem; p == nil || p.Kind != "Address" {
		t.Errorf("a server without TLS: %+v", p)
	}

	stranger := s.selfSigned(t, "127.0.0.1")
	publish(serve(t, stranger))
	file := filepath.Join(t.TempDir(), "ca.crt")
	check.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger.Certificate[0]}), 0o600))
	out, err = connect("--ca-file", file)
	if p := decode(t, out, err).Problem; p != nil {
		t.Errorf("with the authority of a file: %+v", p)
	}
	if _, err := connect("--ca-file", os.DevNull); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("with an empty file: %v", err)
	}
}
