package walk

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	certificatenames "github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

// certificates follows the requests of the kubelet for certificates for the addresses of a Pod.
func (w *Walk) certificates(ctx context.Context, pod *corev1.Pod) {
	if pod.Status.Phase != corev1.PodRunning { // whose volumes the kubelet has mounted
		w.misspeltSources(ctx, pod)
	}
	if !MountsCertificate(pod) || pod.Spec.NodeName == "" {
		return
	}
	f := check.Finding{Kind: "PodCertificateRequest", Namespace: pod.Namespace}
	var all certificatesv1.PodCertificateRequestList
	if w.ReadAll(ctx, f, &all, client.InNamespace(pod.Namespace)) != check.Present {
		return
	}
	requests := slices.DeleteFunc(slices.Clone(all.Items), func(r certificatesv1.PodCertificateRequest) bool {
		return r.Spec.PodUID != pod.UID || r.Spec.SignerName != names.Signer
	})
	switch {
	case len(requests) == 0 && pod.Status.Phase != corev1.PodRunning:
		w.Add(f.Failed("", fmt.Sprintf("the kubelet of node %s has requested no certificate for Pod %s",
			pod.Spec.NodeName, pod.Name),
			"See the events of the Pod: "+describe("pod", pod)).Symptom().Since(waitsSince(pod)))
	case len(requests) == 0:
		w.Add(f.OK("none is left of Pod %s: Kubernetes deletes them after a while; see the certificate with kubectl "+
			"listener connect --tls", pod.Name))
	default:
		last := slices.MaxFunc(requests, func(a, b certificatesv1.PodCertificateRequest) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		})
		w.Add(w.requestFinding(ctx, pod, &last))
	}
}

// misspeltSources reports names that nearly are those of the signer or the namespace's trust bundle: the kubelet waits.
func (w *Walk) misspeltSources(ctx context.Context, pod *corev1.Pod) {
	for _, v := range pod.Spec.Volumes {
		for _, s := range ptr.Deref(v.Projected, corev1.ProjectedVolumeSource{}).Sources {
			name, meant := ptr.Deref(s.PodCertificate, corev1.PodCertificateProjection{}).SignerName, names.Signer
			bundle := ptr.Deref(ptr.Deref(s.ClusterTrustBundle, corev1.ClusterTrustBundleProjection{}).Name, "")
			if bundle != "" { // a source has one of them
				name, meant = bundle, names.TrustBundlePrefix+pod.Namespace
			}
			hint := misspelt(name, meant)
			if hint == "" || bundle != "" && w.Get(ctx, types.NamespacedName{Name: name},
				&certificatesv1.ClusterTrustBundle{}) == check.Present {
				continue // the bundle may be of another namespace
			}
			w.Add(check.Finding{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}.Failed("",
				fmt.Sprintf("volume %q names %s%s", v.Name, name, hint),
				"Correct the name in the volume, and create the Pod again: docs/tls.md"))
		}
	}
}

// misspelt returns a hint if a name is similar to the one that is meant, or begins with a domain like the operator's.
func misspelt(name, meant string) string {
	if strings.HasPrefix(name, "listener") && name != meant {
		return fmt.Sprintf("; did you mean %s?", meant)
	}
	own := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: meant}}
	return lookup.DidYouMean(name, &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{own}})
}

// MountsCertificate reports whether a Pod mounts a certificate for its addresses.
func MountsCertificate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && s.PodCertificate.SignerName == names.Signer
		})
	})
}

func (w *Walk) requestFinding(ctx context.Context, pod *corev1.Pod,
	request *certificatesv1.PodCertificateRequest) check.Finding {
	f := check.Finding{Kind: "PodCertificateRequest", Namespace: request.Namespace, Name: request.Name}
	if waiting := listenersv1alpha1.ReasonCertificateWaiting; len(request.Status.Conditions) == 0 {
		f = f.FailedBy(waiting, fmt.Sprintf("no certificate is issued yet for Pod %s", pod.Name)).Symptom().Since(
			request.CreationTimestamp)
		return w.said(ctx, pod, check.HasReason(waiting), f)
	}
	condition := request.Status.Conditions[0]
	if condition.Type != certificatesv1.PodCertificateRequestConditionTypeIssued {
		return f.Failed(condition.Reason, fmt.Sprintf("%s: %s", strings.ToLower(condition.Type), condition.Message),
			"Do what the message says, and then delete the Pod: the kubelet does not ask again for this one")
	}
	return w.issuedFinding(ctx, f, pod, request)
}

// issuedFinding returns whether a certificate that was issued is valid now, and for all addresses that it is meant for.
func (w *Walk) issuedFinding(ctx context.Context, f check.Finding, pod *corev1.Pod,
	request *certificatesv1.PodCertificateRequest) check.Finding {
	chain, err := cert.ParseCertsPEM([]byte(request.Status.CertificateChain))
	if err != nil {
		return f.LeftToOperator("", fmt.Sprintf("has no valid certificate: %v", err))
	}
	until := chain[0].NotAfter.UTC().Format(time.RFC3339)
	if w.Now().After(chain[0].NotAfter) {
		return f.Failed("", fmt.Sprintf("the certificate of Pod %s expired at %s", pod.Name, until),
			"The kubelet requests a new one in time. See in the events of the Pod why it does not: "+
				describe("pod", pod))
	}
	if missing := w.uncoveredAddress(ctx, pod, request, chain[0]); missing != "" {
		renewed := ptr.Deref(request.Status.BeginRefreshAt, metav1.Time{}).UTC().Format(time.RFC3339)
		return f.Warning("", fmt.Sprintf("the certificate of Pod %s is not for its address %s, which is newer; the "+
			"kubelet renews it within minutes of %s", pod.Name, missing, renewed))
	}
	return f.OK("the certificate of Pod %s is valid until %s", pod.Name, until)
}

func (w *Walk) uncoveredAddress(ctx context.Context, pod *corev1.Pod, request *certificatesv1.PodCertificateRequest,
	certificate *x509.Certificate) string {
	addresses, _ := w.PodListeners(ctx, pod)
	only := keys.List(request.Spec.UnverifiedUserAnnotations[names.AnnotationCertificateVolumes])
	for _, volume := range slices.Sorted(maps.Keys(addresses.Spec.Listeners)) {
		for _, a := range addresses.Spec.Listeners[volume].IngressAddresses {
			if (len(only) == 0 || slices.Contains(only, volume)) && certificate.VerifyHostname(a.Address) != nil {
				return a.Address
			}
		}
	}
	return ""
}

func (w *Walk) certManager(ctx context.Context, listener *listenersv1alpha1.Listener) {
	label, ok := listener.Labels[names.LabelCertificate]
	if !ok {
		return
	}
	f := check.Finding{Kind: "Certificate", Namespace: listener.Namespace, Name: label + names.CertificateSuffix}
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(names.KindCertificate)
	if w.Read(ctx, f, certificate) == check.Forbidden {
		return
	}
	missing := uncoveredAddresses(listener, certificate)
	ready, failure := certManagerCondition(certificate, "Ready"), ""
	// This says why it could not be issued the last time.
	if issuing := certManagerCondition(certificate, "Issuing"); issuing.Status == metav1.ConditionFalse {
		failure = exposure.Quote(issuing.Reason, issuing.Message)
	}
	switch {
	case len(missing) == 0 && certificate.GetUID() == "":
		w.Add(f.Failed("", "does not exist, because the Listener has no address", "Find out why, above").Symptom())
	case len(missing) > 0:
		f = f.FailedBy(listenersv1alpha1.ReasonNotInCertificate, "is not for the address "+strings.Join(missing, ", "))
		w.Add(w.said(ctx, listener, check.HasReason(f.Reason), f))
	case ready.Status != metav1.ConditionTrue:
		w.issuer(ctx, certificate)
		message := "cert-manager has not issued it: " + cmp.Or(ready.Message, "it has not looked at it") + "; " +
			cmp.Or(failure, w.awaits(ctx, certificate))
		w.Add(f.Failed("", strings.TrimSuffix(message, "; "), "See "+describe("certificate", certificate)+
			", and its CertificateRequests").Symptom())
	case failure != "":
		w.Add(f.Warning("", "issued, but cert-manager cannot issue it again: "+failure))
	default:
		w.Add(f.OK("issued, for the addresses of the Listener; Pods mount the Secret %s", f.Name))
	}
}

func (w *Walk) issuer(ctx context.Context, certificate *unstructured.Unstructured) {
	issuer, _, _ := unstructured.NestedStringMap(certificate.Object, "spec", "issuerRef")
	served, err := w.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: issuer["group"], Kind: issuer["kind"]})
	if err != nil {
		return // cert-manager says so
	}
	f := check.Finding{Kind: issuer["kind"], Name: issuer["name"]}
	if served.Scope.Name() == meta.RESTScopeNameNamespace {
		f.Namespace = certificate.GetNamespace()
	}
	missing := f.Failed("", "does not exist, and Certificate "+certificate.GetName()+" names it",
		"Create it, or ask an administrator to name another one in the class: docs/tls.md")
	w.Require(ctx, lookup.Metadata(served.GroupVersionKind), missing, lookup.MetadataList(served.GroupVersionKind))
}

func uncoveredAddresses(listener *listenersv1alpha1.Listener,
	certificate *unstructured.Unstructured) (missing []string) {
	subjects := certificatenames.SubjectNames(certificate)
	for _, a := range ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).IngressAddresses {
		if !slices.Contains(subjects, strings.ToLower(a.Address)) {
			missing = append(missing, a.Address)
		}
	}
	return missing
}

// awaits returns what the last CertificateRequest waits for, or "". The Certificate says only why one has failed.
func (w *Walk) awaits(ctx context.Context, certificate *unstructured.Unstructured) string {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(names.KindCertificate.GroupVersion().WithKind("CertificateRequestList"))
	if w.List(ctx, all, client.InNamespace(certificate.GetNamespace())) != check.Present {
		return ""
	}
	requests := slices.DeleteFunc(slices.Clone(all.Items),
		func(r unstructured.Unstructured) bool { return !metav1.IsControlledBy(&r, certificate) })
	if len(requests) == 0 {
		return ""
	}
	last := slices.MaxFunc(requests, func(a, b unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time)
	})
	if certManagerCondition(&last, "Approved").Status == "" {
		return fmt.Sprintf("CertificateRequest %s is not approved", last.GetName())
	}
	ready := certManagerCondition(&last, "Ready")
	return exposure.Quote(ready.Reason, ready.Message)
}

func certManagerCondition(o *unstructured.Unstructured, conditionType string) metav1.Condition {
	var typed struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	// The definitions of cert-manager make it valid.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed)
	return check.Condition(typed.Status.Conditions, conditionType)
}
