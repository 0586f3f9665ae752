package write

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
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/holdings"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/controllers/listener/settle"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/registry"
)

const (
	// ReleaseTimeout is how long the controller waits for node ports and cluster IPs that the API server reports as
	// allocated although no Service has them: it deallocates those of a Service only after it has deleted the Service.
	ReleaseTimeout = 10 * time.Second
	// releaseInterval is the time until the first of the repeated requests. The intervals double.
	releaseInterval = 100 * time.Millisecond
	// maxRejected is how many node ports or cluster IPs of a range the API server may reject at a time.
	maxRejected = 16
)

type serviceWriter struct {
	client  client.Client
	applier *apply.Applier
	events  events.EventRecorder
	since   *settle.Since
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
func (w *serviceWriter) apply(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	pass *registry.Pass) (appliedService, error) {
	if s.Objects.Service == nil && exposure.RequestsClusterIPs(s.Class, p.Service.Now) {
		return w.applyWithClusterIPs(ctx, s, p, pass)
	}
	return w.applyWithNodePorts(ctx, s, p, pass)
}

// applyWithNodePorts applies the planned Service. Node ports that the Service lost, because it was deleted or had
// another type, are requested again. If the class has a range, numbers of it are requested for ports that have none.
// Instead of those that the API server rejects, others of the range are requested, or Kubernetes allocates them.
//
// Only this one request contains them. The next apply gives up the ownership of these fields, and the API server keeps
// the node ports. If they have to lead to the container ports of the same numbers, the Service is applied again when
// the API server has allocated some. No address is published in between.
func (w *serviceWriter) applyWithNodePorts(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	pass *registry.Pass) (appliedService, error) {
	lost, messages := w.lostNodePorts(s, p, pass)
	refused := sets.New[int32]()
	service := s.Objects.Service
	var failure error
	for {
		requested, err := w.allocate(s, p.Service.Now, pass, lost, refused)
		if err != nil {
			// A number that the API server rejects may be deallocated soon.
			return appliedService{service, messages, 0}, cmp.Or(failure, err)
		}
		desired, _ := decide.WithTargetPorts(s, service, exposure.WithNodePorts(p.Service.Now, requested))
		service, failure = w.applyOnce(ctx, s, desired, service)
		if rejection(failure) != nil {
			pass.Withdraw(func(key registry.Key) bool { return key.Kind == listenersv1alpha1.WaitingKindNodePort })
		}
		rejected, numbers := refusedNodePorts(failure, requested, s.Class.NodePortRange() != "")
		switch {
		case failure == nil:
			w.since.Delete(settle.Deallocation(s.Listener.UID))
			// Its node ports may just have been allocated.
			if desired, ok := decide.WithTargetPorts(s, service, p.Service.Now); ok {
				service, failure = w.applyOnce(ctx, s, desired, service)
			}
			return appliedService{service, messages, 0}, failure
		case len(rejected) == 0, s.Class.NodePortRange() != "" && len(refused) >= maxRejected:
			return appliedService{service, messages, 0}, failure
		}
		if numbers {
			if left := w.untilReleased(ctx, s.Listener.UID, rejected, lost); left > 0 {
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
func (w *serviceWriter) lostNodePorts(s *observe.Snapshot, p *decide.Plan,
	pass *registry.Pass) (lost map[string]int32, refused map[string]string) {
	refused = map[string]string{}
	last, from := observe.LastNodePorts(ptr.Deref(s.Listener.Status, listenersv1alpha1.ListenerStatus{})),
		registry.Range{PortRange: utilnet.PortRange{Base: 1, Size: 65535}}
	if len(last) > 0 {
		return exposure.LostNodePorts(p.Service.Now, s.Objects.Service, last), refused
	}
	if s.Class.NodePortRange() != "" {
		from, _ = holdings.NodePortRange(s.Class).Parse() // whose error allocate returns
	}
	existing := s.Objects.Service
	if existing != nil && observe.IsRestored(s.Listener, existing) {
		existing = nil // the backup may not have had its node ports
	}
	lost = exposure.LostNodePorts(p.Service.Now, existing, s.Remembered.NodePorts)
	for name, number := range lost {
		if !from.Contains(int(number)) {
			refused[name] = "the class has another range"
		} else if _, taken := pass.HolderOf(registry.Number(listenersv1alpha1.WaitingKindNodePort, number)); taken {
			refused[name] = "another Service or Listener has it"
		}
	}
	if ptr.Deref(s.Objects.Service, corev1.Service{}).Spec.HealthCheckNodePort != 0 { // which never changes
		delete(lost, exposure.HealthCheck)
	}
	maps.DeleteFunc(lost, func(name string, _ int32) bool { return refused[name] != "" })
	return lost, refused
}

// allocate returns the node ports to request, by port name: those that the Service lost and, if the class has a range,
// numbers of the range for other ports that have none, except the refused ones.
func (w *serviceWriter) allocate(s *observe.Snapshot, desired *corev1ac.ServiceApplyConfiguration, pass *registry.Pass,
	lost map[string]int32, refused sets.Set[int32]) (map[string]int32, error) {
	if s.Class.NodePortRange() == "" {
		return lost, nil
	}
	return holdings.NodePortRange(s.Class).Allocate(pass,
		func(from utilnet.PortRange, taken func(int32) bool) (map[string]int32, string) {
			allocated, without := exposure.AllocateNodePorts(desired, s.Objects.Service, lost, from,
				func(number int32) bool {
					return refused.Has(number) || taken(number)
				})
			if allocated == nil { // the Service is not of type NodePort
				return lost, without
			}
			maps.Copy(allocated, lost)
			return allocated, without
		})
}

func (w *serviceWriter) applyOnce(ctx context.Context, s *observe.Snapshot, service *corev1ac.ServiceApplyConfiguration,
	existing *corev1.Service) (*corev1.Service, error) {
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
func (w *serviceWriter) removeForeignPorts(ctx context.Context, s *observe.Snapshot,
	applied *corev1ac.ServiceApplyConfiguration, existing *corev1.Service) (*corev1.Service, error) {
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
		return existing, fmt.Errorf("removing ports of others from service %s: %w", s.ServiceKey(), err)
	}
	text := message.Printable(strings.Join(foreign, ", "), message.MaxEvent/2)
	log.FromContext(ctx).Info("Removed ports that others had added to the Service", "ports", text)
	w.events.Eventf(s.Listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignPortsRemoved, "Reconcile",
		"another client had added the ports %s to the Service; add them to spec.ports of the Listener instead", text)
	return service, nil
}

// untilReleased returns how long to wait for rejected node ports that the Service lost, and that no Service has, or 0.
func (w *serviceWriter) untilReleased(ctx context.Context, listener types.UID, rejected map[string]string,
	lost map[string]int32) time.Duration {
	used := ofAllServices(ctx, w.client, func(s *corev1.Service) []int32 {
		return slices.Collect(maps.Values(exposure.NodePortsOf(s)))
	})
	for name := range rejected {
		if number, ok := lost[name]; ok && !used.Has(number) {
			return w.releasingIn(listener)
		}
	}
	return 0
}

// releasingIn returns how long to wait until the API server may have deallocated what a Listener lost, or 0 in the end.
func (w *serviceWriter) releasingIn(listener types.UID) time.Duration {
	waited := w.since.Age(settle.Deallocation(listener), "")
	return max(min(max(waited, releaseInterval), ReleaseTimeout-waited), 0)
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
func (w *serviceWriter) applyWithClusterIPs(ctx context.Context, s *observe.Snapshot, p *decide.Plan,
	pass *registry.Pass) (applied appliedService, failure error) {
	last := observe.PublishedOf(s.Listener, listenersv1alpha1.AddressTypeIP)
	if len(last) == 0 {
		last = s.Remembered.ClusterIPs
	}
	taken, rejected := sets.New[string](), 0
	for {
		addresses, refusal := reserveClusterIPs(s, p, pass, last, taken)
		if refusal != nil {
			// An address that the API server rejects may be deallocated soon.
			return applied, cmp.Or[error](failure, refusal)
		}
		applied.service, failure = w.applyOnce(ctx, s, exposure.WithClusterIPs(p.Service.Now, addresses),
			applied.service)
		allocated := allocatedClusterIPs(failure, addresses)
		if rejected += len(allocated); len(allocated) == 0 || rejected > maxRejected {
			if failure == nil {
				w.since.Delete(settle.Deallocation(s.Listener.UID))
			}
			return applied, failure
		}
		// Only now, because that reads all Services of the cluster.
		all := ofAllServices(ctx, w.client, func(s *corev1.Service) []string { return s.Spec.ClusterIPs })
		released := func(a string) bool { return slices.Contains(last, a) && !all.Has(a) }
		if slices.ContainsFunc(allocated, released) {
			if applied.releasing = w.releasingIn(s.Listener.UID); applied.releasing > 0 {
				return applied, nil
			}
		}
		taken = taken.Union(all).Insert(allocated...)
		if len(all.Intersection(sets.New(allocated...))) == len(allocated) {
			failure = nil // a Service has each of them
		}
	}
}

// reserveClusterIPs reserves cluster IPs that are free, in place of others that the pass reserved.
func reserveClusterIPs(s *observe.Snapshot, p *decide.Plan, pass *registry.Pass, last []string,
	taken sets.Set[string]) ([]string, *exposure.Refusal) {
	const kind = listenersv1alpha1.WaitingKindClusterIP
	pass.Withdraw(func(key registry.Key) bool { return key.Kind == kind })
	for {
		addresses, refusal := exposure.AllocateClusterIPs(s.Class, p.Service.Now, last, func(a netip.Addr) bool {
			// What others publish, they keep while their Service is created again.
			_, ofOther := pass.HolderOf(registry.Key{Kind: kind, Value: a.String()})
			return ofOther || taken.Has(a.String())
		})
		if refusal != nil || pass.Reserve(registry.Keys(kind, addresses...)...) == nil {
			return addresses, refusal
		}
	}
}

// allocatedClusterIPs returns the requested cluster IPs that the API server rejects because another Service has them.
func allocatedClusterIPs(err error, requested []string) (allocated []string) {
	status := rejection(err)
	if status == nil || status.Code == http.StatusInternalServerError ||
		!strings.Contains(status.Message, "is already allocated") {
		return nil
	}
	for _, address := range requested {
		if strings.Contains(status.Message, "failed to allocate IP "+address+":") {
			allocated = append(allocated, address)
		}
	}
	return allocated
}
