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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
)

const (
	// releaseTimeout is how long the controller waits for node ports that the API server reports as allocated although
	// no Service has them. The API server deallocates the node ports of a Service only after it has deleted the
	// Service.
	releaseTimeout = 10 * time.Second
	// releaseInterval is the time until the first of the repeated requests. The intervals double.
	releaseInterval = 100 * time.Millisecond
)

// maxRefused is the number of node ports of a range that the API server may reject, although no Service in the cache
// has them, until the Service is retried later.
const maxRefused = 16

// applyDesiredService applies the Service. If the Service lost its node ports, because it was deleted or had another
// type, it requests them again. If the class has a range of node ports, it requests numbers of the range for the ports
// that have none. Instead of those that the API server rejects, it requests others of the range, or Kubernetes
// allocates them. The error is a *exposure.Refusal if the range is exhausted.
//
// Only this one request contains them. The next apply gives up the ownership of these fields, and the API server keeps
// the node ports of a Service although an apply does not contain them.
//
// If the class has node ports lead to the container ports of the same numbers, the Service is applied again when the
// API server has allocated some. No address is published in between.
func (r *Reconciler) applyDesiredService(ctx context.Context, o *observed, desired *corev1ac.ServiceApplyConfiguration) error {
	lost := exposure.LostNodePorts(desired, o.service, lastNodePorts(o.listener.Status))
	refused := sets.New[int32]()
	var failure error
	for {
		requested, giveBack, err := r.requestedNodePorts(o, desired, lost, refused)
		if err != nil {
			return cmp.Or(failure, err) // a number that the API server rejects may be deallocated soon
		}
		failure = r.applyAllocated(ctx, o, o.withTargetPorts(exposure.WithNodePorts(desired, requested)), giveBack)
		rejected, numbers := rejectedNodePorts(failure, requested)
		switch {
		case failure == nil:
			r.waiting.Delete(o.listener.UID)
			return r.applyTargetPorts(ctx, o, desired)
		case len(rejected) == 0, o.class.NodePortRange() != "" && (!numbers || len(refused) >= maxRefused):
			return failure
		}
		if numbers {
			wait, err := r.waitForRelease(ctx, o, rejected, lost)
			if err != nil || wait > 0 {
				o.nodePortWait = wait
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

// applyAllocated applies the Service, and gives back the numbers that were allocated for it if the API server rejects
// it.
func (r *Reconciler) applyAllocated(ctx context.Context, o *observed, service *corev1ac.ServiceApplyConfiguration, giveBack func()) error {
	err := r.applyService(ctx, o, service)
	if _, rejected := rejection(err); rejected {
		giveBack()
	}
	return err
}

// requestedNodePorts returns the node ports to request, by port name: those that the Service lost and, if the class has
// a range, numbers of the range for other ports that have none, except those that the API server refused. giveBack is
// for the case that the API server rejects them. The error is a *exposure.Refusal if there are none.
func (r *Reconciler) requestedNodePorts(o *observed, desired *corev1ac.ServiceApplyConfiguration, lost map[string]int32, refused sets.Set[int32],
) (requested map[string]int32, giveBack func(), _ error) {
	if o.class.NodePortRange() == "" {
		return lost, func() {}, nil
	}
	from, err := portRange(o.class, "nodePorts.range", o.class.NodePortRange(), o.class.Spec.NodePorts.MaxPortsPerNamespace)
	if err != nil {
		return nil, nil, err
	}
	requested, giveBack, err = r.nodePorts.Allocate(client.ObjectKeyFromObject(o.listener), from, func(taken func(int32) bool) (map[string]int32, error) {
		allocated, without := exposure.AllocateNodePorts(desired, o.service, lost, from.PortRange, func(number int32) bool {
			return refused.Has(number) || taken(number)
		})
		if without != "" {
			return nil, exposure.Refuse(listenersv1alpha1.ReasonNodePortsExhausted, "no node port is left for port %s: other Services and Listeners have all of %s; "+
				"extend spec.nodePorts.range of ListenerClass %s, or delete Listeners", without, o.class.NodePortRange(), o.class.Name)
		}
		maps.Copy(allocated, lost)
		return allocated, nil
	})
	return requested, giveBack, refuseOverLimit(err, o, "nodePorts.maxPortsPerNamespace", from)
}

// applyTargetPorts applies the Service again if its node ports have to lead to the container ports of the same numbers,
// which the API server may just have allocated.
func (r *Reconciler) applyTargetPorts(ctx context.Context, o *observed, desired *corev1ac.ServiceApplyConfiguration) error {
	if !o.targetsNodePorts(desired) {
		return nil
	}
	return r.applyService(ctx, o, o.withTargetPorts(desired))
}

// withTargetPorts returns the Service with target ports that are its node ports, if they have to be.
func (o *observed) withTargetPorts(desired *corev1ac.ServiceApplyConfiguration) *corev1ac.ServiceApplyConfiguration {
	if !o.targetsNodePorts(desired) {
		return desired
	}
	return exposure.WithTargetPorts(desired, o.service)
}

// targetsNodePorts reports whether the node ports of the Service have to lead to the container ports of the same
// numbers: because the class says so or, while a previous exposure depends on the type of the Service, because they do.
func (o *observed) targetsNodePorts(desired *corev1ac.ServiceApplyConfiguration) bool {
	switch {
	case ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort:
		return false
	case o.class.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort:
		return o.class.TargetsNodePorts()
	default:
		return o.service != nil && slices.ContainsFunc(o.service.Spec.Ports, func(p corev1.ServicePort) bool { return exposure.TargetsNodePort(&p) })
	}
}

// lastNodePorts returns the last node ports of a Listener's Service, by port name.
func lastNodePorts(status *listenersv1alpha1.ListenerStatus) map[string]int32 {
	switch {
	case status == nil:
		return nil
	case len(status.NodePorts) > 0:
		return status.NodePorts
	default:
		return status.LastNodePorts
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

// waitForRelease returns how long to wait for rejected node ports, of those that the Service lost, that no Service has:
// the API server deallocates the node ports of a Service only after it has deleted the Service. It returns 0 if other
// Services have them all, or if the wait has timed out, which starts with the first call.
func (r *Reconciler) waitForRelease(ctx context.Context, o *observed, rejected map[string]string, lost map[string]int32) (time.Duration, error) {
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing services: %w", err)
	}
	used := sets.New[int32]()
	for i := range services.Items {
		for _, p := range services.Items[i].Spec.Ports {
			used.Insert(p.NodePort)
		}
	}
	for name := range rejected {
		if number, ok := lost[name]; ok && !used.Has(number) {
			return r.remainingWait(o.listener.UID), nil
		}
	}
	return 0, nil
}

// remainingWait returns the time until the next request of node ports that are not deallocated yet, or 0 if the wait
// has timed out. The intervals double.
func (r *Reconciler) remainingWait(listener types.UID) time.Duration {
	waited := r.clock.Since(r.waiting.since(listener, "", r.clock.Now()))
	return max(min(max(waited, releaseInterval), releaseTimeout-waited), 0)
}

// emitNodePortEvent emits an event if the Service has other node ports than before, unless overrides set them. It
// compares statuses, and so does not depend on which process applied the Service.
func (r *Reconciler) emitNodePortEvent(o *observed, before, after *listenersv1alpha1.ListenerStatus) {
	last := lastNodePorts(before)
	if len(last) == 0 || o.class == nil {
		return
	}
	desired, err := exposure.Service(o.class, o.listener)
	if err != nil {
		return // overrides do not apply
	}
	fixed := exposure.FixedNodePorts(desired)
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(after.NodePorts)) {
		was, known := last[name]
		if _, isFixed := fixed[name]; !known || isFixed || was == after.NodePorts[name] {
			continue
		}
		change := fmt.Sprintf("%s: %d instead of %d", name, after.NodePorts[name], was)
		if reason, ok := o.rejectedNodePorts[name]; ok {
			change += " (" + reason + ")"
		}
		changes = append(changes, change)
	}
	if len(changes) == 0 {
		return
	}
	users := "clients have to use"
	if o.class.TargetsNodePorts() {
		users += ", and programs have to listen on"
	}
	text := fmt.Sprintf("Service %s has other node ports than before, which %s: %s", client.ObjectKeyFromObject(o.listener), users, strings.Join(changes, "; "))
	r.Events.Eventf(o.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonNodePortsChanged, "Reconcile", "%s", message.Printable(text, message.MaxEvent))
}
