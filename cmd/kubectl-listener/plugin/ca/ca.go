// Package ca has the command `kubectl listener ca`, which prints the certificates that clients have to trust.
package ca

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

func NewCommand(e *command.Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the certificates that clients of a namespace have to trust",
		Long: `Print the certificates that clients of a namespace have to trust, in PEM.

Each namespace has a certificate authority of its own, which issues the certificates for the addresses of its Pods.
While an authority is being replaced, there are several certificates: trust all of them. They are public. The command
reads them from the ClusterTrustBundle of the namespace, which its users cannot change, as they can the ConfigMap
` + names.CertificateAuthorityConfigMap + `.

docs/tls.md has the whole procedure.`,
		Example: `  # What clients of the brokers have to trust
  kubectl listener ca --namespace shop > ca.crt
  openssl s_client -connect 203.0.113.7:31337 -CAfile ca.crt -verify_return_error`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, err := e.Namespace()
			c, clientErr := e.Client()
			if err := cmp.Or(err, clientErr); err != nil {
				return err
			}
			certificates, err := Certificates(cmd.Context(), c, namespace)
			if err == nil {
				_, err = fmt.Fprint(e.Out, certificates)
			}
			return err
		},
	}
}

// Certificates returns the certificates that clients of a namespace have to trust, in PEM. They are from an object
// that only administrators and the operator can write.
func Certificates(ctx context.Context, c client.Client, namespace string) (string, error) {
	key := types.NamespacedName{Name: names.TrustBundlePrefix + namespace}
	bundle, err := lookup.Get(ctx, c, key, &certificatesv1.ClusterTrustBundle{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("ask an administrator for the output of kubectl listener ca --namespace %s, because "+
			"whoever may write ConfigMaps there can change the ConfigMap %s: %w",
			namespace, names.CertificateAuthorityConfigMap, err)
	case err == nil && bundle == nil, meta.IsNoMatchError(err):
		return "", fmt.Errorf("namespace %s has no certificate authority: it gets one when the first certificate for "+
			"one of its Pods is issued; see docs/tls.md", namespace)
	case err != nil:
		return "", err
	}
	certificates, err := cert.ParseCertsPEM([]byte(bundle.Spec.TrustBundle)) // which may have text in between
	if err != nil {
		return "", fmt.Errorf("reading ClusterTrustBundle %s: %w", key.Name, err)
	}
	encoded, err := cert.EncodeCertificates(certificates...)
	return string(encoded), err
}
