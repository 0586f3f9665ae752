package listener

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// hosts gives each host to one Listener: the templates of two classes can give two Listeners the same one. The keys say
// which of them has it.
type hosts struct {
	*keys
	*reader
}

// reserve makes the hosts of a plan those of the Listener, with those that it still publishes, or returns why it cannot
// have those of the Service or of the objects. A Listener whose objects are refused keeps the hosts that it had.
func (h *hosts) reserve(ctx context.Context, s *snapshot, p servicePlan, desired []exposure.Desired, objectsRefusal *exposure.Refusal) (ofService, ofObjects *exposure.Refusal, _ error) {
	service, objects, err := h.plannedHosts(s, p.serviceNow, desired)
	if err != nil {
		return nil, nil, err
	}
	defer h.lock(ctx)()
	refusal := func(wanted []string) *exposure.Refusal {
		return h.refusal(s.key(), wanted, "by ListenerClass "+s.class.Name+" the host is", "rename the Listener, or use a class whose hosts end differently")
	}
	if ofService = refusal(service); ofService != nil {
		return ofService, objectsRefusal, nil
	}
	wanted := sets.New(publishedHosts(ctx, s.listener)...).Intersection(h.held[s.key()]).Insert(service...)
	if ofObjects = cmp.Or(objectsRefusal, refusal(objects)); ofObjects == nil {
		wanted.Insert(objects...)
	}
	h.set(s.key(), wanted, ofObjects != nil)
	return nil, ofObjects, nil
}

// plannedHosts returns the hosts of the Service, if the class has a template, and of the objects.
func (r *reader) plannedHosts(s *snapshot, service *corev1ac.ServiceApplyConfiguration, objects []exposure.Desired) (ofService, ofObjects []string, _ error) {
	if s.class.Spec.Hostname != nil {
		ofService = []string{service.Annotations[names.AnnotationHostname]}
	}
	for _, desired := range objects {
		kind := s.backend.Generated(desired.GetKind())
		if kind.Hosts == nil {
			continue
		}
		o, err := r.kinds.typed(kind, desired)
		if err != nil {
			return nil, nil, err
		}
		ofObjects = append(ofObjects, kind.Hosts(o)...)
	}
	return ofService, slices.DeleteFunc(ofObjects, func(host string) bool { return host == "" }), nil
}

// publishedHosts returns the host names in the status of a Listener, which may not be those of its class.
func publishedHosts(_ context.Context, listener *listenersv1alpha1.Listener) []string {
	return publishedOf(listener, listenersv1alpha1.AddressTypeHostname)
}

// givenHosts returns the hosts that the class of a Listener gives it, if that can be read. Objects may be of tenants.
func (r *reader) givenHosts(ctx context.Context, listener *listenersv1alpha1.Listener) []string {
	s, err := r.snapshot(ctx, listener)
	if err != nil || s.class == nil {
		return nil
	}
	p := planService(s)
	if p.refusal != nil {
		return nil
	}
	objects, _ := planObjects(s, p, exposure.Others{})
	ofService, ofObjects, err := r.plannedHosts(s, p.serviceNow, objects)
	if err != nil {
		return nil
	}
	return slices.Concat(ofService, ofObjects)
}
