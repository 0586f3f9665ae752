//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

var withRenewals = flag.Bool("renewals", false, "wait until the kubelet has renewed certificates, as make test-renewals does; up to an hour")

// A client outside connects each second, and verifies every certificate, while an address changes and all authorities
// are replaced, as after a leak. It reads what to trust once a minute. In the end the certificates are those of the new
// authority, and for the new address.
func TestCertificatesAreRenewed(t *testing.T) {
	if !*withRenewals {
		t.Skip("needs the flag -renewals, because the kubelet renews certificates after a quarter of an hour")
	}
	s := newScenario(t)
	class := s.createClass(loadBalanced())
	const before, after = "203.0.113.40", "203.0.113.41" // nobody routes them: the client connects to the node port
	s.create(s.withCertificate("web", class.Name))
	service := mustAwait(s, &corev1.Service{}, s.key("web-listener"), func(service *corev1.Service) bool { return service.Spec.Type == corev1.ServiceTypeLoadBalancer })
	s.assignAddress(service, before)
	pod := s.awaitReady("web")
	address := net.JoinHostPort(testbed.NodeIP(nodeOf(pod)), strconv.Itoa(int(nodePort(service, "https"))))

	ctx, cancel := context.WithTimeout(s.ctx, time.Hour)
	defer cancel()
	var seen handshake
	s.eventually(func(ctx context.Context) error {
		seen = s.handshake(ctx, address, before, s.trust())
		return seen.err
	})
	s.replaceAuthorities()
	s.assignAddress(service, after)

	trust, trusted, handshakes := s.trust(), time.Now(), 0
	known := before
	for first := seen.authority; seen.authority == first || known != after; {
		if err := waitASecond(ctx); err != nil {
			t.Fatalf("after %d handshakes, the certificate is %+v", handshakes, seen)
		}
		if time.Since(trusted) > time.Minute {
			trust, trusted = s.trust(), time.Now()
		}
		if s.handshake(ctx, address, after, trust).err == nil {
			known = after
		}
		seen = s.handshake(ctx, address, known, trust)
		handshakes++
		if seen.err != nil {
			t.Errorf("handshake %d for %s: %v", handshakes, known, seen.err)
		}
	}
	t.Logf("verified %d connections", handshakes)
}

func waitASecond(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

// replaceAuthorities replaces the authorities of all namespaces in the shortest time.
func (s *scenario) replaceAuthorities() {
	s.Helper()
	before := mustGet(s, &corev1.ConfigMap{}, s.key(names.CertificateAuthorityConfigMap))
	configuration := s.configuration()
	now := metav1.Now()
	s.patch(configuration, func() {
		configuration.Spec.CertificateAuthorities = operatorv1alpha1.CertificateAuthoritiesSpec{NotBefore: &now, Overlap: metav1.Duration{Duration: 10 * time.Minute}}
	})
	mustAwait(s, &corev1.ConfigMap{}, s.key(names.CertificateAuthorityConfigMap), func(c *corev1.ConfigMap) bool {
		return len(c.Data[names.CertificateAuthorityKey]) > len(before.Data[names.CertificateAuthorityKey])
	})
}

// handshake is what a client sees.
type handshake struct {
	authority string
	err       error
}

// handshake connects to an endpoint, and verifies that it may serve an address.
func (s *scenario) handshake(ctx context.Context, endpoint, address string, trust *tls.Config) handshake {
	trust = trust.Clone()
	trust.ServerName = address
	connection, err := beginTLS(ctx, endpoint, trust)
	if err != nil {
		return handshake{err: err}
	}
	defer func() { _ = connection.Close() }()
	return handshake{authority: authorityOf(connection.ConnectionState().PeerCertificates[0])}
}

// beginTLS connects from outside the cluster, and verifies the certificate of the server.
func beginTLS(ctx context.Context, endpoint string, trust *tls.Config) (*tls.Conn, error) {
	connection, err := testbed.ClientDial(ctx, "tcp", endpoint)
	if err != nil {
		return nil, err
	}
	session := tls.Client(connection, trust)
	if err := session.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil, err
	}
	return session, nil
}

func authorityOf(c *x509.Certificate) string { return fmt.Sprintf("%x", c.AuthorityKeyId) }
