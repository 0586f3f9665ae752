package listener

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

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
		_, retry := asRefusal(tc.err, &snapshot{listener: &listenersv1alpha1.Listener{}, class: &listenersv1alpha1.ListenerClass{}})
		if got := retry == nil; got != tc.want {
			t.Errorf("%s is final: %v, want %v", name, got, tc.want)
		}
	}
}
