package listener

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/listener-operator/listener-operator/internal/index"
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
	// maxRejected is how many node ports or cluster IPs of a range the API server may reject at a time.
	maxRejected = 16
)

// serviceWriter writes the Services of Listeners.
type serviceWriter struct {
	client  client.Client
	applier *apply.Applier
	events  events.EventRecorder
	// nodePorts has the node ports that are not available.
	nodePorts *portallocator.Allocator
	since
}

// appliedService is a Service, or nil if there is none yet, and what the API server rejected of it.
type appliedService struct {
	service *corev1.Service
	// rejected are the messages of the API server about rejected node ports, by port name. releasing is the time until
	// node ports or cluster IPs are requested again, or 0.
	rejected  map[string]string
	releasing time.Duration
}

// apply applies the planned Service, with cluster IPs or node ports of the class's ranges if it needs some.
func (w *serviceWriter) apply(ctx context.Context, s *snapshot, p *plan) (appliedService, error) {
	if s.service == nil && exposure.RequestsClusterIPs(s.class, p.serviceNow) {
		return w.applyWithClusterIPs(ctx, s, p)
	}
	return w.applyWithNodePorts(ctx, s, p)
}

// applyWithNodePorts applies the planned Service. If the Service lost its node ports, because it was deleted or had
// another type, it requests them again. If the class has a range of node ports, it requests numbers of the range for
// the ports that have none. Instead of those that the API server rejects, it requests others of the range, or
// Kubernetes allocates them.
//
// Only this one request contains them. The next apply gives up the ownership of these fields, and the API server keeps
// the node ports. If they have to lead to the container ports of the same numbers, the Service is applied again when
// the API server has allocated some. No address is published in between.
func (w *serviceWriter) applyWithNodePorts(ctx context.Context, s *snapshot, p *plan) (appliedService, error) {
	lost, messages := w.lostNodePorts(s, p)
	refused, pending := sets.New[int32](), w.nodePorts.Pending(s.serviceKey())
	service := s.service
	var failure error
	for {
		requested, err := w.allocate(s, p.serviceNow, lost, refused)
		if err != nil {
			return appliedService{service, messages, 0}, cmp.Or(failure, err) // a number that the API server rejects may be deallocated soon
		}
		desired, _ := withTargetPorts(s, service, exposure.WithNodePorts(p.serviceNow, requested))
		service, failure = w.applyOnce(ctx, s, desired, service)
		if rejection(failure) != nil {
			w.nodePorts.SetPending(s.serviceKey(), pending) // as before
		}
		rejected, numbers := refusedNodePorts(failure, requested, s.class.NodePortRange() != "")
		switch {
		case failure == nil:
			w.Delete(deallocation(s.listener.UID))
			if desired, ok := withTargetPorts(s, service, p.serviceNow); ok { // its node ports may just have been allocated
				service, failure = w.applyOnce(ctx, s, desired, service)
			}
			return appliedService{service, messages, 0}, failure
		case len(rejected) == 0, s.class.NodePortRange() != "" && len(refused) >= maxRejected:
			return appliedService{service, messages, 0}, failure
		}
		if numbers {
			if left := w.untilReleased(ctx, s.listener.UID, rejected, lost); left > 0 {
				return appliedService{service, messages, left}, nil
			}
		}
		log.FromContext(ctx).Info("The API server rejects node ports of the Service", "rejections", rejected)
		for name, reason := range rejected {
			refused.Insert(requested[name])
			if _, ok := lost[name]; ok {
				messages[name] = reason
				delete(lost, name)
			}
		}
	}
}

// lostNodePorts returns the node ports that the Service lost, and of those in the annotation of the Listener, which
// count if the status has none, why some are not requested, by port name.
func (w *serviceWriter) lostNodePorts(s *snapshot, p *plan) (lost map[string]int32, refused map[string]string) {
	refused = map[string]string{}
	last, from := lastNodePorts(ptr.Deref(s.listener.Status, listenersv1alpha1.ListenerStatus{})), portallocator.Range{PortRange: utilnet.PortRange{Base: 1, Size: 65535}}
	if len(last) > 0 {
		return exposure.LostNodePorts(p.serviceNow, s.service, last), refused
	}
	if s.class.NodePortRange() != "" {
		from, _ = nodePortRange(s.class).parse() // whose error allocate returns
	}
	existing := s.service
	if existing != nil && isRestored(s.listener, existing) {
		existing = nil // the backup may not have had its node ports
	}
	lost = exposure.LostNodePorts(p.serviceNow, existing, s.remembered.NodePorts)
	for name, number := range lost {
		if !from.Contains(int(number)) {
			refused[name] = "the class has another range"
		} else if w.nodePorts.Taken(s.key(), number) {
			refused[name] = "another Service or Listener has it"
		}
	}
	maps.DeleteFunc(lost, func(name string, _ int32) bool { return refused[name] != "" })
	return lost, refused
}

// allocate returns the node ports to request, by port name: those that the Service lost and, if the class has a range,
// numbers of the range for other ports that have none, except the refused ones.
func (w *serviceWriter) allocate(s *snapshot, desired *corev1ac.ServiceApplyConfiguration, lost map[string]int32, refused sets.Set[int32]) (map[string]int32, error) {
	if s.class.NodePortRange() == "" {
		return lost, nil
	}
	return nodePortRange(s.class).allocate(w.nodePorts, s.serviceKey(), func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
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

// applyOnce applies a Service, and returns the one that exists then.
func (w *serviceWriter) applyOnce(ctx context.Context, s *snapshot, service *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) (*corev1.Service, error) {
	desired, err := apply.Unstructured(service)
	if err != nil {
		return existing, err
	}
	if existing, err = apply.Typed(ctx, w.applier, desired, existing); err != nil {
		return existing, err
	}
	return w.removeForeignPorts(ctx, s, service, existing)
}

// removeForeignPorts removes the ports of the Service that the applied one does not have. Server-side apply keeps them,
// and they would expose more of the Pods than the class allows, and be published.
func (w *serviceWriter) removeForeignPorts(ctx context.Context, s *snapshot, applied *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) (*corev1.Service, error) {
	own, foreign := sets.New[string](), []string{}
	for i := range applied.Spec.Ports {
		p := &applied.Spec.Ports[i]
		own.Insert(fmt.Sprintf("%d/%s", ptr.Deref(p.Port, 0), ptr.Deref(p.Protocol, corev1.ProtocolTCP)))
	}
	service := existing.DeepCopy()
	service.Spec.Ports = slices.DeleteFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		port := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if !own.Has(port) {
			foreign = append(foreign, port)
		}
		return !own.Has(port)
	})
	if len(foreign) == 0 {
		return existing, nil
	}
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, service, patch, client.FieldOwner(names.FieldManagerService)); err != nil {
		return existing, fmt.Errorf("removing ports of others from service %s: %w", s.serviceKey(), err)
	}
	text := message.Printable(strings.Join(foreign, ", "), message.MaxEvent/2)
	log.FromContext(ctx).Info("Removed ports that others had added to the Service", "ports", text)
	w.events.Eventf(s.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignPortsRemoved, "Reconcile",
		"another client had added the ports %s to the Service; add them to spec.ports of the Listener instead", text)
	return service, nil
}

// withTargetPorts returns a Service whose node ports, which may be those of the existing one, lead to the container
// ports of the same numbers, if they have to, by the class or a previous exposure; or else the desired one, and false.
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

// untilReleased returns how long to wait for rejected node ports that the Service lost, and that no Service has, or 0.
func (w *serviceWriter) untilReleased(ctx context.Context, listener types.UID, rejected map[string]string, lost map[string]int32) time.Duration {
	used := ofAllServices(ctx, w.client, func(s *corev1.Service) []int32 { return slices.Collect(maps.Values(exposure.NodePortsOf(s))) })
	for name := range rejected {
		if number, ok := lost[name]; ok && !used.Has(number) {
			return w.releasingIn(listener)
		}
	}
	return 0
}

// releasingIn returns how long to wait until the API server may have deallocated what a Listener lost, or 0 in the end.
func (w *serviceWriter) releasingIn(listener types.UID) time.Duration {
	waited := w.age(deallocation(listener), "")
	return max(min(max(waited, releaseInterval), releaseTimeout-waited), 0)
}

// ofAllServices returns what the Services of the cluster have.
func ofAllServices[T comparable](ctx context.Context, cache client.Reader, has func(*corev1.Service) []T) sets.Set[T] {
	var services corev1.ServiceList
	index.List(ctx, cache, &services)
	all := sets.New[T]()
	for i := range services.Items {
		all.Insert(has(&services.Items[i])...)
	}
	return all
}

// applyWithClusterIPs creates the planned Service with cluster IPs in the ranges of the class: those that the Listener
// publishes, or others if the API server rejects them. As with node ports, only this one request contains them.
func (w *serviceWriter) applyWithClusterIPs(ctx context.Context, s *snapshot, p *plan) (applied appliedService, failure error) {
	last := publishedOf(s.listener, listenersv1alpha1.AddressTypeIP)
	if len(last) == 0 {
		last = s.remembered.ClusterIPs
	}
	// What others publish, they keep while their Service is created again.
	taken := sets.New[string]()
	others := otherListeners(ctx, w.client, s.listener, func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.ClusterIPs != nil })
	for i := range others {
		taken.Insert(publishedOf(&others[i], listenersv1alpha1.AddressTypeIP)...)
	}
	rejected := 0
	for {
		addresses, refusal := exposure.AllocateClusterIPs(s.class, p.serviceNow, last, func(a netip.Addr) bool { return taken.Has(a.String()) })
		if refusal != nil {
			return applied, cmp.Or[error](failure, refusal) // an address that the API server rejects may be deallocated soon
		}
		applied.service, failure = w.applyOnce(ctx, s, exposure.WithClusterIPs(p.serviceNow, addresses), applied.service)
		allocated := allocatedClusterIPs(failure, addresses)
		if rejected += len(allocated); len(allocated) == 0 || rejected > maxRejected {
			if failure == nil {
				w.Delete(deallocation(s.listener.UID))
			}
			return applied, failure
		}
		// Only now, because that reads all Services of the cluster.
		all := ofAllServices(ctx, w.client, func(s *corev1.Service) []string { return s.Spec.ClusterIPs })
		released := func(a string) bool { return slices.Contains(last, a) && !all.Has(a) }
		if slices.ContainsFunc(allocated, released) {
			if applied.releasing = w.releasingIn(s.listener.UID); applied.releasing > 0 {
				return applied, nil
			}
		}
		taken = taken.Union(all).Insert(allocated...)
		if len(all.Intersection(sets.New(allocated...))) == len(allocated) {
			failure = nil // a Service has each of them
		}
	}
}

// allocatedClusterIPs returns the requested cluster IPs that the API server rejects because another Service has them.
func allocatedClusterIPs(err error, requested []string) (allocated []string) {
	status := rejection(err)
	if status == nil || status.Code == http.StatusInternalServerError || !strings.Contains(status.Message, "is already allocated") {
		return nil
	}
	for _, address := range requested {
		if strings.Contains(status.Message, "failed to allocate IP "+address+":") {
			allocated = append(allocated, address)
		}
	}
	return allocated
}
