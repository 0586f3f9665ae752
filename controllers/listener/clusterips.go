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
	last := clusterIPsOf(s.listener)
	// What others publish, they keep while their Service is created again.
	taken := sets.New[string]()
	others := otherListeners(ctx, w.client, s.listener, func(class *listenersv1alpha1.ListenerClass) bool { return class.Spec.ClusterIPs != nil })
	for i := range others {
		taken.Insert(clusterIPsOf(&others[i])...)
	}
	rejected := 0
	var failure error
	for {
		addresses, refusal := exposure.AllocateClusterIPs(s.class, p.serviceNow, last, func(a netip.Addr) bool { return taken.Has(a.String()) })
		if refusal != nil {
			return cmp.Or[error](failure, refusal) // an address that the API server rejects may be deallocated soon
		}
		failure = w.applyOnce(ctx, s, exposure.WithClusterIPs(p.serviceNow, addresses), o)
		allocated := allocatedClusterIPs(failure, addresses)
		if rejected += len(allocated); len(allocated) == 0 || rejected > maxRejected {
			if failure == nil {
				w.releasing.Delete(s.listener.UID)
			}
			return failure
		}
		// Only now, because that reads all Services of the cluster.
		all, err := w.allClusterIPs(ctx)
		if err != nil {
			return err
		}
		released := func(a string) bool { return slices.Contains(last, a) && !all.Has(a) }
		if slices.ContainsFunc(allocated, released) && w.releasing.age(s.listener.UID, "") < releaseTimeout {
			return fmt.Errorf("creating service %s with %s: %w", s.key(), strings.Join(addresses, ", "), errReleasing)
		}
		taken = taken.Union(all).Insert(allocated...)
		if len(all.Intersection(sets.New(allocated...))) == len(allocated) {
			failure = nil // a Service has each of them
		}
	}
}

// allClusterIPs returns the cluster IPs of all Services.
func (w *serviceWriter) allClusterIPs(ctx context.Context) (sets.Set[string], error) {
	var services corev1.ServiceList
	if err := w.client.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing services: %w", err)
	}
	all := sets.New[string]()
	for i := range services.Items {
		all.Insert(services.Items[i].Spec.ClusterIPs...)
	}
	return all, nil
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
