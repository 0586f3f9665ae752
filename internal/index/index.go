// Package index has the indexes of the operator's cache. An index answers in memory what would otherwise need a list of
// all objects of a kind. It needs memory, too: an entry with a value of its own, such as a uid, needs 400 bytes, and in
// the index of a namespaced kind twice as much. So there must be none for what names or other indexes lead to.
package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// Names of the indexes. Those of namespaced kinds are used with client.InNamespace.
const (
	ListenersByClass = "listener.class"
	// ListenersByRefusal finds Listeners by the reason why they are not accepted, and by what they are Waiting for.
	ListenersByRefusal = "listener.refusal"
	// ListenersByDerivedName finds Listeners by the name of their Service, if that is not their own.
	ListenersByDerivedName = "listener.derived"
	// VolumesByListener finds PersistentVolumes by their Listener. VolumesOf returns the value.
	VolumesByListener = "volume.listener"
	VolumesByNode     = "volume.node"
	ClaimsByClass     = "claim.class"
	// ClaimsByListener finds named claims without a volume by the name of the Listener.
	ClaimsByListener = "claim.listener"
	// PodsByClaim finds Pods by the name of a claim that they mount, including the claims of ephemeral volumes.
	PodsByClaim = "pod.claim"
	// PodsByInline finds Pods by the name of a class or Listener in the attributes of an inline volume, and those that
	// have a controller also by Token.
	PodsByInline           = "pod.inline"
	PodListenersByListener = "podlisteners.listener"
	PodListenersByNode     = "podlisteners.node"
	// ObjectsByListener finds objects of a backend's kind by the label of their Listener, and ObjectsByReference those
	// of Listeners by namespace and name of what they refer to. The caches of these have them.
	ObjectsByListener  = "object.listener"
	ObjectsByReference = "object.reference"
)

func Register(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object  client.Object
		name    string
		extract client.IndexerFunc
	}{
		{&listenersv1alpha1.Listener{}, ListenersByClass,
			func(o client.Object) []string { return nonEmpty(o.(*listenersv1alpha1.Listener).Class()) }},
		{&listenersv1alpha1.Listener{}, ListenersByRefusal, listenerRefusal},
		{&listenersv1alpha1.Listener{}, ListenersByDerivedName, derivedName},
		{&corev1.PersistentVolume{}, VolumesByListener, VolumeListener},
		{&corev1.PersistentVolume{}, VolumesByNode,
			func(o client.Object) []string { return claim.VolumeNodes(o.(*corev1.PersistentVolume)) }},
		{&corev1.PersistentVolumeClaim{}, ClaimsByClass,
			func(o client.Object) []string { return nonEmpty(o.GetAnnotations()[names.AnnotationListenerClass]) }},
		{&corev1.PersistentVolumeClaim{}, ClaimsByListener, unboundClaimListener},
		{&corev1.Pod{}, PodsByClaim, func(o client.Object) []string { return claim.NamesOf(o.(*corev1.Pod)) }},
		{&corev1.Pod{}, PodsByInline, inlineNames},
		{&corev1.Pod{}, stackable.Field, stackable.Index},
		{&listenersv1alpha1.PodListeners{}, PodListenersByListener, PodListenersListeners},
		{&listenersv1alpha1.PodListeners{}, PodListenersByNode,
			func(o client.Object) []string { return nonEmpty(o.(*listenersv1alpha1.PodListeners).Spec.NodeName) }},
	} {
		if err := indexer.IndexField(ctx, i.object, i.name, i.extract); err != nil {
			return fmt.Errorf("adding index %s: %w", i.name, err)
		}
	}
	return nil
}

// List reads a list, without copying its objects. It logs an error, which only a missing index causes.
func List(ctx context.Context, cache client.Reader, list client.ObjectList, options ...client.ListOption) {
	if err := cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing from the cache", "list", fmt.Sprintf("%T", list))
	}
}

// PodsOfClaim returns copies of the Pods that mount a claim.
func PodsOfClaim(ctx context.Context, cache client.Reader, namespace, name string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := cache.List(ctx, &pods, client.InNamespace(namespace),
		client.MatchingFields{PodsByClaim: name}); err != nil {
		return nil, fmt.Errorf("listing pods of claim %s/%s: %w", namespace, name, err)
	}
	return pods.Items, nil
}

// Requests returns the requests that a function returns for each object of a list, which it reads as List does.
func Requests[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, cache client.Reader, each handler.MapFunc, options ...client.ListOption) []reconcile.Request {
	var list T
	List(ctx, cache, L(&list), options...)
	var requests []reconcile.Request
	_ = meta.EachListItem(L(&list), func(o runtime.Object) error { // which returns no error of its own for a list
		requests = append(requests, each(ctx, o.(client.Object))...)
		return nil
	})
	return requests
}

// Mapping is the map function of an object to the Requests of those objects in a list that an index has by its name.
func Mapping[T any, L interface {
	*T
	client.ObjectList
}](cache client.Reader, each handler.MapFunc, index string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return Requests[T, L](ctx, cache, each, client.MatchingFields{index: o.GetName()})
	}
}

func RequestsFor(namespace string, named ...string) []reconcile.Request {
	requests := make([]reconcile.Request, len(named))
	for i, name := range named {
		requests[i].Namespace, requests[i].Name = namespace, name
	}
	return requests
}

func Request(_ context.Context, o client.Object) []reconcile.Request {
	return RequestsFor(o.GetNamespace(), o.GetName())
}

func PodToClaims(_ context.Context, o client.Object) []reconcile.Request {
	return RequestsFor(o.GetNamespace(), claim.NamesOf(o.(*corev1.Pod))...)
}

func VolumeToClaim(_ context.Context, o client.Object) []reconcile.Request {
	pv := o.(*corev1.PersistentVolume)
	if !claim.IsListenerVolume(pv) || pv.Spec.ClaimRef == nil {
		return nil
	}
	return RequestsFor(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

func VolumeListener(o client.Object) []string {
	labels := o.GetLabels()
	namespace, name := labels[names.LabelListenerNamespace], labels[names.LabelListenerName]
	if namespace == "" || name == "" {
		return nil
	}
	return []string{types.NamespacedName{Namespace: namespace, Name: name}.String()}
}

func VolumesOf(listener client.Object) client.MatchingFields {
	key := types.NamespacedName{Namespace: listener.GetNamespace(), Name: names.ListenerLabel(listener.GetName())}
	return client.MatchingFields{VolumesByListener: key.String()}
}

// Named maps a name that a Service or a label has in a namespace to the Listeners that it may be derived from.
func Named(ctx context.Context, cache client.Reader, namespace, name string) []reconcile.Request {
	derived := Requests[listenersv1alpha1.ListenerList](ctx, cache, Request, client.InNamespace(namespace),
		client.MatchingFields{ListenersByDerivedName: name})
	return append(derived, RequestsFor(namespace, name)...)
}

func derivedName(o client.Object) []string {
	if service := names.Service(o.GetName()); service != o.GetName() {
		return []string{service}
	}
	return nil
}

func unboundClaimListener(o client.Object) []string {
	if o.(*corev1.PersistentVolumeClaim).Spec.VolumeName != "" {
		return nil
	}
	return nonEmpty(o.GetAnnotations()[names.AnnotationListenerName])
}

// Token is a value of PodsByInline, for the name of the volume with a token that a Pod and its copies have. No class
// and no Listener has such a name.
func Token(volume string) string { return "/" + volume }

func inlineNames(o client.Object) (named []string) {
	pod := o.(*corev1.Pod)
	volumes, _ := claim.Volumes(pod)
	for _, volume := range volumes {
		if claim.IsInline(volume) {
			attributes := volume.CSI.VolumeAttributes
			named = append(append(named, nonEmpty(attributes[names.AnnotationListenerClass])...),
				nonEmpty(attributes[names.AnnotationListenerName])...)
		}
	}
	if token := claim.TokenVolume(pod); len(named) > 0 && token != "" && metav1.GetControllerOf(pod) != nil {
		named = append(named, Token(token))
	}
	return named
}

// PodListenersListeners returns the names of the Listeners of a PodListeners.
func PodListenersListeners(o client.Object) []string {
	var listeners []string
	for _, l := range o.(*listenersv1alpha1.PodListeners).Spec.Listeners {
		listeners = append(listeners, nonEmpty(l.ListenerName)...)
	}
	return listeners
}

// RefusalOf returns why a Listener that is not being deleted is not accepted, or "", and what it waits for, or nil. A
// status that an earlier version wrote lacks that, until the operator has reconciled each Listener after its start.
func RefusalOf(listener *listenersv1alpha1.Listener) (reason string, waiting *listenersv1alpha1.WaitingFor) {
	if listener.Status == nil || !listener.DeletionTimestamp.IsZero() {
		return "", nil
	}
	accepted := meta.FindStatusCondition(listener.Status.Conditions, listenersv1alpha1.ListenerAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionFalse {
		return "", nil
	}
	return accepted.Reason, listener.Status.WaitingFor
}

// Waiting is the value of ListenersByRefusal for what others have: a value, or "" for any of a kind.
func Waiting(kind listenersv1alpha1.WaitingKind, value string) string {
	return string(kind) + "/" + value
}

func listenerRefusal(o client.Object) []string {
	reason, waiting := RefusalOf(o.(*listenersv1alpha1.Listener))
	if waiting == nil {
		return nonEmpty(reason)
	}
	return []string{reason, Waiting(waiting.Kind, waiting.Value)}
}

// OfObjects returns the indexes of the objects that a backend generates.
func OfObjects(backend *exposure.Backend) map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		ObjectsByListener: func(o client.Object) []string {
			return nonEmpty(names.ListenerLabel(exposure.ListenerOf(o)))
		},
		ObjectsByReference: func(o client.Object) (references []string) {
			if backend.References == nil || exposure.ListenerOf(o) == "" {
				return nil
			}
			for _, key := range backend.References(&listenersv1alpha1.ListenerClass{}, []exposure.Object{o}) {
				references = append(references, key.String())
			}
			return references
		},
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
