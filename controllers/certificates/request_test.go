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
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// Only a newer API server accepts a key of an unknown type, and an annotation may
// have no end. One with the longest names of as many volumes as a certificate can have names is not too long.
func TestARequestIsDeniedBeforeAnythingReadsIt(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	known, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	check.Must(t, err)
	const ed25519ID, unknownID = "\x06\x03\x2b\x65\x70", "\x06\x03\x2b\x65\x7f" // 1.3.101.112 and 1.3.101.127
	unknown := bytes.ReplaceAll(known, []byte(ed25519ID), []byte(unknownID))
	volumes, most := []string{" ", "last ", "last"}, sets.New("last")
	for n := range 254 {
		volumes = append(volumes, fmt.Sprintf("v%062d", n))
		most.Insert(fmt.Sprintf("v%062d", n))
	}
	const unsupported, invalid = certificatesv1.PodCertificateRequestConditionUnsupportedKeyType, certificatesv1.PodCertificateRequestConditionInvalidUserConfig
	for name, tc := range map[string]struct {
		stub         []byte
		volumes      string
		reason, text string // if it is denied
		want         sets.Set[string]
	}{
		"a key of an unknown type":  {stub: unknown, reason: unsupported},
		"a truncated key":           {stub: known[:40], reason: unsupported},
		"no key":                    {reason: unsupported},
		"as many volumes as useful": {stub: known, volumes: strings.Join(volumes, ","), want: most},
		"too many volumes":          {stub: known, volumes: strings.Repeat("a,", 32_000), reason: invalid, text: "longer than 16384 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &certificatesv1.PodCertificateRequestSpec{StubPKCS10Request: tc.stub}
			if tc.volumes != "" {
				spec.UnverifiedUserAnnotations = map[string]string{names.AnnotationCertificateVolumes: tc.volumes}
			}
			o, err := parse(spec)
			denied := &verdict{}
			if errors.As(err, &denied) != (tc.reason != "") || denied.reason != tc.reason || !strings.Contains(denied.message, tc.text) {
				t.Errorf("denied: %+v", denied)
			}
			if tc.reason == "" && (err != nil || !o.volumes.Equal(tc.want)) {
				t.Errorf("error %v, %d volumes", err, len(o.volumes))
			}
		})
	}
}
