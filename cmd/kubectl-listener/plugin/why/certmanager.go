package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	certificates "github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/names"
)

// certManager follows the Certificate of a Listener. One without the label has none.
func (w *walk) certManager(ctx context.Context, listener *listenersv1alpha1.Listener) {
	label, ok := listener.Labels[names.LabelCertificate]
	if !ok {
		return
	}
	f := check.Finding{Kind: "Certificate", Namespace: listener.Namespace, Name: label + names.CertificateSuffix}
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(names.KindCertificate)
	if w.Follow(ctx, f, certificate) == check.Forbidden {
		return
	}
	missing := absent(listener, certificate)
	ready, message := certificateReady(certificate)
	switch {
	case len(missing) == 0 && certificate.GetUID() == "":
		w.Add(f.Failed("", "does not exist, because the Listener has no address", "Find out why, above").Because())
	case len(missing) > 0:
		text := "is not for the address " + strings.Join(missing, ", ")
		if event := w.LastEvent(ctx, listener, func(e *corev1.Event) bool { return e.Reason == listenersv1alpha1.ReasonNotInCertificate }); event != nil {
			text = event.Message
		}
		w.Add(f.FailedBy(listenersv1alpha1.ReasonNotInCertificate, text))
	case !ready:
		w.Add(f.Failed("", "cert-manager has not issued it: "+message,
			fmt.Sprintf("See kubectl describe certificate %s --namespace %s, and its CertificateRequests", f.Name, f.Namespace)))
	default:
		w.Add(f.OK("issued, for the addresses of the Listener; Pods mount the Secret %s", f.Name))
	}
}

// absent returns the addresses of a Listener that its Certificate is not for.
func absent(listener *listenersv1alpha1.Listener, certificate *unstructured.Unstructured) []string {
	if listener.Status == nil {
		return nil
	}
	subjects := certificates.SubjectNames(certificate)
	var missing []string
	for _, a := range listener.Status.IngressAddresses {
		if !slices.Contains(subjects, strings.ToLower(a.Address)) {
			missing = append(missing, a.Address)
		}
	}
	return missing
}

// certificateReady reports whether cert-manager says that a Certificate is issued, and for what it is now.
func certificateReady(certificate *unstructured.Unstructured) (ready bool, message string) {
	conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Ready" {
			message, _ = c["message"].(string)
			return c["status"] == "True", message
		}
	}
	return false, "it has not looked at it"
}
