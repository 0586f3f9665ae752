package write

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
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
		status := &metav1.Status{Reason: tc.reason, Message: message}
		s := &observe.Snapshot{Listener: &listenersv1alpha1.Listener{}, Class: &listenersv1alpha1.ListenerClass{}}
		if reason, remedy := remedyOf(status, s); reason != "ServiceRejected" || !strings.Contains(remedy, tc.remedy) {
			t.Errorf("%s: reason %s, remedy %q", message, reason, remedy)
		}
	}
}

func TestRejectionsForWhatIsInAServiceAreFinal(t *testing.T) {
	invalid := func(path string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", field.ErrorList{field.Invalid(field.NewPath("spec").Child(path), "x", "invalid")})
	}
	policy := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "denied"}}},
	}}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"an invalid field":               {invalid("internalTrafficPolicy"), true},
		"a node port that is allocated":  {invalid("ports[0].nodePort"), false},
		"a cluster IP that is allocated": {invalid("clusterIPs[0]"), false},
		"an IP family that is missing":   {invalid("ipFamilies[1]"), false},
		"an admission policy":            {policy, false},
		"a quota":                        {apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("exceeded quota")), false},
		"an error of the server":         {apierrors.NewInternalError(errors.New("no node port is free")), false},
		"another error":                  {errors.New("no connection"), false},
	} {
		_, retry := asRefusal(tc.err, &observe.Snapshot{Listener: &listenersv1alpha1.Listener{}, Class: &listenersv1alpha1.ListenerClass{}})
		check.Equal(t, name+" is final", tc.want, retry == nil)
	}
}
