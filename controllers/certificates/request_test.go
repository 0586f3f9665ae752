package certificates

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/listener-operator/listener-operator/internal/names"
)

// Only a newer API server accepts its type.
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
		_, err := parse(&certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: stub})
		var denied *verdict
		if !errors.As(err, &denied) || denied.reason != certificatesv1.PodCertificateRequestConditionUnsupportedKeyType {
			t.Errorf("%s: %+v", name, denied)
		}
	}
	if _, denied := parse(&certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: known}); denied != nil {
		t.Errorf("a key of a known type is denied: %+v", denied)
	}
}

// TestAnAnnotationWithoutEndIsDenied before anything reads it. One with the longest names of as many volumes as a
// certificate can have names is not too long.
func TestAnAnnotationWithoutEndIsDenied(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	volumes, want := []string{" ", "last ", "last"}, sets.New("last")
	for n := range 254 {
		volumes = append(volumes, fmt.Sprintf("v%062d", n))
		want.Insert(fmt.Sprintf("v%062d", n))
	}
	for name, tc := range map[string]struct {
		volumes string
		denied  bool
	}{
		"as many as useful": {strings.Join(volumes, ","), false},
		"too many":          {strings.Repeat("a,", 32_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(&certificatesv1.PodCertificateRequestSpec{
				StubPKCS10Request: stub, UnverifiedUserAnnotations: map[string]string{names.AnnotationCertificateVolumes: tc.volumes},
			})
			var denied *verdict
			if tc.denied != errors.As(err, &denied) || !tc.denied && !o.volumes.Equal(want) {
				t.Errorf("%d volumes, denied: %+v", len(o.volumes), denied)
			}
			if tc.denied && (denied.reason != certificatesv1.PodCertificateRequestConditionInvalidUserConfig || !strings.Contains(denied.message, "longer than 16384 bytes")) {
				t.Errorf("denied: %+v", denied)
			}
		})
	}
}
