package listener

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/conflict"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/message"
)

// ensure applies the Service and then the objects of the backend, and records the applied objects in o. A refusal means
// that an object cannot become as desired, and stays as it is. It may come with an error, if the API server may later
// accept what it rejects now, for example a node port that is in use.
func (r *Reconciler) ensure(ctx context.Context, o *observed) (*exposure.Refusal, error) {
	desired, err := r.namedService(ctx, o)
	var sharedPorts map[string]int32
	var giveBack func()
	if err == nil && !o.serviceTerminating() {
		desired, sharedPorts, giveBack, err = r.withSharedPorts(o, desired)
	}
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generating service %s: %w", client.ObjectKeyFromObject(o.listener), err)
	}
	if o.serviceTerminating() {
		return nil, nil //nolint:nilnil // nothing is refused: it is created again after its deletion
	}
	err = r.applyDesiredService(ctx, o, desired)
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		giveBack()
		return refusal, nil
	}
	if message, ok := rejection(err); ok {
		giveBack()
		if isFinal(err) {
			err = nil
		}
		return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "the API server rejects Service %s: %s",
			client.ObjectKeyFromObject(o.listener), message), err
	}
	if err != nil || o.nodePortWait > 0 {
		return nil, err
	}
	r.setSharedPorts(o, sharedPorts)
	return r.ensureObjects(ctx, o)
}

// namedService returns the Service to apply now, with the name of the class, which no other Listener has. The error is
// a *exposure.Refusal if there can be no Service.
func (r *Reconciler) namedService(ctx context.Context, o *observed) (*corev1ac.ServiceApplyConfiguration, error) {
	desired, err := desiredService(o)
	if err != nil {
		return nil, err
	}
	if desired, err = host.WithAnnotations(o.forBackend(o.backend), desired); err != nil {
		return nil, err
	}
	return desired, r.claimHosts(ctx, o, hostsOfService, desiredName(o.class, desired))
}

// desiredService returns the Service to apply now. While a previous exposure depends on the type of the existing
// Service, the type stays. The error is a *exposure.Refusal if there can be no Service.
func desiredService(o *observed) (*corev1ac.ServiceApplyConfiguration, error) {
	switch {
	case o.foreign != nil:
		return nil, exposure.Refuse(listenersv1alpha1.ReasonForeignService,
			"Service %s already exists and %s; delete the Service, or give the Listener another name",
			client.ObjectKeyFromObject(o.foreign), controllerOf(o.foreign))
	case o.listener.Class() == "":
		return nil, exposure.Refuse(listenersv1alpha1.ReasonClassNotSet, "spec.className is not set; name a ListenerClass there")
	case o.notAllowed != nil:
		return nil, o.notAllowed
	case o.class == nil:
		return nil, exposure.Refuse(listenersv1alpha1.ReasonClassNotFound,
			"ListenerClass %q does not exist; create it, or name another one in spec.className%s",
			message.Printable(o.listener.Class(), validation.DNS1123SubdomainMaxLength), o.serviceKeptNote())
	}
	desired, err := exposure.Service(o.class, o.listener)
	if err != nil || !o.removesEntryPoint(desired) {
		return desired, err
	}
	if desired, err = exposure.Service(o.classWithCurrentServiceType(), o.listener); err == nil {
		// A stale cache must not restore a type that was just removed.
		desired.WithResourceVersion(o.service.ResourceVersion)
	}
	return desired, err
}

// removesEntryPoint reports whether the desired Service removes the node ports or the load balancer of the existing
// one. It is false for the plain Service backend, whose own addresses depend on the type of the Service.
func (o *observed) removesEntryPoint(desired *corev1ac.ServiceApplyConfiguration) bool {
	if o.backend.PlainService() || o.service == nil || *desired.Spec.Type == o.service.Spec.Type {
		return false
	}
	return o.service.Spec.Type == corev1.ServiceTypeNodePort || o.service.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// serviceTypeDiffers reports whether the type of the existing Service differs from that of the class.
func (o *observed) serviceTypeDiffers() bool {
	return o.service.Spec.Type != "" && listenersv1alpha1.ServiceType(o.service.Spec.Type) != o.class.Spec.ServiceType
}

// classWithCurrentServiceType returns the class with the type of the existing Service, and its settings that depend on
// the type.
func (o *observed) classWithCurrentServiceType() *listenersv1alpha1.ListenerClass {
	class, spec := o.class.DeepCopy(), &o.service.Spec
	class.Spec.ServiceType = listenersv1alpha1.ServiceType(spec.Type)
	class.Spec.ServiceExternalTrafficPolicy = nil
	if spec.ExternalTrafficPolicy != "" {
		class.Spec.ServiceExternalTrafficPolicy = &spec.ExternalTrafficPolicy
	}
	class.Spec.LoadBalancerClass = spec.LoadBalancerClass
	class.Spec.LoadBalancerAllocateNodePorts = spec.AllocateLoadBalancerNodePorts
	return class
}

// controllerOf describes the controller of an object in a message.
func controllerOf(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "has no controller"
	}
	return fmt.Sprintf("is controlled by %s %s with UID %s", owner.Kind, owner.Name, owner.UID)
}

// serviceKeptNote is the part of a message which states that the Service of a deleted class stays.
func (o *observed) serviceKeptNote() string {
	if o.service == nil {
		return ""
	}
	return "; until then, Service " + client.ObjectKeyFromObject(o.service).String() + " and the addresses do not change"
}

// serviceTerminating reports whether the Listener's Service, or that of an earlier Listener of this name, is being
// deleted.
func (o *observed) serviceTerminating() bool {
	return o.earlier || o.service != nil && !o.service.DeletionTimestamp.IsZero()
}

// applyService applies the Service and records the result in o.
func (r *Reconciler) applyService(ctx context.Context, o *observed, service *corev1ac.ServiceApplyConfiguration) error {
	desired, err := apply.Unstructured(service)
	if err != nil {
		return err
	}
	var existing client.Object
	if o.service != nil {
		existing = o.service
	}
	result, err := r.applier.Apply(ctx, desired, existing)
	if err != nil {
		return err
	}
	if result != apply.Unchanged {
		o.service = &corev1.Service{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o.service); err != nil {
			return fmt.Errorf("reading the applied service %s: %w", client.ObjectKeyFromObject(desired), err)
		}
	}
	return r.removeForeignPorts(ctx, o, service)
}

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

// isUnrelated reports whether a rejection says nothing about the object: its namespace is being deleted, or the API
// server has just started. With the admission plugin OwnerReferencesPermissionEnforcement, as on OpenShift, it rejects
// owners of a kind that it has not discovered, for up to half a minute.
func isUnrelated(err error) bool {
	return conflict.IsTerminating(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot find RESTMapping")
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
