// Package pki creates the certificates and keys of a test cluster. They must not be used for anything else.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Pair is a certificate and its private key, both as PEM.
type Pair struct {
	Cert, Key []byte
}

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  crypto.Signer
}

// Request describes a certificate.
type Request struct {
	// CommonName is the user name of a client.
	CommonName string
	// Organizations are the groups of a client.
	Organizations []string
	// DNSNames and IPs are the names of a server. A certificate without them is for clients only.
	DNSNames []string
	IPs      []net.IP
}

// NewAuthority creates a self-signed authority.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: commonName}, key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority's certificate: %w", err)
	}
	return newAuthority(cert, key)
}

// LoadAuthority returns the authority that Pair.Write wrote to dir under the given name.
func LoadAuthority(dir, name string) (*Authority, error) {
	certs, err := certutil.CertsFromFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	key, err := keyutil.PrivateKeyFromFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority's key: %w", err)
	}
	return newAuthority(certs[0], key.(crypto.Signer)) // as every private key
}

// Issue creates a key and signs a certificate for it. The certificate is valid as long as the authority's.
func (a *Authority) Issue(request Request) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, fmt.Errorf("choosing a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: request.CommonName, Organization: request.Organizations},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:     request.DNSNames,
		IPAddresses:  request.IPs,
	}
	if len(request.DNSNames)+len(request.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate for %s: %w", request.CommonName, err)
	}
	return encode(der, key)
}

// Write writes the pair to dir as NAME.crt and NAME.key.
func (p Pair) Write(dir, name string) error {
	if err := certutil.WriteCert(filepath.Join(dir, name+".crt"), p.Cert); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	if err := keyutil.WriteKey(filepath.Join(dir, name+".key"), p.Key); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	return nil
}

// NewSigningKey returns a private key and its public key as PEM, to sign and verify ServiceAccount tokens.
func NewSigningKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	private, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the signing key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der}), nil
}

// newKey creates a private key.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// newAuthority returns the authority with the given certificate and key.
func newAuthority(cert *x509.Certificate, key crypto.Signer) (*Authority, error) {
	pair, err := encode(cert.Raw, key)
	if err != nil {
		return nil, err
	}
	return &Authority{Pair: pair, cert: cert, key: key}, nil
}

// encode returns a certificate and its key as PEM.
func encode(der []byte, key crypto.PrivateKey) (Pair, error) {
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), Key: encoded}, nil
}
