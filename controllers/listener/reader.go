package listener

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

// reader takes snapshots.
type reader struct {
	client        client.Reader
	backends      backends.List
	kinds         *kinds
	sharedPorts   *sharedAllocator
	clusterDomain string
}

func (r *reader) snapshot(ctx context.Context, listener *listenersv1alpha1.Listener) (*snapshot, error) {
	s := &snapshot{
		listener: listener, remembered: rememberedNumbers(listener), present: present{objects: map[string]map[objectKey]exposure.Object{}},
		served: map[schema.GroupVersionKind]string{}, referenced: map[string][]exposure.Object{},
	}
	for _, read := range []func(context.Context, *snapshot) error{
		r.readClass, r.readService, r.readObjects, r.readPolicies, r.readReferences, r.readPods, r.readClusterDomain,
	} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	s.others = slices.DeleteFunc(slices.Clone(r.backends), func(b *exposure.Backend) bool { return b == s.backend })
	s.sharedPorts = r.sharedPorts.of(ctx, listener, s.class)
	if len(s.sharedPorts) == 0 && s.class != nil && s.class.SharedPortRange() != "" {
		last := s.remembered.SharedPorts
		if s.service != nil && isRestored(listener, s.service) {
			last = portsOf(s.service)
		}
		s.sharedPorts = inRange(last, sharedPortRange(s.class))
	}
	return s, nil
}

func (r *reader) readClass(ctx context.Context, s *snapshot) error {
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
	// A change of the spec after the Listener was accepted may be a change of the class.
	accepted := condition(s.listener, listenersv1alpha1.ListenerAccepted)
	used := ptr.Deref(s.listener.Status, listenersv1alpha1.ListenerStatus{}).KeptClassName == s.listener.Class() ||
		accepted.Status == metav1.ConditionTrue && accepted.ObservedGeneration == s.listener.Generation
	if s.kept = problem != "" && used; problem != "" && !used {
		s.notAllowed = exposure.Refuse(listenersv1alpha1.ReasonNamespaceNotAllowed,
			"%s; name another class in %s, or ask an administrator to add the namespace to spec.allowedNamespaces of the class", problem, claim.ClassField(s.listener))
		return nil
	}
	s.class, s.backend = class, r.backends.Of(class)
	return nil
}

// readService gets the Service with the name that the Listener's has. One that the cache does not have yet is not
// written to: the apply of a Service that was not read is then in conflict with it.
func (r *reader) readService(ctx context.Context, s *snapshot) error {
	switch service, err := lookup.Get(ctx, r.client, s.serviceKey(), &corev1.Service{}); {
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
// respond, that is an error only if the Listener's backend generates this kind.
func (r *reader) readObjects(ctx context.Context, s *snapshot) error {
	for _, backend := range r.backends {
		for _, kind := range backend.Kinds() {
			s.served[kind.GroupVersionKind] = r.kinds.version(kind)
		}
		own, err := r.ownObjects(ctx, backend, s.listener)
		if err == nil {
			s.objects[backend.Name] = own
		} else if backend == s.backend {
			return fmt.Errorf("reading the objects of listener %s: %w", s.key(), err)
		}
	}
	return nil
}

func (r *reader) ownObjects(ctx context.Context, backend *exposure.Backend, listener *listenersv1alpha1.Listener) (map[objectKey]exposure.Object, error) {
	own := map[objectKey]exposure.Object{}
	for _, kind := range backend.Generates {
		objects, err := r.kinds.list(ctx, kind, client.InNamespace(listener.Namespace), client.MatchingFields{index.ObjectsByListener: names.ListenerLabel(listener.Name)})
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			if controls(listener, object) && (kind.Owns == nil || kind.Owns(object)) {
				own[objectKey{kind.GroupKind(), client.ObjectKeyFromObject(object)}] = object
			}
		}
	}
	return own, nil
}

// readReferences gets the objects that the class or the Listener's objects refer to, and what labels they may select.
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
	s.namespaceLabels = ptr.Deref(namespace, metav1.PartialObjectMetadata{}).Labels
	return err
}

// readPods lists the Pods that mount the claim of the Listener, preferably running ones, or whether it awaits the next.
func (r *reader) readPods(ctx context.Context, s *snapshot) error {
	if !claim.OwnsListener(s.listener) {
		return nil
	}
	pods, err := index.PodsOfClaim(ctx, r.client, s.listener.Namespace, s.listener.Name)
	if err != nil {
		return err
	}
	isCopy, err := reservation.Copies(ctx, r.client, s.listener)
	if err != nil {
		return err
	}
	mounting := slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return isCopy(&pod) })
	if claim.KeeperOf(s.listener) != nil && len(mounting) == 0 {
		existing, err := lookup.Get(ctx, r.client, s.key(), &corev1.PersistentVolumeClaim{})
		s.awaiting = err == nil && existing == nil
		return err
	}
	if err := r.readFinished(ctx, s, mounting); err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Clone(mounting), func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() || claim.PodFinished(&pod) })
	if len(running) > 0 {
		mounting = running
	}
	for i := range mounting {
		s.pods = append(s.pods, mounting[i].Name)
		s.scheduling = s.scheduling || mounting[i].Spec.NodeName == ""
	}
	slices.Sort(s.pods)
	return nil
}

// readFinished finds out whether the Pods have finished that mount the ephemeral claim of the Listener, or have its
// inline volume. A StatefulSet replaces its Pod by another of the same name, and so does a controller that keeps the
// Listener of a failed Pod. While a Pod is being deleted, its Listener may be kept for the next one.
func (r *reader) readFinished(ctx context.Context, s *snapshot, pods []corev1.Pod) error {
	holds := func(pod corev1.Pod) bool {
		return !claim.PodFinished(&pod) || pod.DeletionTimestamp != nil || pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name ||
			pod.Status.Phase == corev1.PodFailed && claim.Keeper(&pod, s.listener.Name) != nil
	}
	if len(pods) == 0 || slices.ContainsFunc(pods, holds) {
		return nil
	}
	if s.finished = slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return claim.HasOwner(s.listener, pod.UID) }); s.finished {
		return nil
	}
	pvc, err := lookup.Get(ctx, r.client, s.key(), &corev1.PersistentVolumeClaim{})
	s.finished = pvc != nil && claim.EphemeralPod(pvc) != nil && claim.HasOwner(s.listener, pvc.UID)
	return err
}

func (r *reader) readClusterDomain(ctx context.Context, s *snapshot) error {
	configuration, err := lookup.Get(ctx, r.client, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, &operatorv1alpha1.ListenerOperator{})
	s.clusterDomain = cmp.Or(configuration, &operatorv1alpha1.ListenerOperator{}).ClusterDomain(r.clusterDomain)
	return err
}

func (r *reader) readPolicies(ctx context.Context, s *snapshot) error {
	key := types.NamespacedName{Namespace: s.listener.Namespace, Name: s.listener.Name + exposure.ClientPolicySuffix}
	own, err := lookup.Get(ctx, r.client, key, &networkingv1.NetworkPolicy{})
	if err != nil {
		return err
	}
	if own != nil && controls(s.listener, own) {
		s.policy = own
	} else {
		s.foreignPolicy = own
	}
	if s.class == nil || len(s.class.Spec.AllowedClients)+len(s.listener.Spec.AllowedClients) == 0 {
		return nil
	}
	var all networkingv1.NetworkPolicyList
	if err := r.client.List(ctx, &all, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing network policies: %w", err)
	}
	var others []*networkingv1.NetworkPolicy
	for i := range all.Items {
		if all.Items[i].Name != key.Name {
			others = append(others, &all.Items[i])
		}
	}
	placement, err := reservation.Placement(ctx, r.client, s.listener, false)
	s.mounting = placement.Mounting
	s.otherPolicies = exposure.ReadPolicies(s.listener, s.mounting, others)
	return err
}

// otherListeners returns the other Listeners of the selected classes. They must not be changed.
func otherListeners(ctx context.Context, reader client.Reader, listener *listenersv1alpha1.Listener, selected func(*listenersv1alpha1.ListenerClass) bool) (others []listenersv1alpha1.Listener) {
	var classes listenersv1alpha1.ListenerClassList
	index.List(ctx, reader, &classes)
	for i := range classes.Items {
		if !selected(&classes.Items[i]) {
			continue
		}
		var listeners listenersv1alpha1.ListenerList
		index.List(ctx, reader, &listeners, client.MatchingFields{index.ListenersByClass: classes.Items[i].Name})
		others = append(others, listeners.Items...)
	}
	return slices.DeleteFunc(others, func(other listenersv1alpha1.Listener) bool { return other.UID == listener.UID })
}

// kindReader reads objects of a kind that the cluster may not serve.
type kindReader interface {
	client.Reader
	// Version returns the version of the kind that the cluster serves, or "" if none. Reading may fail nevertheless.
	Version() string
}

// kinds reads the objects of the backends' kinds.
type kinds struct {
	scheme  *runtime.Scheme
	readers map[schema.GroupVersionKind]kindReader
}

// newObject returns an empty object of a kind, which the scheme has.
func (k *kinds) newObject(kind *exposure.Kind) exposure.Object {
	o, err := k.scheme.New(kind.GroupVersionKind)
	utilruntime.Must(err)
	return o.(exposure.Object)
}

// version returns the version of a kind that the cluster serves, or "".
func (k *kinds) version(kind *exposure.Kind) string {
	return k.readers[kind.GroupVersionKind].Version()
}

// get returns an object, or nil if it does not exist, or if its kind is not served.
func (k *kinds) get(ctx context.Context, kind *exposure.Kind, key types.NamespacedName) (client.Object, error) {
	o, err := lookup.Get(ctx, k.readers[kind.GroupVersionKind], key, k.newObject(kind).(client.Object))
	if meta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // as in lookup.Get
	}
	return o, err
}

// list returns objects of a kind, which must not be changed. Of a kind that is not served there are none.
func (k *kinds) list(ctx context.Context, kind *exposure.Kind, options ...client.ListOption) ([]exposure.Object, error) {
	list, err := k.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	utilruntime.Must(err)
	err = k.readers[kind.GroupVersionKind].List(ctx, list.(client.ObjectList), append(options, client.UnsafeDisableDeepCopy)...)
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	var objects []exposure.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(exposure.Object))
		return nil
	})
	return objects, err
}

// readable returns what list returns, or nothing while that fails. All Listeners are reconciled when it works again.
func (k *kinds) readable(ctx context.Context, kind *exposure.Kind, options ...client.ListOption) []exposure.Object {
	objects, err := k.list(ctx, kind, options...)
	if err != nil {
		log.FromContext(ctx).Info("Waiting for objects of an optional kind", "kind", kind.String(), "reason", err.Error())
	}
	return objects
}

// typed returns a desired object as one of its Go type.
func (k *kinds) typed(kind *exposure.Kind, desired exposure.Desired) (exposure.Object, error) {
	o := k.newObject(kind)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, o); err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w", kind.Kind, client.ObjectKeyFromObject(desired), err)
	}
	return o, nil
}
