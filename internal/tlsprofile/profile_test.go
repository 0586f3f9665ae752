package tlsprofile

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/util/cert"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// serve returns the address of a server that applies the profile.
func serve(t *testing.T, p *Profile) string {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	check.Must(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	check.Must(t, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	p.Apply(config)
	config.Certificates = []tls.Certificate{pair} // after Apply, as the metrics server does
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	check.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.(*tls.Conn).Handshake()
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}

// dial reports whether the server accepts a client with one version and, below 1.3, one cipher suite.
func dial(address string, version, suite uint16) bool {
	connection, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is self-signed
		MinVersion:         version, MaxVersion: version, CipherSuites: []uint16{suite}, RootCAs: x509.NewCertPool(),
	})
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func TestServerAppliesTheProfile(t *testing.T) {
	const gcm, cbc = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA
	p := New()
	address := serve(t, p)
	for name, tc := range map[string]struct {
		profile *configv1.TLSSecurityProfile
		tls11   bool
		gcm     bool // with TLS 1.2
		cbc     bool // with TLS 1.2
	}{
		"none":                                 {gcm: true},
		"no type":                              {profile: &configv1.TLSSecurityProfile{}, gcm: true},
		"Intermediate":                         {profile: &configv1.TLSSecurityProfile{Type: configv1.TLSProfileIntermediateType}, gcm: true},
		"Modern":                               {profile: &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}},
		"Old":                                  {profile: &configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType}, gcm: true, cbc: true, tls11: true},
		"Custom":                               {profile: custom(configv1.VersionTLS12, "ECDHE-RSA-AES128-SHA", "NO-SUCH-CIPHER"), cbc: true},
		"Custom, with ciphers of TLS 1.3 only": {profile: custom(configv1.VersionTLS12, "TLS_AES_128_GCM_SHA256")},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := profileSpec(tc.profile)
			check.Must(t, err)
			p.spec.Store(spec)
			if !dial(address, tls.VersionTLS13, 0) {
				t.Error("TLS 1.3 is rejected")
			}
			if got := dial(address, tls.VersionTLS12, gcm); got != tc.gcm {
				t.Errorf("TLS 1.2 with AES-GCM is accepted: %t, want %t", got, tc.gcm)
			}
			if got := dial(address, tls.VersionTLS12, cbc); got != tc.cbc {
				t.Errorf("TLS 1.2 with AES-CBC is accepted: %t, want %t", got, tc.cbc)
			}
			if got := dial(address, tls.VersionTLS11, cbc); got != tc.tls11 {
				t.Errorf("TLS 1.1 is accepted: %t, want %t", got, tc.tls11)
			}
		})
	}
}

func custom(version configv1.TLSProtocolVersion, ciphers ...string) *configv1.TLSSecurityProfile {
	return &configv1.TLSSecurityProfile{
		Type:   configv1.TLSProfileCustomType,
		Custom: &configv1.CustomTLSProfile{TLSProfileSpec: configv1.TLSProfileSpec{Ciphers: ciphers, MinTLSVersion: version}},
	}
}

func TestInvalidProfileIsRejected(t *testing.T) {
	for name, profile := range map[string]*configv1.TLSSecurityProfile{
		"of an unknown type":             {Type: "Quantum"},
		"of type Custom without ciphers": {Type: configv1.TLSProfileCustomType},
	} {
		if _, err := profileSpec(profile); err == nil {
			t.Errorf("a profile %s is accepted", name)
		}
	}
}

// TestCipherSuitesOfAllProfilesAreKnown finds ciphers of OpenShift's profiles that Go implements and
// cipherSuites does not have.
func TestCipherSuitesOfAllProfilesAreKnown(t *testing.T) {
	tls13 := map[string]bool{}
	for _, suite := range tls.CipherSuites() {
		if suite.SupportedVersions[0] == tls.VersionTLS13 {
			tls13[suite.Name] = true
		}
	}
	for name, profile := range configv1.TLSProfiles {
		for _, cipher := range profile.Ciphers {
			if len(cipherSuites([]string{cipher})) == 0 && !tls13[cipher] && cipher != "DES-CBC3-SHA" {
				t.Errorf("profile %s has the cipher %s, which cipherSuites does not have", name, cipher)
			}
		}
	}
}
