//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/test/cluster/pki"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// withIssuer creates a class with the Issuer "company".
func (s *scenario) withIssuer() *listenersv1alpha1.ListenerClass {
	s.Helper()
	spec := unpinned()
	spec.Certificates = &listenersv1alpha1.Certificates{IssuerRef: listenersv1alpha1.CertificateIssuer{Name: "company"}}
	return s.createClass(spec)
}

// certified returns a StatefulSet whose Listeners have the Certificate "broker" together.
func certified(class *listenersv1alpha1.ListenerClass) *appsv1.StatefulSet {
	set := statefulSet("broker", 2, byClass(class.Name))
	set.Spec.VolumeClaimTemplates[0].Labels = map[string]string{names.LabelCertificate: "broker"}
	return set
}

// certManagerKinds are the CRDs of cert-manager that are in use.
var certManagerKinds = []crds.CRD{crds.Certificates, crds.CertificateRequests, crds.Issuers, crds.ClusterIssuers}

// It has the addresses of all Listeners with the label, and is deleted with the last one. Nobody issues it here, as
// cert-manager does in TestCertManagerIssuesForTheAddressesOfReplicas.
func TestListenersHaveACertificateTogether(t *testing.T) {
	s := newScenario(t)
	crds.Remove(t, api, certManagerKinds...) // an earlier run may have left them
	crds.Install(t, api, certManagerKinds...)
	defer crds.Remove(t, api, certManagerKinds...)
	set := certified(s.withIssuer())
	s.create(set)
	addresses := func(count int) (all []any) {
		for i := range count {
			_, a := s.awaitReachable(fmt.Sprintf("broker-%d", i))
			all = append(all, a.Address)
		}
		return all
	}
	s.awaitCertificate(addresses(2))
	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](3) })
	s.awaitCertificate(addresses(3))
	s.remove(set)
	for i := range 3 {
		s.remove(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("listener-broker-%d", i)}})
	}
	mustAwaitDeleted(s, optionalObject(names.KindCertificate, s.namespace, "broker"+names.CertificateSuffix), s.key("broker"+names.CertificateSuffix))
}

// awaitCertificate waits until the Certificate "broker" has these addresses.
func (s *scenario) awaitCertificate(addresses []any) {
	s.Helper()
	want := sets.New(addresses...)
	s.eventually(func(ctx context.Context) error {
		o := optionalObject(names.KindCertificate, s.namespace, "broker"+names.CertificateSuffix)
		if err := s.getter(o)(ctx); err != nil {
			return err
		}
		ips, _, _ := unstructured.NestedSlice(o.Object, "spec", "ipAddresses")
		if got := sets.New(ips...); !got.Equal(want) {
			return fmt.Errorf("the Certificate is for %v, want %v", got, want)
		}
		return nil
	})
}

// startCertManager runs cert-manager, and creates the Issuer "company" in the namespace. It returns what its clients
// trust.
func (s *scenario) startCertManager() *tls.Config {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, buildTimeout)
	defer cancel()
	programs, err := tools.Ensure(ctx, "cert-manager")
	s.must(err)
	s.runOutside(filepath.Join(programs, "cert-manager"), "--kubeconfig="+testbed.Kubeconfig())
	authority, err := pki.NewAuthority("company")
	s.must(err)
	s.create(tlsSecret("company", authority.Cert, authority.Key))
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": map[string]any{"name": "company"},
		"spec": map[string]any{"ca": map[string]any{"secretName": "company"}},
	}}
	s.create(o)
	return trusting(authority.Cert)
}

// The Listeners of a StatefulSet get one Certificate, which follows their addresses. A client outside that trusts the
// issuer verifies each replica at its address.
func TestCertManagerIssuesForTheAddressesOfReplicas(t *testing.T) {
	if !*withProducts {
		t.Skip("this scenario needs the flag -products; make test-products sets it")
	}
	s := newScenario(t)
	s.timeout = productTimeout               // the kubelet may take a minute and a half for a Secret that changed
	crds.Remove(t, api, certManagerKinds...) // an earlier run may have left them
	crds.Install(t, api, certManagerKinds...)
	defer crds.Remove(t, api, certManagerKinds...)
	trust := s.startCertManager()
	set := certified(s.withIssuer())
	pod := &set.Spec.Template.Spec
	pod.Containers[0].Ports = append(pod.Containers[0].Ports, corev1.ContainerPort{Name: "https", ContainerPort: 8443, Protocol: corev1.ProtocolTCP})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: "/listeners/tls"})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "broker" + names.CertificateSuffix, Items: []corev1.KeyToPath{{Key: "tls-combined.pem", Path: "bundle.pem"}},
	}}})
	s.create(set)
	for _, name := range []string{"broker-0", "broker-1"} {
		_, a := s.awaitReachable(name)
		s.awaitServing(trust, a, name)
	}

	s.patch(set, func() { set.Spec.Replicas = ptr.To[int32](3) })
	_, a := s.awaitReachable("broker-2")
	s.awaitServing(trust, a, "broker-2")

	out, status := s.plugin()("listener", "why", "broker-2", "--namespace", s.namespace)
	if status != 0 || !strings.Contains(out, "broker"+names.CertificateSuffix) {
		t.Errorf("kubectl listener why exits with %d, and says:\n%s", status, out)
	}
}
