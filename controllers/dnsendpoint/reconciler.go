// Package dnsendpoint writes a DNSEndpoint for each Listener whose class has hostname.records DNSEndpoint: external-dns
// then lets the name of the Listener lead to the addresses that the Listener has, and to no others. The condition
// DNSReady of the Listener says whether external-dns knows it.
//
// The package must never write a record for a name that the status of the Listener does not have, nor change a
// DNSEndpoint of others. While a Listener has no address, or its class does not exist, its records stay.
package dnsendpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/records"
	"github.com/listener-operator/listener-operator/internal/requests"
)

type Reconciler struct {
	Client   client.Client
	Events   events.EventRecorder
	Platform *platform.APIs

	applier   *apply.Applier
	endpoints *platform.View
}

// Reconcile implements reconcile.Reconciler for Listeners. The garbage collector deletes their DNSEndpoints with them.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	listener, err := lookup.Get(ctx, r.Client, req.NamespacedName, &listenersv1alpha1.Listener{})
	if err != nil || listener == nil || listener.DeletionTimestamp != nil || listener.Status == nil {
		return reconcile.Result{}, err
	}
	class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: listener.Class()},
		&listenersv1alpha1.ListenerClass{})
	if err != nil || class == nil {
		return reconcile.Result{}, err
	}
	service, err := lookup.Get(ctx, r.Client, names.ServiceKey(listener), &corev1.Service{})
	if err != nil {
		return reconcile.Result{}, err
	}
	condition, err := r.bringTo(ctx, &exposure.Listener{Listener: listener, Class: class, Service: service})
	if err != nil && condition.Reason == "" {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, errors.Join(err, r.report(ctx, listener, condition))
}

// bringTo brings the DNSEndpoint of a Listener to its desired state, and returns the condition of the Listener after
// that, whose reason is empty if there is none. The error may come with a condition that says what is tried again.
func (r *Reconciler) bringTo(ctx context.Context, l *exposure.Listener) (metav1.Condition, error) {
	listener, hostname := l.Listener, l.Class.Spec.Hostname
	wanted := hostname != nil && hostname.Records == listenersv1alpha1.HostnameRecordsDNSEndpoint
	if r.endpoints.Version() == "" && wanted {
		return failed(listenersv1alpha1.ReasonNotServed,
			"ListenerClass %s requires objects of kind DNSEndpoint, which this cluster does not serve; install the "+
				"CustomResourceDefinition of external-dns, or set spec.hostname.records of the class",
			l.Class.Name), nil
	}
	if r.endpoints.Version() == "" {
		return metav1.Condition{}, nil
	}
	key := client.ObjectKeyFromObject(listener)
	observed, err := lookup.Get(ctx, r.endpoints, key, apply.Object(names.KindDNSEndpoint, key))
	if err != nil {
		return metav1.Condition{}, err
	}
	switch own := observed != nil && observe.Controls(listener, observed); {
	case !wanted && own:
		return metav1.Condition{}, r.applier.Delete(ctx, observed)
	case !wanted:
		return metav1.Condition{}, nil
	case observed != nil && !own:
		return failed(listenersv1alpha1.ReasonForeignDNSEndpoint,
			"DNSEndpoint %s already exists and %s; delete it, or rename the Listener", key,
			observe.DescribeController(observed)), nil
	}
	return r.apply(ctx, l, observed)
}

// apply applies the DNSEndpoint of a Listener. observed is the existing one, or nil. While the name leads nowhere, that
// stays as it is, and so does the condition.
func (r *Reconciler) apply(ctx context.Context, l *exposure.Listener,
	observed *unstructured.Unstructured) (metav1.Condition, error) {
	desired := desiredFor(l)
	if desired == nil {
		return observe.Condition(l.Listener, listenersv1alpha1.ListenerDNSReady), nil
	}
	sent, err := r.applier.Apply(ctx, desired, observed)
	switch {
	case !requests.IsTerminating(err) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)):
		return failed(listenersv1alpha1.ReasonDNSEndpointRejected, "the API server rejects DNSEndpoint %s: %v",
			client.ObjectKeyFromObject(desired), err), err
	case err != nil:
		return metav1.Condition{}, err
	case sent:
		observed = desired
	}
	return read(observed), nil
}

// desiredFor returns the DNSEndpoint of a Listener, or nil if its name leads nowhere.
func desiredFor(l *exposure.Listener) *unstructured.Unstructured {
	var endpoints []any
	for _, record := range records.Of(l) {
		var targets []any
		for _, target := range record.Targets {
			targets = append(targets, target)
		}
		endpoints = append(endpoints, map[string]any{
			"dnsName": record.Name, "recordType": record.Type, "recordTTL": record.TTL, "targets": targets,
		})
	}
	if len(endpoints) == 0 {
		return nil
	}
	return exposure.NewObject(l, names.KindDNSEndpoint, l.Name, nil, nil, map[string]any{"endpoints": endpoints})
}

// read returns the condition of a Listener with this DNSEndpoint. external-dns notes there what it has read.
func read(endpoint *unstructured.Unstructured) metav1.Condition {
	key := client.ObjectKeyFromObject(endpoint)
	generation, _, _ := unstructured.NestedInt64(endpoint.Object, "status", "observedGeneration")
	if generation != endpoint.GetGeneration() {
		return failed(listenersv1alpha1.ReasonWaitingForExternalDNS,
			"external-dns has not read DNSEndpoint %s yet; it has to run with --source=crd, and to manage records of "+
				"the types %s", key, strings.Join(typesOf(endpoint), ", "))
	}
	c := failed(listenersv1alpha1.ReasonRecordsRead, "external-dns has read DNSEndpoint %s", key)
	c.Status = metav1.ConditionTrue
	return c
}

// typesOf returns the types of the records in a DNSEndpoint.
func typesOf(endpoint *unstructured.Unstructured) []string {
	endpoints, _, _ := unstructured.NestedSlice(endpoint.Object, "spec", "endpoints")
	all := sets.New[string]()
	for _, e := range endpoints {
		kind, _, _ := unstructured.NestedString(e.(map[string]any), "recordType")
		all.Insert(kind)
	}
	return sets.List(all)
}

// failed returns a condition that is false.
func failed(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: listenersv1alpha1.ListenerDNSReady, Status: metav1.ConditionFalse, Reason: reason,
		Message: message.Printable(fmt.Sprintf(format, args...), message.MaxCondition),
	}
}

// report applies the condition of a Listener, or removes it if its reason is empty.
func (r *Reconciler) report(ctx context.Context, listener *listenersv1alpha1.Listener, after metav1.Condition) error {
	conditions, before := slices.Clone(listener.Status.Conditions), observe.Condition(listener,
		listenersv1alpha1.ListenerDNSReady)
	after.ObservedGeneration = listener.Generation
	own := []metav1.Condition{}
	switch {
	case after.Reason == "" && before.Reason == "":
		return nil
	case after.Reason != "" && !meta.SetStatusCondition(&conditions, after): // which sets the time of the transition
		return nil
	case after.Reason != "":
		own = append(own, *meta.FindStatusCondition(conditions, after.Type))
	}
	sent, err := r.applier.ApplyStatus(ctx, listener, &map[string]any{"conditions": own}, "")
	if sent && before.Message != after.Message && reasons.EventType(after.Reason) == corev1.EventTypeWarning {
		r.Events.Eventf(listener, nil, corev1.EventTypeWarning, after.Reason, "WriteRecords", "%s",
			message.Printable(after.Message, message.MaxEvent))
	}
	return err
}

const workers = 4

func (r *Reconciler) SetupWithManager(mgr manager.Manager) (err error) {
	r.applier = apply.New(mgr.GetClient(), names.FieldManagerDNS)
	r.endpoints, err = r.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: apply.Object(names.KindDNSEndpoint, types.NamespacedName{}),
		Cache:   cache.ByObject{Transform: trim},
		Handler: handler.EnqueueRequestsFromMapFunc(index.Request),
		Changed: func(ctx context.Context) []reconcile.Request {
			return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, index.Request)
		},
	})
	if err != nil {
		return err
	}
	ofClass := index.Mapping[listenersv1alpha1.ListenerList](r.Client, index.Request, index.ListenersByClass)
	b := requests.Controller(mgr, "dnsendpoint", workers).WatchesRawSource(r.endpoints)
	requests.Watch(b, &listenersv1alpha1.Listener{}, index.Request, predicates.Changed(recorded))
	requests.Watch(b, &corev1.Service{}, serviceToRequest, predicates.Changed(func(s *corev1.Service) any {
		return s.Annotations[names.AnnotationPod]
	}))
	requests.Watch(b, &listenersv1alpha1.ListenerClass{}, ofClass, predicate.GenerationChangedPredicate{})
	return b.Complete(requests.Requeue(mgr, "dnsendpoint", r))
}

func serviceToRequest(_ context.Context, o client.Object) []reconcile.Request {
	if owner := exposure.ControllingListener(o); owner != nil {
		return index.RequestsFor(o.GetNamespace(), owner.Name)
	}
	return nil
}

// recorded returns what the records of a Listener follow from.
func recorded(l *listenersv1alpha1.Listener) any {
	return []any{l.Spec, l.Labels, ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{}).Targets}
}

// maxSize is the size of the largest DNSEndpoint that is kept in the cache, in bytes as JSON.
const maxSize = 256 << 10

// trim keeps of a DNSEndpoint what the operator writes, and what external-dns notes, or only the name and the
// controller if others created it, or made it too large.
func trim(o any) (any, error) {
	endpoint, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // a tombstone of what was trimmed before
	}
	kept := apply.Object(names.KindDNSEndpoint, client.ObjectKeyFromObject(endpoint))
	kept.SetUID(endpoint.GetUID())
	kept.SetResourceVersion(endpoint.GetResourceVersion())
	kept.SetDeletionTimestamp(endpoint.GetDeletionTimestamp())
	if owner := metav1.GetControllerOf(endpoint); owner != nil {
		kept.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	if exposure.ListenerOf(endpoint) == "" {
		return kept, nil
	}
	content, err := json.Marshal([]any{endpoint.GetLabels(), endpoint.Object["spec"]})
	if err == nil && len(content) <= maxSize {
		kept.SetLabels(endpoint.GetLabels())
		kept.SetGeneration(endpoint.GetGeneration())
		kept.Object["spec"], kept.Object["status"] = endpoint.Object["spec"], endpoint.Object["status"]
	}
	return kept, err //nolint:wrapcheck // what was JSON is JSON
}
