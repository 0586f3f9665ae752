package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/reservation"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// Reader reads snapshots. SharedPorts returns the numbers that were allocated to a Listener, or nil.
type Reader struct {
	Client        client.Reader
	Backends      backends.List
	Kinds         *Kinds
	SharedPorts   func(*listenersv1alpha1.Listener) map[string]int32
	ClusterDomain string
}

// Snapshot returns what exists for a Listener now, as far as the cache shows it.
func (r *Reader) Snapshot(ctx context.Context, listener *listenersv1alpha1.Listener) (*Snapshot, error) {
	s := &Snapshot{
		Listener: listener, Remembered: rememberedNumbers(listener),
		Objects: Objects{OfBackend: map[string]map[ObjectKey]exposure.Object{}},
		Served:  map[schema.GroupVersionKind]string{}, referenced: map[string][]exposure.Object{},
	}
	for _, read := range []func(context.Context, *Snapshot) error{
		r.readClass, r.readService, r.readObjects, r.readPolicies, r.readReferences, r.readPods, r.readClusterDomain,
	} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	s.Others = slices.DeleteFunc(slices.Clone(r.Backends), func(b *exposure.Backend) bool { return b == s.Backend })
	s.SharedPorts = r.SharedPorts(listener)
	return s, nil
}

func (r *Reader) readClass(ctx context.Context, s *Snapshot) error {
	if s.Listener.Class() == "" {
		return nil
	}
	class, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: s.Listener.Class()},
		&listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return err
	}
	problem, err := tenancy.Check(ctx, r.Client, class, s.Listener.Namespace)
	if err != nil {
		return err
	}
	// A change of the spec after the Listener was accepted may be a change of the class.
	accepted := Condition(s.Listener, listenersv1alpha1.ListenerAccepted)
	used := ptr.Deref(s.Listener.Status, listenersv1alpha1.ListenerStatus{}).KeptClassName == s.Listener.Class() ||
		accepted.Status == metav1.ConditionTrue && accepted.ObservedGeneration == s.Listener.Generation
	if s.KeepsClass = problem != "" && used; problem != "" && !used {
		s.NotAllowed = exposure.Refuse(listenersv1alpha1.ReasonNamespaceNotAllowed,
			"%s; name another class in %s, or ask an administrator to add the namespace to spec.allowedNamespaces of "+
				"the class", problem, claim.ClassField(s.Listener))
		return nil
	}
	s.Class, s.Backend = class, r.Backends.Of(class)
	return nil
}

// readService gets the Service with the name that the Listener's has. One that the cache does not have yet is not
// written to: the apply of a Service that was not read is then in conflict with it.
func (r *Reader) readService(ctx context.Context, s *Snapshot) error {
	switch service, err := lookup.Get(ctx, r.Client, s.ServiceKey(), &corev1.Service{}); {
	case err != nil || service == nil:
		return err
	case Controls(s.Listener, service):
		s.Objects.Service = service
	case controlledByNamesake(s.Listener, service):
		s.earlier = true
	default:
		s.Foreign = service
	}
	return nil
}

// readObjects lists the objects of the backends' kinds that the Listener controls. If the API of a kind does not
// respond, that is an error only if the Listener's backend generates this kind.
func (r *Reader) readObjects(ctx context.Context, s *Snapshot) error {
	for _, backend := range r.Backends {
		for _, kind := range backend.Kinds() {
			s.Served[kind.GroupVersionKind] = r.Kinds.Version(kind)
		}
		own, err := r.ownObjects(ctx, backend, s.Listener)
		if err == nil {
			s.Objects.OfBackend[backend.Name] = own
		} else if backend == s.Backend {
			return fmt.Errorf("reading the objects of listener %s: %w", s.Key(), err)
		}
	}
	return nil
}

func (r *Reader) ownObjects(ctx context.Context, backend *exposure.Backend,
	listener *listenersv1alpha1.Listener) (map[ObjectKey]exposure.Object, error) {
	own := map[ObjectKey]exposure.Object{}
	for _, kind := range backend.Generates {
		objects, err := r.Kinds.list(ctx, kind, client.InNamespace(listener.Namespace),
			client.MatchingFields{index.ObjectsByListener: names.ListenerLabel(listener.Name)})
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if Controls(listener, object) && (kind.Owns == nil || kind.Owns(object)) {
				own[ObjectKey{kind.GroupKind(), client.ObjectKeyFromObject(object)}] = object
			}
		}
	}
	return own, nil
}

// readReferences gets the objects that the class or the Listener's objects refer to, and what labels they may select.
func (r *Reader) readReferences(ctx context.Context, s *Snapshot) error {
	if s.Class == nil {
		return nil
	}
	for _, backend := range r.Backends {
		if backend.Reads == nil {
			continue
		}
		for _, name := range backend.References(s.Class,
			slices.Collect(maps.Values(s.Objects.OfBackend[backend.Name]))) {
			switch object, err := r.Kinds.Get(ctx, backend.Reads, name); {
			case object != nil:
				s.referenced[backend.Name] = append(s.referenced[backend.Name], object)
			case err != nil && backend == s.Backend:
				return err
			}
		}
	}
	if len(s.referenced[s.Backend.Name]) == 0 {
		return nil
	}
	namespace, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: s.Listener.Namespace}, tenancy.Namespace())
	s.namespaceLabels = ptr.Deref(namespace, metav1.PartialObjectMetadata{}).Labels
	return err
}

// readPods lists the Pods that mount the claim of the Listener, preferably running ones, or whether it awaits the next.
func (r *Reader) readPods(ctx context.Context, s *Snapshot) error {
	if !claim.OwnsListener(s.Listener) {
		return nil
	}
	pods, err := index.PodsOfClaim(ctx, r.Client, s.Listener.Namespace, s.Listener.Name)
	if err != nil {
		return err
	}
	isCopy, err := reservation.Copies(ctx, r.Client, s.Listener)
	if err != nil {
		return err
	}
	mounting := slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return isCopy(&pod) })
	if claim.KeepOf(s.Listener).IsKept() && len(mounting) == 0 {
		existing, err := lookup.Get(ctx, r.Client, s.Key(), &corev1.PersistentVolumeClaim{})
		s.Awaiting = err == nil && existing == nil
		return err
	}
	if err := r.readFinished(ctx, s, mounting); err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Clone(mounting),
		func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() || claim.PodFinished(&pod) })
	if len(running) > 0 {
		mounting = running
	}
	for i := range mounting {
		s.pods = append(s.pods, mounting[i].Name)
	}
	slices.Sort(s.pods)
	return nil
}

// readFinished finds out whether the Pods have finished that mount the ephemeral claim of the Listener, or have its
// inline volume. A StatefulSet replaces its Pod by another of the same name, and so does a controller that keeps the
// Listener of a failed Pod. While a Pod is being deleted, its Listener may be kept for the next one.
func (r *Reader) readFinished(ctx context.Context, s *Snapshot, pods []corev1.Pod) error {
	holds := func(pod corev1.Pod) bool {
		return !claim.PodFinished(&pod) || pod.DeletionTimestamp != nil ||
			pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name ||
			pod.Status.Phase == corev1.PodFailed && claim.Keeper(&pod, s.Listener.Name) != nil
	}
	if len(pods) == 0 || slices.ContainsFunc(pods, holds) {
		return nil
	}
	if s.Finished = slices.ContainsFunc(pods,
		func(pod corev1.Pod) bool { return claim.HasOwner(s.Listener, pod.UID) }); s.Finished {
		return nil
	}
	pvc, err := lookup.Get(ctx, r.Client, s.Key(), &corev1.PersistentVolumeClaim{})
	s.Finished = pvc != nil && claim.EphemeralPod(pvc) != nil && claim.HasOwner(s.Listener, pvc.UID)
	return err
}

func (r *Reader) readClusterDomain(ctx context.Context, s *Snapshot) error {
	configuration, err := lookup.Get(ctx, r.Client, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName},
		&operatorv1alpha1.ListenerOperator{})
	s.clusterDomain = cmp.Or(configuration, &operatorv1alpha1.ListenerOperator{}).ClusterDomain(r.ClusterDomain)
	return err
}

func (r *Reader) readPolicies(ctx context.Context, s *Snapshot) error {
	key := types.NamespacedName{Namespace: s.Listener.Namespace, Name: s.Listener.Name + exposure.ClientPolicySuffix}
	own, err := lookup.Get(ctx, r.Client, key, &networkingv1.NetworkPolicy{})
	if err != nil {
		return err
	}
	if own != nil && Controls(s.Listener, own) {
		s.Objects.Policy = own
	} else {
		s.ForeignPolicy = own
	}
	if s.Class == nil || len(s.Class.Spec.AllowedClients)+len(s.Listener.Spec.AllowedClients) == 0 {
		return nil
	}
	var all networkingv1.NetworkPolicyList
	if err := r.Client.List(ctx, &all, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing network policies: %w", err)
	}
	var others []*networkingv1.NetworkPolicy
	for i := range all.Items {
		if all.Items[i].Name != key.Name {
			others = append(others, &all.Items[i])
		}
	}
	placement, err := reservation.Placement(ctx, r.Client, s.Listener, false)
	s.Mounting = placement.Mounting
	s.OtherPolicies = exposure.ReadPolicies(s.Listener, s.Mounting, others)
	return err
}
