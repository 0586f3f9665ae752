package certificate

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Leaf describes a certificate of a Pod.
type Leaf struct {
	// PublicKey is the Pod's: of RSA, ECDSA or Ed25519.
	PublicKey crypto.PublicKey
	// Pod is the subject, by which servers may identify clients.
	Pod types.NamespacedName
	// Names are all that the certificate is valid for.
	Names Names
	// Client permits the Pod to identify itself as a client, too.
	Client bool
	// Now is the time of the API server.
	Now time.Time
	// Lifetime is how long the certificate is valid, at most as long as the authority's.
	Lifetime time.Duration
}

// Issued is a certificate.
type Issued struct {
	// Chain is the certificate in PEM, without the authority's, which clients have.
	Chain               []byte
	NotBefore, NotAfter time.Time
}

// Errors of Issue.
var (
	ErrNoNames          = errors.New("there are no addresses for a certificate")
	ErrAuthorityExpired = errors.New("the certificate authority has expired")
)

// maxCommonName is the length of a common name in a subject (RFC 5280, ub-common-name).
const maxCommonName = 64

// Issue signs a certificate.
func (a *Authority) Issue(leaf Leaf) (Issued, error) {
	if leaf.Names.Len() == 0 {
		return Issued{}, ErrNoNames
	}
	notBefore := leaf.Now.UTC().Truncate(time.Second).Add(-backdated)
	notAfter := notBefore.Add(leaf.Lifetime)
	if notAfter.After(a.Certificate.NotAfter) {
		return Issued{}, ErrAuthorityExpired
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{leaf.Pod.Namespace}},
		NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              leaf.Names.DNS,
	}
	if len(leaf.Pod.Name) <= maxCommonName {
		template.Subject.CommonName = leaf.Pod.Name
	}
	for _, ip := range leaf.Names.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	if leaf.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if _, ok := leaf.PublicKey.(*rsa.PublicKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment // TLS 1.2 without a key exchange of its own
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, leaf.PublicKey, a.key)
	if err != nil {
		return Issued{}, fmt.Errorf("signing a certificate for Pod %s: %w", leaf.Pod, err)
	}
	return Issued{Chain: encode(raw), NotBefore: notBefore, NotAfter: notAfter}, nil
}

// List returns the parts of an annotation of a request, which commas separate.
func List(value string) sets.Set[string] {
	parts := sets.New[string]()
	for part := range strings.SplitSeq(value, ",") {
		parts.Insert(strings.TrimSpace(part))
	}
	return parts.Delete("")
}
