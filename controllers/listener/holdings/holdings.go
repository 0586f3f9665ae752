// Package holdings reserves what only one Listener can have: node ports, ports at shared addresses, cluster IPs, hosts,
// advertised addresses, and what objects of Gateways share. A registry knows who has it; this package tells it what
// objects show, and what a plan needs before it is written. Listeners that need what others have wait, and follow one
// another when it is free.
package holdings

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/decide"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Holdings is safe for concurrent use.
type Holdings struct {
	Waiting  *Waiting
	Registry *registry.Registry
	reader   *observe.Reader

	mu sync.Mutex
	// known states that the registry knows what the Listeners had before the operator started.
	known bool
}

// New returns the Holdings of the Listeners that a reader reads, which then reads the ports at shared addresses, too.
func New(reader *observe.Reader) *Holdings {
	h := &Holdings{Waiting: newWaiting(reader.Client), reader: reader}
	h.Registry = registry.New(h.Waiting.Free)
	reader.SharedPorts = h.sharedPorts
	return h
}

// Plan returns the plan for a snapshot, for which the pass has reserved what it needs, apart from node ports and
// cluster IPs: the API server decides about those.
func (h *Holdings) Plan(ctx context.Context, s *observe.Snapshot) (*decide.Plan, *registry.Pass, error) {
	pass := h.Registry.Begin(s.ServiceKey())
	p := &decide.Plan{Service: decide.ServiceFor(s)}
	if p.Service.Refusal != nil || s.ServiceTerminating() {
		return p, pass, nil
	}
	var err error
	if p.SharedPorts, err = allocateSharedPorts(pass, s, p.Service.Now); err == nil {
		err = h.reserve(ctx, pass, s, nameOf(s, p.Service))
	}
	if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
		p.Service.Refusal = refusal
		return p, pass, nil
	} else if err != nil {
		return p, pass, err
	}
	p.Service.Now = exposure.WithPorts(p.Service.Now, p.SharedPorts)
	return p, pass, h.planObjects(ctx, pass, s, p)
}

// planObjects plans the objects, again if another Listener was faster.
func (h *Holdings) planObjects(ctx context.Context, pass *registry.Pass, s *observe.Snapshot, p *decide.Plan) error {
	for {
		others, err := h.others(ctx, pass, s)
		if err != nil {
			return err
		}
		p.Objects, p.ObjectsRefusal = decide.ObjectsFor(s, p.Service, others)
		if p.ObjectsRefusal != nil {
			return nil
		}
		keys, err := h.reader.Kinds.HeldBy(s.Backend, p.Objects...)
		if err != nil {
			return err
		}
		err = h.reserve(ctx, pass, s, keys)
		if taken, ok := errors.AsType[*registry.TakenError](err); ok &&
			taken.Kind != listenersv1alpha1.WaitingKindHost {
			continue
		}
		if refusal, ok := errors.AsType[*exposure.Refusal](err); ok {
			p.ObjectsRefusal, err = refusal, nil
		}
		return err
	}
}

// reserve reserves keys. The error is a *exposure.Refusal if another Listener has a host.
func (h *Holdings) reserve(ctx context.Context, pass *registry.Pass, s *observe.Snapshot, keys []registry.Key) error {
	err := pass.Reserve(keys...)
	if taken, ok := errors.AsType[*registry.TakenError](err); ok && taken.Kind == listenersv1alpha1.WaitingKindHost {
		return exposure.RefuseTaken(listenersv1alpha1.ReasonInvalidHost, "by ListenerClass "+s.Class.Name+
			" the host is", h.waitingFor(ctx, taken), "rename the Listener, or use a class whose hosts end differently")
	}
	return err
}

func (h *Holdings) waitingFor(ctx context.Context, taken *registry.TakenError) listenersv1alpha1.WaitingFor {
	return listenersv1alpha1.WaitingFor{Kind: taken.Kind, Value: taken.Value, Holder: h.nameOf(ctx, taken.Holder)}
}

// nameOf returns the namespace and name of a Listener. The name of its Service may be derived from its name.
func (h *Holdings) nameOf(ctx context.Context, holder registry.Holder) string {
	for _, listener := range index.Named(ctx, h.reader.Client, holder.Namespace, holder.Name) {
		return listener.String()
	}
	return holder.String()
}

// others returns who has what the objects of a Listener would need.
func (h *Holdings) others(ctx context.Context, pass *registry.Pass, s *observe.Snapshot) (exposure.Others, error) {
	others := exposure.Others{
		Namespaces: map[string]map[string]string{},
		Taken: func(key registry.Key) bool {
			_, taken := pass.HolderOf(key)
			return taken
		},
		Holder: func(key registry.Key) string {
			holder, _ := pass.HolderOf(key)
			return h.nameOf(ctx, holder)
		},
	}
	for _, kind := range s.Backend.Generates {
		if kind.Exclusive == "" {
			continue
		}
		for _, object := range h.reader.Kinds.Readable(ctx, kind) {
			if !h.knows(s, kind, object) {
				others.Objects = append(others.Objects, object)
			}
		}
	}
	slices.SortFunc(others.Objects, func(a, b exposure.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, o := range others.Objects {
		name := o.GetNamespace()
		if _, ok := others.Namespaces[name]; ok {
			continue
		}
		namespace, err := lookup.Get(ctx, h.reader.Client, client.ObjectKey{Name: name}, tenancy.Namespace())
		if err != nil {
			return others, err
		}
		others.Namespaces[name] = ptr.Deref(namespace, metav1.PartialObjectMetadata{}).Labels
	}
	return others, nil
}

// knows reports whether an object is the Listener's own, or the registry knows what the Listener of the object has.
func (h *Holdings) knows(s *observe.Snapshot, kind *exposure.Kind, o exposure.Object) bool {
	if observe.Controls(s.Listener, o) {
		return kind.Owns == nil || kind.Owns(o)
	}
	owner := exposure.ControllingListener(o)
	if owner == nil {
		return false
	}
	holder := names.ServiceKey(&metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: owner.Name})
	return h.Registry.ReservesAny(holder, kind.Exclusive)
}
