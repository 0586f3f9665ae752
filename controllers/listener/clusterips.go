package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// errReleasing means that the API server has not deallocated the cluster IP of a deleted Service yet.
var errReleasing = errors.New("the cluster IP of the deleted Service is not free yet")

// applyWithClusterIPs creates the planned Service with cluster IPs in the ranges of the class, at first those that the
// Listener publishes. The API server decides who has an address: instead of those that it rejects because another
// Service has them, others are requested. As with node ports, only this one request contains them.
func (w *serviceWriter) applyWithClusterIPs(ctx context.Context, s *snapshot, p *plan, o *outcome) error {
	w.clusterIPs.add(s.key(), "")
	last := clusterIPsOf(s.listener)
	refused := sets.New[string]()
	var failure error
	for {
		taken, err := w.clusterIPsOfOthers(ctx, s.listener)
		if err != nil {
			return err
		}
		addresses, refusal := exposure.AllocateClusterIPs(s.class, p.serviceNow, last, func(a netip.Addr) bool {
			return taken.Has(a.String()) || refused.Has(a.String())
		})
		if refusal != nil {
			return cmp.Or[error](failure, refusal) // an address that the API server rejects may be deallocated soon
		}
		failure = w.applyOnce(ctx, s, exposure.WithClusterIPs(p.serviceNow, addresses), o)
		allocated := allocatedClusterIPs(failure, addresses)
		if len(allocated) == 0 || len(refused) >= maxRejected {
			if failure == nil {
				w.clusterIPs.remove(s.key())
				w.releasing.Delete(s.listener.UID)
			}
			return failure
		}
		if slices.ContainsFunc(allocated, func(a string) bool { return slices.Contains(last, a) }) && w.releasing.age(s.listener.UID, "") < releaseTimeout {
			return fmt.Errorf("creating service %s with %s: %w", s.key(), strings.Join(addresses, ", "), errReleasing)
		}
		refused.Insert(allocated...)
	}
}

// clusterIPsOfOthers returns the cluster IPs of all Services, and the IP addresses that other Listeners publish: they
// keep them while their Service is created again.
func (w *serviceWriter) clusterIPsOfOthers(ctx context.Context, listener *listenersv1alpha1.Listener) (sets.Set[string], error) {
	var services corev1.ServiceList
	var listeners listenersv1alpha1.ListenerList
	err := errors.Join(w.client.List(ctx, &services, client.UnsafeDisableDeepCopy), w.client.List(ctx, &listeners, client.UnsafeDisableDeepCopy))
	if err != nil {
		return nil, fmt.Errorf("listing what has cluster IPs: %w", err)
	}
	taken := sets.New[string]()
	for i := range services.Items {
		taken.Insert(services.Items[i].Spec.ClusterIPs...)
	}
	for i := range listeners.Items {
		if other := &listeners.Items[i]; other.UID != listener.UID {
			taken.Insert(clusterIPsOf(other)...)
		}
	}
	return taken, nil
}

// clusterIPsOf returns the IP addresses that lead to the Pods of a Listener.
func clusterIPsOf(listener *listenersv1alpha1.Listener) (addresses []string) {
	for _, a := range listener.Status.TargetAddresses() {
		if a.AddressType == listenersv1alpha1.AddressTypeIP {
			addresses = append(addresses, a.Address)
		}
	}
	return addresses
}

// allocatedClusterIPs returns those of the requested cluster IPs that the API server rejects because another Service
// has them.
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
