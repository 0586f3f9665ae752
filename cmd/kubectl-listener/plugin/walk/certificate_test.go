package walk

import (
	"fmt"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/names"
)

// TestEachPodHasItsRequestForACertificate, also if the walks share what they read.
func TestEachPodHasItsRequestForACertificate(t *testing.T) {
	var objects []client.Object
	var pods []*corev1.Pod
	for i := range 3 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint(i))}}
		pod.Spec.NodeName = "node-1"
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: names.Signer}},
		}}}}}
		pods = append(pods, pod)
		objects = append(objects, &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "request-of-" + pod.Name},
			Spec:       certificatesv1.PodCertificateRequestSpec{PodUID: pod.UID, SignerName: names.Signer},
		})
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	w := New(&check.Examination{Client: source.List(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).WithObjects(objects...).Build())})
	for _, pod := range slices.Concat(pods, pods) {
		apart := w.Apart()
		apart.certificates(t.Context(), pod)
		if len(apart.Findings) != 1 || apart.Findings[0].Name != "request-of-"+pod.Name {
			t.Errorf("%s: %+v, error %v", pod.Name, apart.Findings, apart.Err)
		}
	}
}
