package plugin_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// cert-manager issues it.
func TestWhyFollowsTheCertificateOfAListener(t *testing.T) {
	kinds := []crds.CRD{crds.Certificates, crds.CertificateRequests, crds.Issuers}
	crds.Install(t, apiserver.Client(t), kinds...)
	defer crds.Remove(t, apiserver.Client(t), kinds...)
	for name, tc := range map[string]struct {
		// address of the Certificate, or none if it does not exist; ready is the status of its condition.
		// failure is what its condition Issuing says, if that is false.
		address, ready, failure, event string
		// request are the conditions of its CertificateRequest.
		request []any
		state   string
		texts   []string
	}{
		"issued":              {address: "203.0.113.7", ready: "True", state: "OK", texts: []string{"Pods mount the Secret web-listener-tls"}},
		"not issued":          {address: "203.0.113.7", ready: "False", state: "Failed", texts: []string{"has not issued it: the issuer is not ready", "describe certificate web-listener-tls"}},
		"not issued, and why": {address: "203.0.113.7", ready: "False", failure: "Denied: by a policy", state: "Failed", texts: []string{"the issuer is not ready; Failed: Denied: by a policy"}},
		"not approved":        {address: "203.0.113.7", ready: "False", request: []any{}, state: "Failed", texts: []string{"the issuer is not ready; CertificateRequest web-1 is not approved"}},
		"waiting for an issuer": {
			address: "203.0.113.7", ready: "False", state: "Failed", texts: []string{"the issuer is not ready; Pending: Referenced ClusterIssuer not found"},
			request: []any{
				map[string]any{"type": "Approved", "status": "True", "reason": "cert-manager.io", "message": "approved"},
				map[string]any{"type": "Ready", "status": "False", "reason": "Pending", "message": "Referenced ClusterIssuer not found"},
			},
		},
		"not issued again":       {address: "203.0.113.7", ready: "True", failure: "the issuer is gone", state: "Warning", texts: []string{"issued, but cert-manager cannot issue it again: Failed: the issuer is gone"}},
		"not looked at":          {address: "203.0.113.7", state: "Failed", texts: []string{"has not issued it: it has not looked at it"}},
		"for an earlier address": {address: "203.0.113.6", ready: "True", state: "Failed", texts: []string{"is not for the address 203.0.113.7"}},
		"of a class without":     {event: "ListenerClass x has no certificates", state: "Failed", texts: []string{"NotInCertificate", "ListenerClass x has no certificates"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.listener.Labels = map[string]string{names.LabelCertificate: "web"}
			w.update(t, w.listener)
			if tc.address != "" {
				c := w.certificate(t, tc.address, tc.ready)
				if tc.failure != "" {
					issuing := map[string]any{"type": "Issuing", "status": "False", "reason": "Failed", "message": tc.failure}
					conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
					c.Object["status"] = map[string]any{"conditions": append(conditions, issuing)}
					w.updateStatus(t, c)
				}
				if tc.request != nil {
					w.request(t, c, tc.request)
				}
			}
			if tc.event != "" {
				w.event(t, w.listener, listenersv1alpha1.ReasonNotInCertificate, tc.event)
			}
			w.expect(t, w.pod.Name, "Certificate", tc.state, tc.texts...)
		})
	}
	t.Run("by an Issuer whose name is misspelt in the class", func(t *testing.T) {
		w := newWorld(t)
		w.listener.Labels = map[string]string{names.LabelCertificate: "web"}
		w.update(t, w.listener)
		w.createServed(t, w.untyped("cert-manager.io/v1", "Issuer", "xy", map[string]any{"selfSigned": map[string]any{}}))
		w.certificate(t, "203.0.113.7", "False")
		p := whyOf(t, w.namespace, "listener/web").Problem
		if p == nil || p.Kind != "Issuer" || p.Message != "does not exist, and Certificate web-listener-tls names it; did you mean xy?" {
			t.Errorf("problem %+v", p)
		}
	})
}

// certificate creates the Certificate "web" for an address. Without ready it has no status.
func (w *world) certificate(t *testing.T, address, ready string) *unstructured.Unstructured {
	t.Helper()
	c := w.untyped("cert-manager.io/v1", "Certificate", "web"+names.CertificateSuffix, map[string]any{
		"secretName": "x", "issuerRef": map[string]any{"group": "cert-manager.io", "kind": "Issuer", "name": "x"}, "ipAddresses": []any{address},
	})
	w.create(t, c)
	if ready == "" {
		return c
	}
	c.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": ready, "message": "the issuer is not ready"},
	}}
	w.updateStatus(t, c)
	return c
}

// request creates the CertificateRequest of a Certificate.
func (w *world) request(t *testing.T, certificate *unstructured.Unstructured, conditions []any) {
	t.Helper()
	r := w.untyped("cert-manager.io/v1", "CertificateRequest", "web-1", map[string]any{"request": "eA==", "issuerRef": map[string]any{"name": "x"}})
	r.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(certificate, names.KindCertificate)})
	w.createServed(t, r)
	r.Object["status"] = map[string]any{"conditions": conditions}
	w.updateStatus(t, r)
}
