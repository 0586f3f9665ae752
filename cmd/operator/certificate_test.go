package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// The Secret may be created after the operator has started, be updated, and be deleted.
func TestMetricsAreServedWithTheCurrentCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secret")
	certificate, err := newMetricsCertificate(dir, "operators")
	check.Must(t, err)
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate.get}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	check.Must(t, err)
	defer func() { _ = listener.Close() }()
	go func() { _ = http.Serve(listener, http.NotFoundHandler()) }() //nolint:gosec // ends with the test
	served := func() (*x509.Certificate, error) {
		connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // reads the certificate
		if err != nil {
			return nil, err
		}
		defer func() { _ = connection.Close() }()
		return connection.ConnectionState().PeerCertificates[0], nil
	}
	mustServe := func(host string) {
		t.Helper()
		got, err := served()
		check.Must(t, err)
		if err := got.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	write := func(host string) {
		t.Helper()
		pair, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		check.Must(t, err)
		for name, data := range map[string][]byte{"tls.crt": pair, "tls.key": key} {
			check.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
	}

	mustServe("listener-operator-metrics.operators.svc")
	check.Must(t, os.Mkdir(dir, 0o700))
	mustServe("listener-operator-metrics.operators.svc")
	write("first.example.com")
	mustServe("first.example.com")
	write("second.example.com")
	mustServe("second.example.com")
	check.Must(t, os.WriteFile(filepath.Join(dir, "tls.key"), []byte("broken"), 0o600))
	if got, err := served(); err == nil {
		t.Errorf("with a broken key, %v is served", got.DNSNames)
	}
	check.Must(t, os.RemoveAll(dir))
	mustServe("listener-operator-metrics.operators.svc")
}
