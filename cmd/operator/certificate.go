package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/listener-operator/listener-operator/internal/names"
)

// metricsCertificate is what metrics are served with: the pair in a directory, as soon as there is one and as it is
// then, or else one that the operator made for itself, which nobody can verify.
type metricsCertificate struct {
	dir string
	own tls.Certificate
}

// newMetricsCertificate takes the directory of a kubernetes.io/tls Secret that need not exist, or "" for none, and the
// operator's namespace.
func newMetricsCertificate(dir, namespace string) (*metricsCertificate, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(names.MetricsService+"."+namespace+".svc", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate to serve metrics with: %w", err)
	}
	own, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate to serve metrics with: %w", err)
	}
	return &metricsCertificate{dir: dir, own: own}, nil
}

// apply makes a server serve with it.
func (m *metricsCertificate) apply(config *tls.Config) {
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.current() }
}

// current reads the pair for each new connection, of which a Prometheus makes one in a long while.
func (m *metricsCertificate) current() (*tls.Certificate, error) {
	if m.dir == "" {
		return &m.own, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(m.dir, corev1.TLSCertKey), filepath.Join(m.dir, corev1.TLSPrivateKeyKey))
	if errors.Is(err, fs.ErrNotExist) {
		return &m.own, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate to serve metrics with: %w", err)
	}
	return &pair, nil
}
