// Package certificate issues certificates for the addresses of Pods (RFC 5280). It has no clock, and writes no objects.
//
// It must never put a name into a certificate that the operator has not published for the Pod, and never let a
// certificate outlive the authority that signs it.
package certificate

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// AuthorityLifetime is how long the certificate of an authority is valid.
	AuthorityLifetime = 2 * 365 * 24 * time.Hour
	// backdated is how long before now a certificate becomes valid, because clocks of clients differ. The API server
	// accepts at most five minutes, and its clock may differ, too.
	backdated = 2 * time.Minute
)

// Root is the secret from which the keys and certificates of the authorities of all namespaces are derived, the same
// each time, so that nothing else has to be kept.
type Root struct {
	Seed [sha256.Size]byte
	// Since is when the root was created, in seconds.
	Since time.Time
}

func NewRoot(now time.Time) Root {
	root := Root{Since: now.UTC().Truncate(time.Second)}
	_, _ = rand.Read(root.Seed[:]) // never fails
	return root
}

type Authority struct {
	// Certificate is signed by the authority itself, so that every client accepts it as the one certificate that it
	// trusts: many accept none there that another authority has signed.
	Certificate *x509.Certificate

	key *ecdsa.PrivateKey
}

// Authority returns the authority of a namespace. A namespace that was deleted and created again has another uid, and
// so another authority, because its users may be others.
func (r Root) Authority(namespace string, uid types.UID) (*Authority, error) {
	key, id, err := r.key(namespace, uid)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of the authority of namespace %s: %w", namespace, err)
	}
	template := &x509.Certificate{
		// Names of authorities differ in their keys, so that clients may trust those of several clusters, or earlier
		// ones.
		Subject: pkix.Name{
			Organization: []string{"listener-operator.dev"}, CommonName: namespace,
			SerialNumber: hex.EncodeToString(id[:8]),
		},
		SerialNumber: new(big.Int).SetBytes(append([]byte{1}, id[:15]...)),
		SubjectKeyId: id,
		NotBefore:    r.Since.Add(-backdated), NotAfter: r.Since.Add(AuthorityLifetime),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	// Without random numbers, the signature follows RFC 6979, and is the same each time.
	raw, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	certificate, parsingErr := x509.ParseCertificate(raw)
	if err := cmp.Or(err, parsingErr); err != nil {
		return nil, fmt.Errorf("signing the certificate of the authority of namespace %s: %w", namespace, err)
	}
	return &Authority{Certificate: certificate, key: key}, nil
}

func (a *Authority) PEM() []byte { return encode(a.Certificate.Raw) }

func encode(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// key derives the key of a namespace, as in FIPS 186-5, A.2.1: from 64 bits more than the order of the curve has. id is
// its subject key identifier (RFC 7093, method 1).
func (r Root) key(namespace string, uid types.UID) (key *ecdsa.PrivateKey, id []byte, err error) {
	curve := elliptic.P256()
	material, err := hkdf.Key(sha256.New, r.Seed[:], nil, "listener-operator.dev/address "+namespace+" "+string(uid),
		40)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // by the caller
	}
	d := new(big.Int).SetBytes(material)
	d.Mod(d, new(big.Int).Sub(curve.Params().N, big.NewInt(1)))
	d.Add(d, big.NewInt(1))
	if key, err = ecdsa.ParseRawPrivateKey(curve, d.FillBytes(make([]byte, 32))); err != nil {
		return nil, nil, err //nolint:wrapcheck // by the caller
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	sum := sha256.Sum256(public)
	return key, sum[:20], err //nolint:wrapcheck // by the caller
}

type Leaf struct {
	// PublicKey is the Pod's: of RSA, ECDSA or Ed25519.
	PublicKey crypto.PublicKey
	// Pod is the subject, by which servers may identify clients.
	Pod    types.NamespacedName
	Names  Names
	Client bool
	Now    time.Time
	// Lifetime is how long the certificate is valid, at most as long as the authority's.
	Lifetime time.Duration
}

type Issued struct {
	// Chain is the certificate in PEM, without the authority's, which clients have.
	Chain               []byte
	NotBefore, NotAfter time.Time
}

var (
	ErrNoNames          = errors.New("there are no addresses for a certificate")
	ErrAuthorityExpired = errors.New("the certificate authority has expired")
)

// maxCommonName is the length of a common name in a subject (RFC 5280, ub-common-name).
const maxCommonName = 64

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

type Rotation struct {
	// NotBefore is the time before which no root may have been created. Zero means that only old roots are replaced.
	NotBefore time.Time
	// Overlap is how long clients have to trust a new root before its authorities sign.
	Overlap time.Duration
}

const (
	// DefaultOverlap is the overlap of a rotation that nobody is in a hurry for.
	DefaultOverlap = 30 * 24 * time.Hour
	// rootAge is when a root is replaced. Its authorities are then valid for another year.
	rootAge = AuthorityLifetime / 2
	// LeafLifetime is how long certificates of Pods are valid, unless the Pod asks for less. They are replaced much
	// earlier, so that they remain valid for most of a day while no operator runs.
	LeafLifetime = 24 * time.Hour
	// RefreshAfter is when the kubelet replaces a certificate, within seven minutes: so old its addresses may be.
	RefreshAfter = 15 * time.Minute
)

// Roots are the roots of the operator, the oldest first. The last ones may not sign yet, the first ones no longer.
type Roots []Root

// Next returns the roots at a time: without those that no certificate depends on any more, and with a new one if it is
// time for one. again is when they change next.
func (r Roots) Next(rotation Rotation, now time.Time) (next Roots, again time.Time) {
	next = slices.DeleteFunc(slices.Clone(r), func(root Root) bool { return !now.Before(root.expiry()) })
	for len(next) > 1 && !now.Before(next[1].distrusts(rotation)) {
		next = next[1:]
	}
	if len(next) == 0 || !now.Before(next[len(next)-1].replacedAt(rotation)) {
		next = append(next, NewRoot(now))
	}
	again = next[len(next)-1].replacedAt(rotation)
	for _, root := range next[1:] {
		for _, t := range []time.Time{root.Since.Add(rotation.Overlap), root.distrusts(rotation)} {
			if t.After(now) && t.Before(again) {
				again = t
			}
		}
	}
	return next, again
}

// Signing returns the root whose authorities sign at a time: the newest that clients have had time to trust.
func (r Roots) Signing(rotation Rotation, now time.Time) Root {
	signing := r[0]
	for _, root := range r[1:] {
		if !now.Before(root.Since.Add(rotation.Overlap)) {
			signing = root
		}
	}
	return signing
}

func (r Root) expiry() time.Time { return r.Since.Add(AuthorityLifetime - LeafLifetime) }

func (r Root) replacedAt(rotation Rotation) time.Time {
	if r.Since.Before(rotation.NotBefore.Truncate(time.Second)) {
		return rotation.NotBefore
	}
	return r.Since.Add(rootAge)
}

// distrusts is when the root has signed for so long that its predecessors are no longer trusted: when all their
// certificates have expired, or, in a rotation with a short overlap, when they have been refreshed.
func (r Root) distrusts(rotation Rotation) time.Time {
	return r.Since.Add(rotation.Overlap).Add(min(max(rotation.Overlap, 4*RefreshAfter), LeafLifetime))
}

const timeFormat = "20060102T150405Z"

// Encode returns the data of the Secret that keeps the roots: each seed by the time since which it exists.
func (r Roots) Encode() map[string][]byte {
	data := make(map[string][]byte, len(r))
	for _, root := range r {
		data[root.Since.UTC().Format(timeFormat)] = []byte(base64.StdEncoding.EncodeToString(root.Seed[:]))
	}
	return data
}

// Decode reverses Encode. An error never contains a seed.
func Decode(data map[string][]byte) (Roots, error) {
	var roots Roots
	for key, value := range data {
		since, err := time.Parse(timeFormat, key)
		if err != nil {
			return nil, fmt.Errorf("key %q is not a time like %s", key, timeFormat)
		}
		seed, err := base64.StdEncoding.DecodeString(string(value))
		if err != nil || len(seed) != sha256.Size {
			return nil, fmt.Errorf("the value of key %q is not %d bytes in base64", key, sha256.Size)
		}
		roots = append(roots, Root{Seed: [sha256.Size]byte(seed), Since: since})
	}
	slices.SortFunc(roots, func(a, b Root) int { return a.Since.Compare(b.Since) })
	return roots, nil
}
