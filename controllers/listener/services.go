package listener

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/portallocator"
)

const (
	// releaseTimeout is how long the controller waits for node ports and cluster IPs that the API server reports as
	// allocated although no Service has them: it deallocates those of a Service only after it has deleted the Service.
	releaseTimeout = 10 * time.Second
	// releaseInterval is the time until the first of the repeated requests. The intervals double.
	releaseInterval = 100 * time.Millisecond
	// maxRejected is how many node ports or cluster IPs of a range the API server may reject until the Service is
	// retried later.
	maxRejected = 16
)

// serviceWriter writes the Services of Listeners.
type serviceWriter struct {
	client  client.Client
	applier *apply.Applier
	events  events.EventRecorder
	// nodePorts has the node ports that are not available.
	nodePorts *portallocator.Allocator
	// releasing is since when Listeners wait for the node ports or cluster IPs of their deleted Service.
	releasing periods
}

// apply applies the planned Service, with cluster IPs or node ports of the class's ranges if it needs some.
func (w *serviceWriter) apply(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	if o.service == nil && exposure.RequestsClusterIPs(s.class, p.serviceNow) {
		return w.applyWithClusterIPs(ctx, s, p, o)
	}
	return w.applyWithNodePorts(ctx, s, p, o)
}

// applyWithNodePorts applies the planned Service. If the Service lost its node ports, because it was deleted or had
// another type, it requests them again. If the class has a range of node ports, it requests numbers of the range for
// the ports that have none. Instead of those that the API server rejects, it requests others of the range, or
// Kubernetes allocates them.
//
// Only this one request contains them. The next apply gives up the ownership of these fields, and the API server keeps
// the node ports of a Service although an apply does not contain them.
//
// If the class has node ports lead to the container ports of the same numbers, the Service is applied again when the
// API server has allocated some. No address is published in between.
func (w *serviceWriter) applyWithNodePorts(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	lost := exposure.LostNodePorts(p.serviceNow, s.service, lastNodePorts(ptr.Deref(s.listener.Status, listenersv1alpha1.ListenerStatus{})))
	refused := sets.New[int32]()
	var failure error
	for {
		requested, release, err := w.allocate(s, p.serviceNow, lost, refused)
		if err != nil {
			return cmp.Or(failure, err) // a number that the API server rejects may be deallocated soon
		}
		desired, _ := withTargetPorts(s, o.service, exposure.WithNodePorts(p.serviceNow, requested))
		failure = w.applyOnce(ctx, s, desired, o)
		if rejection(failure) != nil {
			release()
		}
		rejected, numbers := rejectedNodePorts(failure, requested, s.class.NodePortRange() != "")
		switch {
		case failure == nil:
			w.releasing.Delete(s.listener.UID)
			return w.applyTargetPorts(ctx, s, p, o)
		case len(rejected) == 0, s.class.NodePortRange() != "" && len(refused) >= maxRejected:
			return failure
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
// numbers of the range for other ports that have none, except the refused ones. release gives them back.
func (w *serviceWriter) allocate(s *snapshot, desired *corev1ac.ServiceApplyConfiguration, lost map[string]int32, refused sets.Set[int32],
) (requested map[string]int32, release func(), _ error) {
	if s.class.NodePortRange() == "" {
		return lost, func() {}, nil
	}
	return nodePortRange(s.class).allocate(w.nodePorts, s.key(), func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
		allocated, without := exposure.AllocateNodePorts(desired, s.service, lost, from, func(number int32) bool {
			return refused.Has(number) || taken(number)
		})
		if allocated == nil { // the Service is not of type NodePort
			return lost, without
		}
		maps.Copy(allocated, lost)
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
	return w.removeForeignPorts(ctx, s, service, o)
}

// removeForeignPorts removes the ports of the Service that the applied one does not have. Server-side apply keeps them,
// and they would expose more of the Pods than the class allows, and be published.
func (w *serviceWriter) removeForeignPorts(ctx context.Context, s *snapshot, applied *corev1ac.ServiceApplyConfiguration, o *outcome) error {
	own := sets.New[string]()
	for i := range applied.Spec.Ports {
		p := &applied.Spec.Ports[i]
		own.Insert(fmt.Sprintf("%d/%s", ptr.Deref(p.Port, 0), ptr.Deref(p.Protocol, corev1.ProtocolTCP)))
	}
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": o.service.ResourceVersion}}
	var foreign []string
	for i, p := range slices.Backward(o.service.Spec.Ports) {
		if port := fmt.Sprintf("%d/%s", p.Port, p.Protocol); !own.Has(port) {
			operations = append(operations, map[string]any{"op": "remove", "path": fmt.Sprintf("/spec/ports/%d", i)})
			foreign = append(foreign, port)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding a patch of service %s: %w", s.key(), err)
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = o.service.Namespace, o.service.Name
	if err := w.client.Patch(ctx, service, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(names.FieldManagerService)); err != nil {
		return fmt.Errorf("removing ports of others from service %s: %w", s.key(), err)
	}
	o.service = service
	text := message.Printable(strings.Join(foreign, ", "), message.MaxEvent/2)
	log.FromContext(ctx).Info("Removed ports that others had added to the Service", "ports", text)
	w.events.Eventf(s.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignPortsRemoved, "Reconcile",
		"another client had added the ports %s to the Service; add them to spec.ports of the Listener instead", text)
	return nil
}

// applyTargetPorts applies the Service again if it has to target its node ports, which may just have been allocated.
func (w *serviceWriter) applyTargetPorts(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	if desired, ok := withTargetPorts(s, o.service, p.serviceNow); ok {
		return w.applyOnce(ctx, s, desired, o)
	}
	return nil
}

// withTargetPorts returns a Service whose node ports, which may be those of the existing one, lead to the container
// ports of the same numbers, if they have to: because the class says so or, while a previous exposure depends on the
// type of the Service, because they do. Otherwise it returns the desired Service, and false.
func withTargetPorts(s *snapshot, existing *corev1.Service, desired *corev1ac.ServiceApplyConfiguration) (*corev1ac.ServiceApplyConfiguration, bool) {
	have := s.class.TargetsNodePorts()
	if s.class.Spec.ServiceType != listenersv1alpha1.ServiceTypeNodePort {
		have = existing != nil && slices.ContainsFunc(existing.Spec.Ports, func(p corev1.ServicePort) bool { return exposure.TargetsNodePort(&p) })
	}
	if !have || ptr.Deref(desired.Spec.Type, "") != corev1.ServiceTypeNodePort {
		return desired, false
	}
	return exposure.WithTargetPorts(desired, existing), true
}

// untilReleased returns how long to wait for rejected node ports that the Service lost, and that no Service has. It
// returns 0 if other Services have them all, or if the wait has timed out, which starts with the first call.
func (w *serviceWriter) untilReleased(ctx context.Context, listener types.UID, rejected map[string]string, lost map[string]int32) (time.Duration, error) {
	var all corev1.ServiceList
	if err := w.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing services: %w", err)
	}
	used := sets.New[int32]()
	for i := range all.Items {
		used = used.Union(portallocator.Numbers(exposure.NodePortsOf(&all.Items[i])))
	}
	for name := range rejected {
		if number, ok := lost[name]; ok && !used.Has(number) {
			waited := w.releasing.age(listener, "")
			return max(min(max(waited, releaseInterval), releaseTimeout-waited), 0), nil
		}
	}
	return 0, nil
}
