//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// certificateVolume is a volume for which the kubelet requests a certificate for the addresses of its Pod, with what
// others of the namespace have to trust.
func (s *scenario) certificateVolume() corev1.Volume {
	return corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{PodCertificate: &corev1.PodCertificateProjection{SignerName: names.Signer, KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem"}},
		{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
			Name: ptr.To(names.TrustBundlePrefix + s.namespace), Path: names.CertificateAuthorityKey,
		}},
	}}}}
}

// withCertificate returns a Pod that serves HTTPS at port "https" with a certificate for its addresses.
func (s *scenario) withCertificate(name, class string) *corev1.Pod {
	p := podWith(name, objects.EphemeralVolume("listener", byClass(class)), s.certificateVolume())
	server := &p.Spec.Containers[0]
	server.Ports = append(server.Ports, corev1.ContainerPort{Name: "https", ContainerPort: 8443, Protocol: corev1.ProtocolTCP})
	return p
}

// trust returns what clients outside trust of a namespace.
func (s *scenario) trust() *tls.Config {
	s.Helper()
	roots := x509.NewCertPool()
	published := mustGet(s, &corev1.ConfigMap{}, s.key(names.CertificateAuthorityConfigMap))
	if !roots.AppendCertsFromPEM([]byte(published.Data[names.CertificateAuthorityKey])) {
		s.Fatalf("ConfigMap %s has no certificate: %v", published.Name, published.Data)
	}
	return &tls.Config{RootCAs: roots}
}

// whoami asks over TLS who serves an address, and verifies that it may.
func whoami(ctx context.Context, trust *tls.Config, a listenersv1alpha1.IngressAddress) (string, error) {
	return fetch(ctx, clientOf("", 30*time.Second, trust), "https://"+hostPort(a, "https")+"/whoami")
}

// awaitServing waits until a Pod serves an address over TLS.
func (s *scenario) awaitServing(trust *tls.Config, a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		got, err := whoami(ctx, trust, a)
		if err == nil && got != want {
			err = fmt.Errorf("%s serves the address of %s", got, want)
		}
		return err
	})
}

// It is for no others. A client outside that trusts the authority of the namespace verifies each, and a client that
// trusts the authority of another namespace rejects it.
func TestAPodHasACertificateForItsAddresses(t *testing.T) {
	s, others := newScenario(t), newScenario(t)
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{
		"outside": unpinned(), "inside": {ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	})
	own := s.withCertificate("own", classes["outside"].Name)
	own.Spec.Volumes = append(own.Spec.Volumes, objects.EphemeralVolume("internal", byClass(classes["inside"].Name)))
	s.create(own)
	others.create(others.withCertificate("other", classes["outside"].Name))
	_, a := s.awaitReachable("own")
	other, b := others.awaitReachable("other")

	s.awaitServing(s.trust(), a, "own")
	others.awaitServing(others.trust(), b, "other")
	var unknown x509.UnknownAuthorityError
	if _, err := whoami(t.Context(), s.trust(), b); !errors.As(err, &unknown) {
		t.Errorf("with the authority of another namespace: %v", err)
	}
	asOther := s.trust()
	asOther.ServerName = "203.0.113.250"
	var hostname x509.HostnameError
	if _, err := whoami(t.Context(), asOther, a); !errors.As(err, &hostname) {
		t.Errorf("at another address: %v", err)
	}
	inside := s.trust()
	inside.ServerName = "own-internal." + s.namespace + ".svc.cluster.local"
	s.awaitServing(inside, a, "own")

	files := others.readFiles(b)
	published := mustGet(others, &corev1.ConfigMap{}, others.key(names.CertificateAuthorityConfigMap))
	if got := files["tls/"+names.CertificateAuthorityKey]; got != published.Data[names.CertificateAuthorityKey] {
		t.Errorf("Pod %s trusts\n%s\nof the ClusterTrustBundle, and ConfigMap %s has\n%s", other.Name, got, published.Name, published.Data[names.CertificateAuthorityKey])
	}
}

// Pods that run keep theirs while no operator runs, a new Pod waits for it, and the authority is the same afterwards.
func TestCertificatesOutliveTheOperator(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(s.withCertificate("before", class.Name))
	_, before := s.awaitReachable("before")
	trust := s.trust()
	s.scaleOperator(0)
	s.create(s.withCertificate("meanwhile", class.Name))
	if got, err := whoami(t.Context(), trust, before); err != nil || got != "before" {
		t.Errorf("%q, %v", got, err)
	}
	s.scaleOperator(1)
	_, meanwhile := s.awaitReachable("meanwhile")
	for name, a := range map[string]listenersv1alpha1.IngressAddress{"before": before, "meanwhile": meanwhile} {
		s.awaitServing(trust, a, name)
	}
}

// They do not have the time of the operator's node, whose clock is an hour off: the API server would reject them.
func TestCertificatesHaveTheTimeOfTheAPIServer(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	wrong := nodeNumber(s.operatorPod().Spec.NodeName)
	others := slices.DeleteFunc(testbed.Nodes(), func(node int) bool { return node == wrong })
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		restore, err := testbed.JumpClock(s.ctx, wrong, offset)
		s.must(err)
		s.Cleanup(func() { _ = restore(context.Background()) })
		pod := s.withCertificate(name, class.Name)
		pod.Spec.NodeSelector = onNode(testbed.NodeName(others[0]))
		s.create(pod)
		_, a := s.awaitReachable(name)
		s.awaitServing(s.trust(), a, name)
		s.must(restore(s.ctx))
	}
}

// Its request for a certificate is denied, and the kubelet and kubectl listener say why.
func TestAPodWithoutAddressesIsToldSo(t *testing.T) {
	s := newScenario(t)
	s.create(podWith("bare", s.certificateVolume()))
	s.awaitEvent("Pod", "bare", "FailedMount", "NoListenerVolumes")
	out, status := s.plugin()("listener", "why", "bare", "--namespace", s.namespace)
	if status != 1 {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"NoListenerVolumes", "add a volume with a claim of the StorageClass " + names.Driver} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl listener why does not say %q:\n%s", want, out)
		}
	}
}
