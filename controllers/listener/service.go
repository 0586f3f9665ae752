package listener

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// ensure applies the Service that the Listener should have, and then what its backend layers over it, and records in o
// what came of it. A refusal means that something cannot be as it should: then what exists of it is left as it is. A
// refusal may come with an error: what the API server rejects today it may take tomorrow, for example a node port that
// is in use.
func (r *Reconciler) ensure(ctx context.Context, o *observed) (*exposure.Refusal, error) {
	desired, err := decide(o)
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		return refusal, nil
	}
	if err != nil {
		return nil, fmt.Errorf("making the service: %w", err)
	}
	if o.terminating() {
		return nil, nil //nolint:nilnil // nothing was refused: it is made anew when it is gone
	}
	err = r.applyService(ctx, o, desired)
	if message, ok := rejected(err); ok {
		return exposure.Refuse(listenersv1alpha1.ReasonServiceRejected, "the API server rejects Service %s: %s",
			client.ObjectKeyFromObject(o.listener), message), err
	}
	if err != nil {
		return nil, err
	}
	return r.ensureObjects(ctx, o)
}

// decide returns the Service that the Listener should have for now, or a *exposure.Refusal.
func decide(o *observed) (*corev1ac.ServiceApplyConfiguration, error) {
	switch {
	case o.foreign != nil:
		return nil, exposure.Refuse(listenersv1alpha1.ReasonForeignService,
			"Service %s exists and is not controlled by this Listener but by %s; delete the Service, or give the Listener another name",
			client.ObjectKeyFromObject(o.foreign), controllerOf(o.foreign))
	case o.listener.Class() == "":
		return nil, exposure.Refuse(listenersv1alpha1.ReasonClassNotSet, "spec.className is not set; name a ListenerClass there")
	case o.class == nil:
		return nil, exposure.Refuse(listenersv1alpha1.ReasonClassNotFound,
			"ListenerClass %q does not exist; create it, or name another one in spec.className%s", o.listener.Class(), o.kept())
	}
	desired, err := exposure.Service(o.class, o.listener)
	if err != nil || !o.narrows(desired) {
		return desired, err
	}
	if desired, err = exposure.Service(o.classOfCurrentType(), o.listener); err == nil {
		// A cache that lags behind must not open again what has just been closed.
		desired.WithResourceVersion(o.service.ResourceVersion)
	}
	return desired, err
}

// narrows tells whether the desired Service closes a way in that the one which exists has, while the addresses to come
// do not depend on the Service's type. Then that way stays open until they stand.
func (o *observed) narrows(desired *corev1ac.ServiceApplyConfiguration) bool {
	if o.backend.PlainService() || o.service == nil || *desired.Spec.Type == o.service.Spec.Type {
		return false
	}
	return o.service.Spec.Type == corev1.ServiceTypeNodePort || o.service.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// serviceTypeDiffers reports whether the existing Service has another type than the class asks for.
func (o *observed) serviceTypeDiffers() bool {
	return o.service.Spec.Type != "" && listenersv1alpha1.ServiceType(o.service.Spec.Type) != o.class.Spec.ServiceType
}

// classOfCurrentType returns the class with the type, and the settings that depend on it, of the existing Service.
func (o *observed) classOfCurrentType() *listenersv1alpha1.ListenerClass {
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

func controllerOf(o metav1.Object) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return "no one"
	}
	return fmt.Sprintf("%s %s with uid %s", owner.Kind, owner.Name, owner.UID)
}

// kept is the part of a message that says what becomes of a Service whose class is gone.
func (o *observed) kept() string {
	if o.service == nil {
		return ""
	}
	return "; until then Service " + client.ObjectKeyFromObject(o.service).String() + " and the addresses stay as they are"
}

// terminating tells whether the Listener's Service is being deleted.
func (o *observed) terminating() bool {
	return o.service != nil && !o.service.DeletionTimestamp.IsZero()
}

func (r *Reconciler) applyService(ctx context.Context, o *observed, service *corev1ac.ServiceApplyConfiguration) error {
	desired, err := apply.Unstructured(service)
	if err != nil {
		return err
	}
	var existing client.Object
	if o.service != nil {
		existing = o.service
	}
	if result, err := r.applier.Apply(ctx, desired, existing); err != nil || result == apply.Unchanged {
		return err
	}
	o.service = &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o.service); err != nil {
		return fmt.Errorf("reading the applied service %s: %w", client.ObjectKeyFromObject(desired), err)
	}
	return nil
}

// rejected tells whether an error means that the API server, or an admission webhook, does not want the object, and
// returns its message. An internal error is one: so the API server reports that no node port or cluster IP is left.
func rejected(err error) (message string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return status.Status().Message, true
	default:
		return "", false
	}
}
