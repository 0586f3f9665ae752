package listener

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hosts gives each host to one Listener. A template gives no two Listeners the same host, but the templates of two
// classes can.
type hosts struct {
	*keys
	reader *reader
}

func newHosts(r *reader, w *waiting) *hosts {
	h := &hosts{reader: r}
	h.keys = newKeys(listenersv1alpha1.ReasonInvalidHost, w, publishedHosts, h.givenHosts)
	return h
}

// reserve makes the hosts of a plan those of the Listener, with those that it still publishes, or returns why it cannot
// have those of the Service or of the objects. A Listener whose objects are refused keeps the hosts that it had.
func (h *hosts) reserve(ctx context.Context, s *snapshot, p servicePlan, desired []exposure.Desired, objectsRefusal *exposure.Refusal) (ofService, ofObjects *exposure.Refusal, _ error) {
	service, objects, err := h.planned(s, p.serviceNow, desired)
	if err != nil {
		return nil, nil, err
	}
	defer h.lock(ctx)()
	if ofService = h.refusal(s, service); ofService != nil {
		return ofService, objectsRefusal, nil
	}
	if ofObjects = objectsRefusal; ofObjects == nil {
		ofObjects = h.refusal(s, objects)
	}
	wanted := sets.New(service...)
	for _, host := range publishedHosts(ctx, s.listener) {
		if h.held[s.key()].Has(host) {
			wanted.Insert(host)
		}
	}
	if ofObjects == nil {
		wanted.Insert(objects...)
	}
	h.set(s.key(), wanted, ofObjects != nil)
	return nil, ofObjects, nil
}

func (h *hosts) refusal(s *snapshot, wanted []string) *exposure.Refusal {
	for _, host := range wanted {
		if holder, taken := h.holders[host]; taken && holder != s.key() {
			return exposure.RefuseTaken(h.reason, "by ListenerClass "+s.class.Name+" the host is", host, holder, "rename the Listener, or use a class whose hosts end differently")
		}
	}
	return nil
}

// planned returns the hosts of the Service, if the class has a template, and of the objects.
func (h *hosts) planned(s *snapshot, service *corev1ac.ServiceApplyConfiguration, objects []exposure.Desired) (ofService, ofObjects []string, _ error) {
	if s.class.Spec.Hostname != nil {
		ofService = []string{service.Annotations[names.AnnotationHostname]}
	}
	for _, desired := range objects {
		kind := s.backend.Generated(desired.GetKind())
		if kind.Hosts == nil {
			continue
		}
		o, err := h.reader.kinds.typed(kind, desired)
		if err != nil {
			return nil, nil, err
		}
		ofObjects = append(ofObjects, kind.Hosts(o)...)
	}
	return ofService, slices.DeleteFunc(ofObjects, func(host string) bool { return host == "" }), nil
}

// publishedHosts returns the host names in the status of a Listener, which may not be those of its class.
func publishedHosts(_ context.Context, listener *listenersv1alpha1.Listener) (hosts []string) {
	for _, a := range listener.Status.TargetAddresses() {
		if a.AddressType == listenersv1alpha1.AddressTypeHostname {
			hosts = append(hosts, a.Address)
		}
	}
	return hosts
}

// givenHosts returns the hosts that the class of a Listener gives it, or none while that cannot be read. Objects do not
// show them: tenants can write some that name a Listener as their controller.
func (h *hosts) givenHosts(ctx context.Context, listener *listenersv1alpha1.Listener) []string {
	s, err := h.reader.snapshot(ctx, listener)
	if err != nil || s.class == nil {
		return nil
	}
	p := planService(s)
	if p.refusal != nil {
		return nil
	}
	objects, _ := planObjects(s, p, exposure.Others{})
	ofService, ofObjects, err := h.planned(s, p.serviceNow, objects)
	if err != nil {
		return nil
	}
	return slices.Concat(ofService, ofObjects)
}
