package listener

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// rejection returns the message of the API server, or of an admission webhook, if the error means that it rejects the
// object. An internal error does, too: the API server reports it when no node port or cluster IP is free. It does not
// if nobody can do anything about it.
func rejection(err error) (message string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || isUnrelated(err) {
		return "", false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return status.Status().Message, true
	default:
		return "", false
	}
}

// asRefusal returns the error of a write as the refusal of a Listener, if it is one or if the API server rejects the
// object. retry is what is tried again: the API server may accept later what it rejects now.
func asRefusal(err error, object string) (refusal *exposure.Refusal, retry error) {
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	message, ok := rejection(err)
	if !ok {
		return nil, err
	}
	if isFinal(err) {
		err = nil
	}
	return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "the API server rejects %s: %s", object, message), err
}

// isRejection reports whether the error means that the API server, or an admission webhook, rejects an object.
func isRejection(err error) bool {
	_, rejected := rejection(err)
	return rejected
}

// isUnrelated reports whether a rejection says nothing about the object: its namespace is being deleted, or the API
// server has just started. With the admission plugin OwnerReferencesPermissionEnforcement, as on OpenShift, it rejects
// owners of a kind that it has not discovered, for up to half a minute.
func isUnrelated(err error) bool {
	return requests.IsTerminating(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot find RESTMapping")
}

// allocated are the fields of a Service that the API server allocates, and rejects while another Service has the value.
var allocated = regexp.MustCompile(`(?i)(nodePort|clusterIPs?|ipFamil\w+)(\[\d+\])?$`)

// isFinal reports whether the API server rejects a Service because of what is in it. A retry cannot help then, but only
// a change of the Listener, of its class or of the existing Service, which are watched. Values that other Services
// have, quotas and the policies of administrators are not watched.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type == "" || allocated.MatchString(c.Field) // admission policies give no type
	})
}
