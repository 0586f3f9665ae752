package certificate_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T, root certificate.Root, namespace string, uid types.UID) *certificate.Authority {
	t.Helper()
	a, err := root.Authority(namespace, uid)
	check.Must(t, err)
	return a
}

// Each is the same whenever it is made.
func TestAuthoritiesNeedNoStorage(t *testing.T) {
	root := certificate.NewRoot(now)
	restored, err := certificate.Decode(certificate.Roots{root}.Encode())
	check.Must(t, err)
	first := authority(t, root, "kafka", "uid-1")
	if again := authority(t, restored[0], "kafka", "uid-1"); !bytes.Equal(again.PEM(), first.PEM()) {
		t.Error("the second authority of a namespace has another certificate")
	}
	for name, other := range map[string]*certificate.Authority{
		"of another namespace":                   authority(t, root, "redis", "uid-1"),
		"of a namespace that was created again":  authority(t, root, "kafka", "uid-2"),
		"of another root":                        authority(t, certificate.NewRoot(now), "kafka", "uid-1"),
		"of the same root at another time":       authority(t, certificate.Root{Seed: root.Seed, Since: now.Add(time.Hour)}, "kafka", "uid-3"),
		"of a namespace and uid of the same sum": authority(t, root, "kafk", "auid-1"),
	} {
		if bytes.Equal(other.Certificate.RawSubject, first.Certificate.RawSubject) {
			t.Errorf("the authority %s has the same name", name)
		}
		if first.Certificate.PublicKey.(*ecdsa.PublicKey).Equal(other.Certificate.PublicKey) {
			t.Errorf("the authority %s has the same key", name)
		}
	}
}

// keys are of all types that the API server accepts.
func keys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	all := map[string]crypto.Signer{}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		check.Must(t, err)
		all["ECDSA "+curve.Params().Name] = key
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 3072)
	check.Must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	all["RSA 3072"], all["Ed25519"] = rsaKey, edKey
	return all
}

func parse(t *testing.T, chain []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(chain)
	if block == nil || len(rest) > 0 {
		t.Fatalf("want one certificate: %s", chain)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	check.Must(t, err)
	return c
}

func leafOf(key crypto.Signer, addresses ...string) certificate.Leaf {
	var all []listenersv1alpha1.IngressAddress
	for _, a := range addresses {
		all = append(all, listenersv1alpha1.IngressAddress{Address: a})
	}
	return certificate.Leaf{
		PublicKey: key.Public(), Pod: types.NamespacedName{Namespace: "kafka", Name: "broker-0"},
		Names: certificate.NamesOf(all), Now: now, Lifetime: certificate.LeafLifetime,
	}
}

// They verify the addresses of a certificate for a key of each type, and no others.
func TestClientsVerifyTheAddresses(t *testing.T) {
	root := certificate.NewRoot(now)
	a := authority(t, root, "kafka", "uid")
	trusted, foreign := x509.NewCertPool(), x509.NewCertPool()
	trusted.AddCert(a.Certificate)
	foreign.AddCert(authority(t, root, "redis", "uid").Certificate)
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			issued, err := a.Issue(leafOf(key, "203.0.113.7", "2001:db8::1", "Kafka.Example.com", "203.0.113.7"))
			check.Must(t, err)
			c := parse(t, issued.Chain)
			for _, address := range []string{"203.0.113.7", "2001:db8::1", "kafka.example.com"} {
				for _, at := range []time.Time{issued.NotBefore, now, issued.NotAfter} {
					if _, err := c.Verify(x509.VerifyOptions{Roots: trusted, DNSName: address, CurrentTime: at}); err != nil {
						t.Errorf("%s at %s: %v", address, at, err)
					}
				}
			}
			for reason, options := range map[string]x509.VerifyOptions{
				"for another address":    {Roots: trusted, DNSName: "203.0.113.8", CurrentTime: now},
				"for its common name":    {Roots: trusted, DNSName: "broker-0", CurrentTime: now},
				"by another namespace":   {Roots: foreign, DNSName: "203.0.113.7", CurrentTime: now},
				"a day later":            {Roots: trusted, DNSName: "203.0.113.7", CurrentTime: now.Add(24 * time.Hour)},
				"as that of a client":    {Roots: trusted, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
				"before it was possible": {Roots: trusted, DNSName: "203.0.113.7", CurrentTime: now.Add(-time.Hour)},
			} {
				if _, err := c.Verify(options); err == nil {
					t.Errorf("the certificate was accepted %s", reason)
				}
			}
			if n := len(c.IPAddresses) + len(c.DNSNames); n != 3 || c.IsCA || c.Subject.String() != "CN=broker-0,O=kafka" {
				t.Errorf("the certificate has %d names, IsCA %t, and the subject %s", n, c.IsCA, c.Subject)
			}
			if withRSA := strings.HasPrefix(name, "RSA"); withRSA != (c.KeyUsage&x509.KeyUsageKeyEncipherment != 0) {
				t.Errorf("key usages %b", c.KeyUsage)
			}
		})
	}
}

// They do so only if they ask for it.
func TestPodsIdentifyThemselvesAsClients(t *testing.T) {
	a := authority(t, certificate.NewRoot(now), "kafka", "uid")
	trusted := x509.NewCertPool()
	trusted.AddCert(a.Certificate)
	leaf := leafOf(keys(t)["Ed25519"], "203.0.113.7")
	leaf.Client = true
	issued, err := a.Issue(leaf)
	check.Must(t, err)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		options := x509.VerifyOptions{Roots: trusted, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := parse(t, issued.Chain).Verify(options); err != nil {
			t.Error(err)
		}
	}
}

// Each has an error.
func TestWhatIsNotIssued(t *testing.T) {
	a, key := authority(t, certificate.NewRoot(now), "kafka", "uid"), keys(t)["Ed25519"]
	late := leafOf(key, "203.0.113.7")
	late.Now = now.Add(certificate.AuthorityLifetime - certificate.LeafLifetime + time.Hour)
	for name, tc := range map[string]struct {
		leaf certificate.Leaf
		want error
	}{
		"no addresses":         {leafOf(key), certificate.ErrNoNames},
		"no possible address":  {leafOf(key, "fe80::1%eth0", "node_1", "*.example.com", "192.0.2.300", "a..b", ""), certificate.ErrNoNames},
		"an authority too old": {late, certificate.ErrAuthorityExpired},
	} {
		if issued, err := a.Issue(tc.leaf); !errors.Is(err, tc.want) || issued.Chain != nil {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
	}
}

// A certificate cannot have all.
func TestOwnAddressesComeFirst(t *testing.T) {
	var own, others []listenersv1alpha1.IngressAddress
	for i := range certificate.MaxNames {
		others = append(others, listenersv1alpha1.IngressAddress{Address: fmt.Sprintf("a-%d.example.com", i)})
	}
	own = append(own, listenersv1alpha1.IngressAddress{Address: "z.example.com"}, listenersv1alpha1.IngressAddress{Address: "203.0.113.7"}, others[0])
	names := certificate.NamesOf(own, others)
	if names.Len() != certificate.MaxNames || names.Omitted != 2 || !slices.Contains(names.DNS, "z.example.com") || len(names.IPs) != 1 {
		t.Errorf("%d names, %d omitted: %s", names.Len(), names.Omitted, names)
	}
	leaf := leafOf(keys(t)["Ed25519"])
	leaf.Names, leaf.Pod.Name = names, strings.Repeat("a", 253)
	issued, err := authority(t, certificate.NewRoot(now), "kafka", "uid").Issue(leaf)
	if err != nil || parse(t, issued.Chain).Subject.String() != "O=kafka" {
		t.Errorf("a Pod with a long name and as many addresses as possible: %v", err)
	}
}
