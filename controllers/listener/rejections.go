package listener

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// rejection returns the status with which the API server, or an admission webhook, rejects an object, or nil if the
// error is another one. An internal error rejects it, too: the API server reports it when no node port or cluster IP is
// free. A rejection that says nothing about the object is none: its namespace is being deleted, or the API server has
// just started. With the admission plugin OwnerReferencesPermissionEnforcement, as on OpenShift, it rejects owners of a
// kind that it has not discovered, for up to half a minute.
func rejection(err error) *metav1.Status {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || requests.IsTerminating(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot find RESTMapping") {
		return nil
	}
	switch rejected.ErrStatus.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return &rejected.ErrStatus
	default:
		return nil
	}
}

// asRefusal returns the error of applying a Service as a refusal, if it is one or if the API server rejects it.
// retry is what is tried again: the API server may accept later what it rejects now.
func asRefusal(err error, service types.NamespacedName) (refusal *exposure.Refusal, retry error) {
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	status := rejection(err)
	if status == nil {
		return nil, err
	}
	if isFinal(err) {
		err = nil
	}
	return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "the API server rejects Service %s: %s", service, status.Message), err
}

// allocated are the fields of a Service that the API server allocates, and rejects while another Service has the value.
var allocated = regexp.MustCompile(`(?i)(nodePort|clusterIPs?|ipFamil\w+)(\[\d+\])?$`)

// isFinal reports whether the API server rejects a Service because of what is in it. A retry cannot help then, but only
// a change of the Listener, of its class or of the existing Service, which are watched. Values that other Services
// have, quotas and the policies of administrators are not watched.
func isFinal(err error) bool {
	status := rejection(err)
	if status == nil || status.Reason != metav1.StatusReasonInvalid || status.Details == nil {
		return false
	}
	causes := status.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type == "" || allocated.MatchString(c.Field) // admission policies give no type
	})
}

// rejectedNodePorts returns the messages of the API server about the requested node ports that it rejects, by port
// name. numbers reports whether they are about the numbers, for example because these are allocated. Otherwise a policy
// may forbid node ports, and all count as rejected, unless onlyNumbers. Server errors, which may pass, reject none.
func rejectedNodePorts(err error, requested map[string]int32, onlyNumbers bool) (rejected map[string]string, numbers bool) {
	status := rejection(err)
	if status == nil || status.Code == http.StatusInternalServerError {
		return nil, false
	}
	rejected = map[string]string{}
	for _, cause := range ptr.Deref(status.Details, metav1.StatusDetails{}).Causes {
		for name, number := range requested {
			if strings.HasSuffix(cause.Field, "].nodePort") && strings.Contains(cause.Message, fmt.Sprintf(" %d:", number)) {
				rejected[name] = cause.Message
			}
		}
	}
	if len(rejected) > 0 || onlyNumbers {
		return rejected, true
	}
	for name := range requested {
		rejected[name] = status.Message
	}
	return rejected, false
}
