package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/ca"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// trusted returns the authorities of a file or, without one, of a namespace.
func trusted(ctx context.Context, c client.Client, namespace, file string) (*x509.CertPool, error) {
	var certificates []byte
	if file != "" {
		var err error
		if certificates, err = os.ReadFile(file); err != nil { //nolint:gosec // the user names the file
			return nil, fmt.Errorf("reading --ca-file: %w", err)
		}
	} else {
		published, err := ca.Certificates(ctx, c, namespace)
		if err != nil {
			return nil, fmt.Errorf("%w; or use --ca-file for the authority of the servers", err)
		}
		certificates = []byte(published)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

// handshake begins a TLS session, and returns what a client sees.
func (e *endpoint) handshake(ctx context.Context, f check.Finding, connection net.Conn, how Options) check.Finding {
	host, _, _ := net.SplitHostPort(e.address)
	ctx, cancel := context.WithTimeout(ctx, how.Timeout)
	defer cancel()
	started := time.Now()
	session := tls.Client(connection, &tls.Config{RootCAs: how.Trusted, ServerName: host, MinVersion: tls.VersionTLS12})
	if err := session.HandshakeContext(ctx); err != nil {
		message, remedy := remedyForHandshake(err)
		return f.Failed("", fmt.Sprintf("port %s: %s", e.port, message), remedy)
	}
	server := session.ConnectionState().PeerCertificates[0]
	return f.OK("port %s: verified in %s: %s, issued by %s, valid until %s", e.port, time.Since(started).Round(time.Millisecond),
		server.Subject, server.Issuer, server.NotAfter.UTC().Format(time.RFC3339))
}

// remedyForHandshake returns what is wrong with a TLS session, and what to do about it.
func remedyForHandshake(err error) (message, remedy string) {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &hostname):
		return fmt.Sprintf("the certificate is not for this address, but for %s", list(hostname.Certificate)),
			"If the program does not read its certificate again when the file changes, restart the Pod: docs/tls.md"
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of %s is signed by %s, which is not trusted", unknown.Cert.Subject, unknown.Cert.Issuer),
			"See whether the operator has issued this certificate. If another authority has, use --ca-file: docs/tls.md"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate is valid from %s until %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339)),
			"The program has to read its certificate again when the file changes: docs/tls.md. If the certificate is new, compare the clocks."
	case errors.As(err, &record):
		return "the server does not begin with TLS", "Enable TLS at this port in the configuration of the program: docs/tls.md"
	default:
		return err.Error(), "See the log of the program."
	}
}

// list lists the addresses of a certificate.
func list(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
