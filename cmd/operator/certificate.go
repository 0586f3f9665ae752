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

// metricsCertificate is the serving certificate for metrics: the current one in a directory, or a self-signed one,
// which clients cannot verify, while the directory has none.
type metricsCertificate struct {
	dir        string
	selfSigned tls.Certificate
}

// newMetricsCertificate returns the certificate in a directory, which is "" or where a kubernetes.io/tls Secret is
// mounted. The directory and its files need not exist. namespace is the operator's.
func newMetricsCertificate(dir, namespace string) (*metricsCertificate, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(names.MetricsService+"."+namespace+".svc", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("generating a self-signed certificate for metrics: %w", err)
	}
	m := &metricsCertificate{dir: dir}
	if m.selfSigned, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, fmt.Errorf("generating a self-signed certificate for metrics: %w", err)
	}
	return m, nil
}

// get implements tls.Config.GetCertificate. It reads the files for each new connection; Prometheus reuses its own.
func (m *metricsCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if m.dir == "" {
		return &m.selfSigned, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(m.dir, corev1.TLSCertKey),
		filepath.Join(m.dir, corev1.TLSPrivateKeyKey))
	if errors.Is(err, fs.ErrNotExist) {
		return &m.selfSigned, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate for metrics: %w", err)
	}
	return &pair, nil
}
