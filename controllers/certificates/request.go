package certificates

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/names"
)

// verdict is an error that says why a request is not granted. With a reason, it never can be, and the kubelet does not
// repeat it. Without, it waits for something.
type verdict struct{ reason, message string }

func (v *verdict) Error() string { return v.message }

func deny(reason, format string, args ...any) error {
	return &verdict{reason, fmt.Sprintf(format, args...)}
}

func wait(format string, args ...any) error { return deny("", format, args...) }

// order is what a PodCertificateRequest asks for.
type order struct {
	publicKey crypto.PublicKey
	// volumes are the names of the Pod's volumes whose addresses the certificate is for. Nil means all listener
	// volumes.
	volumes  sets.Set[string]
	client   bool
	lifetime time.Duration
}

// maxAnnotation is the length of an annotation in bytes: enough for as many volumes as a certificate can have names,
// with the longest names.
const maxAnnotation = certificate.MaxNames * (validation.DNS1123LabelMaxLength + 1)

// usages of certificates that a Pod may choose.
const (
	usageServer = "server"
	usageClient = "client"
)

// parse reads a request. Nothing of the certificate signing request counts but its public key, whose signature the API
// server has verified.
func parse(spec *certificatesv1.PodCertificateRequestSpec) (order, error) {
	o := order{lifetime: certificate.LeafLifetime}
	if maximum := spec.MaxExpirationSeconds; maximum != nil {
		o.lifetime = min(o.lifetime, time.Duration(*maximum)*time.Second)
	}
	request, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
	if err != nil || request.PublicKey == nil {
		return order{}, deny(certificatesv1.PodCertificateRequestConditionUnsupportedKeyType,
			"the type of the key is not known: set keyType to one of ECDSAP256, ECDSAP384, ECDSAP521, ED25519, RSA3072 and RSA4096")
	}
	o.publicKey = request.PublicKey
	for key, value := range spec.UnverifiedUserAnnotations {
		var problem string
		switch {
		case len(value) > maxAnnotation:
			problem = fmt.Sprintf("it is longer than %d bytes", maxAnnotation)
		case key == names.AnnotationCertificateVolumes:
			if o.volumes = certificate.List(value); len(o.volumes) == 0 {
				problem = "it names no volume; without it, the certificate is for the addresses of all listener volumes"
			}
		case key == names.AnnotationCertificateUsages:
			o.client, problem = parseUsages(value)
		default:
			problem = fmt.Sprintf("it is none of %s and %s", names.AnnotationCertificateVolumes, names.AnnotationCertificateUsages)
		}
		if problem != "" {
			return order{}, deny(certificatesv1.PodCertificateRequestConditionInvalidUserConfig, "userAnnotations: %s: %s", key, problem)
		}
	}
	return o, nil
}

func parseUsages(value string) (asClient bool, problem string) {
	usages := certificate.List(value)
	if !usages.Has(usageServer) || len(usages.Difference(sets.New(usageServer, usageClient))) > 0 {
		return false, fmt.Sprintf("%q is neither %q nor %q", value, usageServer, usageServer+","+usageClient)
	}
	return usages.Has(usageClient), ""
}

// decided reports whether a request was issued, denied or has failed, which is final.
func decided(request *certificatesv1.PodCertificateRequest) bool {
	return len(request.Status.Conditions) > 0
}
