package write

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// rejection returns the status with which the API server, or an admission webhook, rejects an object, or nil. An
// internal error rejects it, too: no node port or cluster IP is free. A namespace that is being deleted says nothing
// about the object, nor does an API server that has just started: with the plugin OwnerReferencesPermissionEnforcement,
// as on OpenShift, it rejects owners of a kind that it has not discovered, for up to half a minute.
func rejection(err error) *metav1.Status {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || requests.IsTerminating(err) || apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), "cannot find RESTMapping") {
		return nil
	}
	switch rejected.ErrStatus.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return &rejected.ErrStatus
	}
	return nil
}

// asRefusal returns an error as a refusal, if it is one or a rejection. retry is what the API server may accept later.
func asRefusal(err error, s *observe.Snapshot) (refusal *exposure.Refusal, retry error) {
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	status := rejection(err)
	if status == nil {
		return nil, err
	}
	if isFinal(status) {
		err = nil
	}
	reason, remedy := remedyOf(status, s)
	return exposure.Refuse(reason, "the API server rejects Service %s: %s; %s", s.ServiceKey(), status.Message, remedy),
		err
}

// remedyOf returns the reason of a rejected Service, and who has to do what about it, which depends on who rejects: a
// quota, an allocator, an admission policy or webhook, the authorization, or the validation.
func remedyOf(status *metav1.Status, s *observe.Snapshot) (reason, remedy string) {
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(status.Message, w) })
	}
	reason = listenersv1alpha1.ReasonServiceRejected
	switch overridden := len(s.Listener.Spec.ObjectOverrides) > 0 || len(s.Class.Spec.ServiceOverrides.Raw) > 0; {
	case requests.ExceededQuota(&apierrors.StatusError{ErrStatus: *status}) != "":
		return listenersv1alpha1.ReasonQuotaExceeded,
			"delete Services or Listeners of the namespace, or ask an administrator to raise the ResourceQuota"
	case says("provided port is not in the valid range", "provided IP is not in the valid range",
		"provided network does not match the current range"):
		remedy = remedyOfRange(s.Class)
	case says("provided port is already allocated", "provided IP is already allocated"):
		remedy = "set another number in the overrides, or delete the Service that has it"
	case says("failed to allocate", "range is full"):
		remedy = "delete Services of the cluster, or ask an administrator to extend its range"
	case says("admission webhook", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
		remedy = "ask the administrator of this admission policy or webhook"
	case status.Reason == metav1.StatusReasonForbidden && says(" cannot "):
		remedy = "ask an administrator to find out which permission the operator lacks: kubectl listener doctor"
	case overridden:
		remedy = "correct it in the overrides of the Listener or of its class"
	default:
		remedy = "correct it in the Listener or in its class"
	}
	return reason, remedy
}

func remedyOfRange(class *listenersv1alpha1.ListenerClass) string {
	switch {
	case class.NodePortRange() != "":
		return "ask an administrator to correct spec.nodePorts.range of ListenerClass " + class.Name +
			": the cluster has another range"
	case class.Spec.ClusterIPs != nil:
		return fmt.Sprintf("ask an administrator to create a ServiceCIDR (networking.k8s.io/v1) whose spec.cidrs "+
			"contain %s, or to correct spec.clusterIPs.cidrs of ListenerClass %s",
			strings.Join(exposure.FormatClients(class.ClusterIPRanges()), ", "), class.Name)
	}
	return "correct the node port in the overrides, or the cluster IP: the cluster has another range"
}

// allocated are the fields of a Service that the API server allocates, and rejects while another Service has the value.
var allocated = regexp.MustCompile(`(?i)(nodePort|clusterIPs?|ipFamil\w+)(\[\d+\])?$`)

// isFinal reports whether the API server rejects a Service because of what is in it, so that only a change of watched
// objects can help: the Listener, its class or the Service, rather than other Services, quotas or policies.
func isFinal(status *metav1.Status) bool {
	if status.Reason != metav1.StatusReasonInvalid || status.Details == nil {
		return false
	}
	causes := status.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type == "" || allocated.MatchString(c.Field) // admission policies give no type
	})
}

// refusesHealthCheck reports whether the API server rejects the requested health check node port, which is a server
// error.
func refusesHealthCheck(status *metav1.Status, requested map[string]int32) bool {
	number, ok := requested[exposure.HealthCheck]
	return ok && status != nil && strings.Contains(status.Message, fmt.Sprintf("HealthCheck NodePort %d:", number))
}

// refusedNodePorts returns the messages of the API server about the requested node ports that it rejects, by port
// name. numbers reports whether they are about the numbers. Otherwise a policy may forbid node ports, and all count as
// rejected, unless onlyNumbers. Server errors, which may pass, reject none.
func refusedNodePorts(err error, requested map[string]int32,
	onlyNumbers bool) (rejected map[string]string, numbers bool) {
	status := rejection(err)
	if refusesHealthCheck(status, requested) {
		return map[string]string{exposure.HealthCheck: status.Message}, true
	}
	if status == nil || status.Code == http.StatusInternalServerError {
		return nil, false
	}
	rejected = map[string]string{}
	for _, cause := range ptr.Deref(status.Details, metav1.StatusDetails{}).Causes {
		for name, number := range requested {
			if strings.HasSuffix(cause.Field, "].nodePort") &&
				strings.Contains(cause.Message, fmt.Sprintf(" %d:", number)) {
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
