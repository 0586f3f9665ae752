package listener

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// reader takes snapshots.
type reader struct {
	client        client.Reader
	backends      backends.List
	kinds         *kinds
	sharedPorts   *sharedPorts
	clusterDomain string
}

// snapshot reads all that a Listener depends on.
func (r *reader) snapshot(ctx context.Context, listener *listenersv1alpha1.Listener) (*snapshot, error) {
	s := &snapshot{
		listener: listener, present: present{objects: map[string]map[string]exposure.Object{}},
		served: map[schema.GroupVersionKind]string{}, referenced: map[string][]exposure.Object{},
	}
	for _, read := range []func(context.Context, *snapshot) error{
		r.readClass, r.readService, r.readObjects, r.readReferences, r.readPods, r.readClusterDomain, r.readSharedPorts,
	} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (r *reader) readClass(ctx context.Context, s *snapshot) error {
	s.others = r.backends
	if s.listener.Class() == "" {
		return nil
	}
	class, err := lookup.Get(ctx, r.client, client.ObjectKey{Name: s.listener.Class()}, &listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return err
	}
	problem, err := tenancy.Check(ctx, r.client, class, s.listener.Namespace)
	if err != nil {
		return err
	}
	if s.kept = problem != "" && usedClass(s.listener); problem != "" && !s.kept {
		s.notAllowed = exposure.Refuse(listenersv1alpha1.ReasonNamespaceNotAllowed,
			"%s; name another class in spec.className, or ask an administrator to add the namespace to spec.allowedNamespaces of the class", problem)
		return nil
	}
	s.class, s.backend = class, r.backends.Of(class)
	s.others = slices.DeleteFunc(slices.Clone(r.backends), func(b *exposure.Backend) bool { return b.Name == s.backend.Name })
	return nil
}

// usedClass reports whether the Listener was accepted with the class that it names. A change of its spec after that may
// be a change of the class.
func usedClass(listener *listenersv1alpha1.Listener) bool {
	if listener.Status == nil {
		return false
	}
	accepted := meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted)
	return listener.Status.KeptClassName == listener.Class() ||
		accepted != nil && accepted.Status == metav1.ConditionTrue && accepted.ObservedGeneration == listener.Generation
}

// readService gets the Service with the Listener's name. One that the cache does not have yet is not written to: the
// apply of a Service that was not read is then in conflict with it.
func (r *reader) readService(ctx context.Context, s *snapshot) error {
	switch service, err := lookup.Get(ctx, r.client, s.key(), &corev1.Service{}); {
	case err != nil || service == nil:
		return err
	case controls(s.listener, service):
		s.service = service
	case controlledByNamesake(s.listener, service):
		s.earlier = true
	default:
		s.foreign = service
	}
	return nil
}

// readObjects lists the objects of the backends' kinds that the Listener controls. If the API of a kind does not
// respond, its objects are unknown, which is an error only if the Listener's backend generates this kind.
func (r *reader) readObjects(ctx context.Context, s *snapshot) error {
	for _, backend := range r.backends {
		for _, kind := range backend.Kinds() {
			s.served[kind.GroupVersionKind] = r.kinds.version(kind)
		}
		if backend.Kind == nil {
			continue
		}
		objects, err := r.kinds.list(ctx, backend.Kind, client.InNamespace(s.listener.Namespace),
			client.MatchingFields{index.ObjectsByController: string(s.listener.UID)})
		if err != nil {
			if backend == s.backend {
				return fmt.Errorf("reading the objects of listener %s: %w", s.key(), err)
			}
			continue
		}
		own := map[string]exposure.Object{}
		for _, object := range objects {
			if controls(s.listener, object) {
				own[object.GetName()] = object
			}
		}
		s.objects[backend.Name] = own
	}
	return nil
}

// readReferences gets the objects that the backends read, as far as the class or the Listener's objects refer to them,
// and the labels of the namespace, which those objects may select.
func (r *reader) readReferences(ctx context.Context, s *snapshot) error {
	if s.class == nil {
		return nil
	}
	for _, backend := range r.backends {
		if backend.Reads == nil {
			continue
		}
		for _, name := range backend.References(s.class, slices.Collect(maps.Values(s.objects[backend.Name]))) {
			switch object, err := r.kinds.get(ctx, backend.Reads, name); {
			case object != nil:
				s.referenced[backend.Name] = append(s.referenced[backend.Name], object)
			case err != nil && backend == s.backend:
				return err
			}
		}
	}
	if len(s.referenced[s.backend.Name]) == 0 {
		return nil
	}
	namespace, err := lookup.Get(ctx, r.client, client.ObjectKey{Name: s.listener.Namespace}, tenancy.Namespace())
	if err == nil && namespace != nil {
		s.namespaceLabels = namespace.Labels
	}
	return err
}

// readPods lists the Pods that mount the claim that the Listener was created for. Pods that are terminating or have
// finished are left out if there are others.
func (r *reader) readPods(ctx context.Context, s *snapshot) error {
	if !claim.OwnsListener(s.listener) {
		return nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(s.listener.Namespace), client.MatchingFields{index.PodsByClaim: s.listener.Name}); err != nil {
		return fmt.Errorf("listing pods of claim %s: %w", s.key(), err)
	}
	var running, all []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		all = append(all, pod.Name)
		if pod.DeletionTimestamp.IsZero() && !claim.PodFinished(pod) {
			running = append(running, pod.Name)
		}
	}
	s.pods = running
	if len(running) == 0 {
		s.pods = all
	}
	slices.Sort(s.pods)
	return nil
}

func (r *reader) readClusterDomain(ctx context.Context, s *snapshot) error {
	configuration := &operatorv1alpha1.ListenerOperator{}
	err := r.client.Get(ctx, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, configuration)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading listener operator %s: %w", operatorv1alpha1.ListenerOperatorName, err)
	}
	s.clusterDomain = configuration.ClusterDomain(r.clusterDomain)
	return nil
}

// readSharedPorts gets the numbers that the Listener has at a shared address, also those that the cache does not have
// yet.
func (r *reader) readSharedPorts(ctx context.Context, s *snapshot) (err error) {
	s.sharedPorts, err = r.sharedPorts.of(ctx, s.listener, s.class)
	return err
}
