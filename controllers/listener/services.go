package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

const (
	// releaseTimeout is how long the controller waits for node ports that the API server reports as allocated although
	// no Service has them. The API server deallocates the node ports of a Service only after it has deleted the
	// Service.
	releaseTimeout = 10 * time.Second
	// releaseInterval is the time until the first of the repeated requests. The intervals double.
	releaseInterval = 100 * time.Millisecond
	// maxRejected is the number of node ports of a range that the API server may reject, although no Service in the
	// cache has them, until the Service is retried later.
	maxRejected = 16
)

// serviceWriter writes the Services of Listeners.
type serviceWriter struct {
	client  client.Client
	applier *apply.Applier
	foreign foreignPorts
	// nodePorts has the node ports that are not available.
	nodePorts *portallocator.Allocator
	// releasing is since when Listeners wait until the API server has deallocated the node ports of the deleted
	// Service.
	releasing periods
}

// apply applies the planned Service. If the Service lost its node ports, because it was deleted or had another type, it
// requests them again. If the class has a range of node ports, it requests numbers of the range for the ports that have
// none. Instead of those that the API server rejects, it requests others of the range, or Kubernetes allocates them.
// The error may be a *exposure.Refusal: the range is exhausted.
//
// Only this one request contains them. The next apply gives up the ownership of these fields, and the API server keeps
// the node ports of a Service although an apply does not contain them.
//
// If the class has node ports lead to the container ports of the same numbers, the Service is applied again when the
// API server has allocated some. No address is published in between.
func (w *serviceWriter) apply(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	lost := exposure.LostNodePorts(p.serviceNow, s.service, lastNodePorts(s.listener.Status))
	refused := sets.New[int32]()
	var rejection error
	for {
		requested, release, err := w.allocate(s, p.serviceNow, lost, refused)
		if err != nil {
			return cmp.Or(rejection, err) // a number that the API server rejects may be deallocated soon
		}
		rejection = w.applyOnce(ctx, s, withTargetPorts(s, o.service, exposure.WithNodePorts(p.serviceNow, requested)), o)
		if isRejection(rejection) {
			release()
		}
		rejected, numbers := rejectedNodePorts(rejection, requested)
		switch {
		case rejection == nil:
			w.releasing.Delete(s.listener.UID)
			return w.applyTargetPorts(ctx, s, p, o)
		case len(rejected) == 0, s.class.NodePortRange() != "" && (!numbers || len(refused) >= maxRejected):
			return rejection
		}
		if numbers {
			if o.releasing, err = w.untilReleased(ctx, s.listener.UID, rejected, lost); err != nil || o.releasing > 0 {
				return err
			}
		}
		log.FromContext(ctx).Info("The API server rejects node ports of the Service", "rejections", rejected)
		for name, reason := range rejected {
			refused.Insert(requested[name])
			if _, ok := lost[name]; ok {
				o.rejectedNodePorts[name] = reason
				delete(lost, name)
			}
		}
	}
}

// allocate returns the node ports to request, by port name: those that the Service lost and, if the class has a range,
// numbers of the range for other ports that have none, except those that the API server refused. release is for the
// case that the API server rejects them.
func (w *serviceWriter) allocate(s *snapshot, desired *corev1ac.ServiceApplyConfiguration, lost map[string]int32, refused sets.Set[int32],
) (requested map[string]int32, release func(), _ error) {
	if s.class.NodePortRange() == "" {
		return lost, func() {}, nil
	}
	return nodePortRange(s.class).allocate(w.nodePorts, s.key(), func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
		allocated, without := exposure.AllocateNodePorts(desired, s.service, lost, from, func(number int32) bool {
			return refused.Has(number) || taken(number)
		})
		if without == "" {
			maps.Copy(allocated, lost)
		}
		return allocated, without
	})
}

// applyOnce applies a Service and records the result.
func (w *serviceWriter) applyOnce(ctx context.Context, s *snapshot, service *corev1ac.ServiceApplyConfiguration, o *outcome) error {
	desired, err := apply.Unstructured(service)
	if err != nil {
		return err
	}
	var existing client.Object
	if o.service != nil {
		existing = o.service
	}
	sent, err := w.applier.Apply(ctx, desired, existing)
	if err != nil {
		return err
	}
	if sent {
		o.service = &corev1.Service{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o.service); err != nil {
			return fmt.Errorf("reading the applied service %s: %w", s.key(), err)
		}
	}
	o.service, err = w.foreign.remove(ctx, s.listener, o.service, service)
	return err
}

// applyTargetPorts applies the Service again if its node ports have to lead to the container ports of the same numbers,
// which the API server may just have allocated.
func (w *serviceWriter) applyTargetPorts(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	if !targetsNodePorts(s, o.service, p.serviceNow) {
		return nil
	}
	return w.applyOnce(ctx, s, exposure.WithTargetPorts(p.serviceNow, o.service), o)
}

// withTargetPorts returns a Service with target ports that are the node ports of the existing one, if they have to be.
func withTargetPorts(s *snapshot, existing *corev1.Service, desired *corev1ac.ServiceApplyConfiguration) *corev1ac.ServiceApplyConfiguration {
	if !targetsNodePorts(s, existing, desired) {
		return desired
	}
	return exposure.WithTargetPorts(desired, existing)
}

// targetsNodePorts reports whether the node ports of the Service have to lead to the container ports of the same
// numbers: because the class says so or, while a previous exposure depends on the type of the Service, because they do.
func targetsNodePorts(s *snapshot, existing *corev1.Service, desired *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort:
		return false
	case s.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort:
		return s.class.TargetsNodePorts()
	default:
		return existing != nil && slices.ContainsFunc(existing.Spec.Ports, func(p corev1.ServicePort) bool { return exposure.TargetsNodePort(&p) })
	}
}

// rejectedNodePorts returns the messages of the API server about the requested node ports that it rejects, by port
// name. numbers reports whether the messages are about the numbers, for example because they are allocated. If they are
// not, a policy may forbid the requested node ports, or the rejection has nothing to do with them; then all count
// as rejected. Server errors, which may pass, reject none.
func rejectedNodePorts(err error, requested map[string]int32) (rejected map[string]string, numbers bool) {
	rejected = map[string]string{}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || len(requested) == 0 || isUnrelated(err) {
		return nil, false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
	default:
		return nil, false
	}
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			for name, number := range requested {
				if strings.HasSuffix(cause.Field, "].nodePort") && strings.Contains(cause.Message, fmt.Sprintf(" %d:", number)) {
					rejected[name] = cause.Message
				}
			}
		}
	}
	if len(rejected) > 0 {
		return rejected, true
	}
	for name := range requested {
		rejected[name] = status.Status().Message
	}
	return rejected, false
}

// untilReleased returns how long to wait for rejected node ports, of those that the Service lost, that no Service has:
// the API server deallocates the node ports of a Service only after it has deleted the Service. It returns 0 if other
// Services have them all, or if the wait has timed out, which starts with the first call.
func (w *serviceWriter) untilReleased(ctx context.Context, listener types.UID, rejected map[string]string, lost map[string]int32) (time.Duration, error) {
	var all corev1.ServiceList
	if err := w.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing services: %w", err)
	}
	used := sets.New[int32]()
	for i := range all.Items {
		used.Insert(allocatedNodePorts(&all.Items[i]).UnsortedList()...)
	}
	for name := range rejected {
		if number, ok := lost[name]; ok && !used.Has(number) {
			waited := w.releasing.age(listener, "")
			return max(min(max(waited, releaseInterval), releaseTimeout-waited), 0), nil
		}
	}
	return 0, nil
}
