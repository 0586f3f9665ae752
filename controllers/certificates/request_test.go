package certificates

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// TestAKeyOfTheFutureIsDenied, such as one of a type that a newer API server accepts.
func TestAKeyOfTheFutureIsDenied(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	known, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	const ed25519ID, unknownID = "\x06\x03\x2b\x65\x70", "\x06\x03\x2b\x65\x7f" // 1.3.101.112 and 1.3.101.127
	unknown := bytes.ReplaceAll(known, []byte(ed25519ID), []byte(unknownID))
	for name, stub := range map[string][]byte{"of an unknown type": unknown, "truncated": known[:40], "none": nil} {
		_, denied := parse(&certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: stub})
		if denied == nil || denied.reason != certificatesv1.PodCertificateRequestConditionUnsupportedKeyType {
			t.Errorf("%s: %+v", name, denied)
		}
	}
	if _, denied := parse(&certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: known}); denied != nil {
		t.Errorf("a key of a known type is denied: %+v", denied)
	}
}
