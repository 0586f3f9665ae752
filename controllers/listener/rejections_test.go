package listener

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// TestRemedyOfRejections has what the API server of other tests does not say, because nothing is used up or forbidden
// there, and it calls no webhook.
func TestRemedyOfRejections(t *testing.T) {
	for message, tc := range map[string]struct {
		reason metav1.StatusReason
		remedy string
	}{
		"failed to allocate a nodePort: range is full":                                  {metav1.StatusReasonInternalError, "extend its range"},
		"spec.clusterIPs: Internal error: failed to allocate IP 0: the range is full":   {metav1.StatusReasonInvalid, "extend its range"},
		"spec.clusterIPs: Invalid value: provided IP is already allocated":              {metav1.StatusReasonInvalid, "set another number"},
		`admission webhook "services.example.com" denied the request: no`:               {metav1.StatusReasonForbidden, "admission policy or webhook"},
		`denied request: MutatingAdmissionPolicy "ports" with binding "all": no`:        {metav1.StatusReasonInvalid, "admission policy or webhook"},
		`services "web" is forbidden: User "operator" cannot patch resource "services"`: {metav1.StatusReasonForbidden, "which permission the operator lacks"},
		"spec.ports[0]: Invalid value: a port cannot be 0":                              {metav1.StatusReasonInvalid, "correct it in the Listener or in its class"},
	} {
		s := newState(listenersv1alpha1.ServiceTypeNodePort)
		status := &metav1.Status{Reason: tc.reason, Message: message}
		if reason, remedy := remedyOf(status, &snapshot{listener: s.listener, class: s.class}); reason != "ServiceRejected" || !strings.Contains(remedy, tc.remedy) {
			t.Errorf("%s: reason %s, remedy %q", message, reason, remedy)
		}
	}
}
