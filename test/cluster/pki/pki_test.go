package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// parse returns the certificate of a pair, after checking that its key fits.
func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	check.Must(t, err)
	return cert
}

// verify checks a certificate against an authority.
func verify(t *testing.T, cert *x509.Certificate, authority *Authority, name string, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, authority.Pair))
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestServerCertificateIsValidForItsNamesOnly(t *testing.T) {
	authority, err := NewAuthority("test")
	check.Must(t, err)
	pair, err := authority.Issue(Request{CommonName: "server", DNSNames: []string{"server.example"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}})
	check.Must(t, err)
	cert := parse(t, pair)
	for name, want := range map[string]bool{"server.example": true, "10.0.0.1": true, "other.example": false, "10.0.0.2": false} {
		if err := verify(t, cert, authority, name, x509.ExtKeyUsageServerAuth); (err == nil) != want {
			t.Errorf("verifying as %s: %v", name, err)
		}
	}
}

func TestClientCertificateIsNoServerCertificate(t *testing.T) {
	authority, err := NewAuthority("test")
	check.Must(t, err)
	pair, err := authority.Issue(Request{CommonName: "user", Organizations: []string{"group"}})
	check.Must(t, err)
	cert := parse(t, pair)
	if cert.Subject.CommonName != "user" || cert.Subject.Organization[0] != "group" {
		t.Errorf("subject is %s", cert.Subject)
	}
	if err := verify(t, cert, authority, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if err := verify(t, cert, authority, "", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("a client's certificate is accepted from a server")
	}
}

func TestAuthorityThatWasLoadedSignsForTheSameRoot(t *testing.T) {
	authority, err := NewAuthority("test")
	check.Must(t, err)
	dir := t.TempDir()
	check.Must(t, authority.Write(dir, "ca"))
	loaded, err := LoadAuthority(dir, "ca")
	check.Must(t, err)
	pair, err := loaded.Issue(Request{CommonName: "user"})
	check.Must(t, err)
	if err := verify(t, parse(t, pair), authority, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if _, err := LoadAuthority(dir, "absent"); err == nil {
		t.Error("an absent authority was loaded")
	}
}
