package certificates

import (
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// Authors of Pods choose their annotations, and how many there are.
func TestRequestsForCertificatesCostLinearTime(t *testing.T) {
	growth.CheckLinear(t, map[string]growth.Work{
		"PodCertificateRequest: requests and volumes that they name": {Size: 50, Product: true, Do: func(n int) {
			for range n {
				if _, denied := parse(request(n)); denied != nil {
					panic(denied)
				}
			}
		}},
		"PodCertificateRequest: volumes without end": {Size: 32_000, Do: func(n int) {
			if _, denied := parse(request(n)); denied == nil {
				panic("not denied")
			}
		}},
		"Pod: volumes, and those that a request names": {Size: 50, Do: func(n int) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
			var claims []client.Object
			for i := range n {
				name := fmt.Sprint("v", i)
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
				}})
				claims = append(claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: name, Annotations: map[string]string{names.AnnotationProvisioner: names.Driver},
				}})
			}
			o, _ := parse(request(n))
			s := &Signer{Trust: &Trust{Authorities: &Authorities{Client: fakeclient.New(t, interceptor.Funcs{}, claims...)}}}
			if volumes, err := s.volumes(t.Context(), pod, o.volumes); err != nil || len(volumes) != n {
				panic(fmt.Sprint(volumes, err))
			}
		}},
	}, ".", "github.com/listener-operator/listener-operator/internal/certificate")
}

// A request waits for an address of its Pod.
func TestRequestsThatWaitCostLittleMemory(t *testing.T) {
	keep := func(o client.Object) any {
		kept, err := trim(o)
		check.Must(t, err)
		return kept
	}
	growth.CheckMemory(t, 1<<20, keep, func() client.Object { return &certificatesv1.PodCertificateRequest{} })
}

// request returns a request that names n volumes.
func request(n int) *certificatesv1.PodCertificateRequestSpec {
	stub, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	volumes := make([]string, n)
	for i := range volumes {
		volumes[i] = fmt.Sprint("v", i)
	}
	return &certificatesv1.PodCertificateRequestSpec{
		StubPKCS10Request: stub, UnverifiedUserAnnotations: map[string]string{names.AnnotationCertificateVolumes: strings.Join(volumes, ",")},
	}
}
