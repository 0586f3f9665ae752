package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
)

// The Secret may be created after the operator has started, be updated, and be deleted.
func TestMetricsAreServedWithTheCurrentCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secret")
	certificate, err := newMetricsCertificate(dir, "operators")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate.get}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if err := got.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	write := func(host string) {
		t.Helper()
		pair, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"tls.crt": pair, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	mustServe("listener-operator-metrics.operators.svc")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustServe("listener-operator-metrics.operators.svc")
	write("first.example.com")
	mustServe("first.example.com")
	write("second.example.com")
	mustServe("second.example.com")
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := served(); err == nil {
		t.Errorf("with a broken key, %v is served", got.DNSNames)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	mustServe("listener-operator-metrics.operators.svc")
}
