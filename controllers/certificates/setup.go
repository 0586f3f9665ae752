package certificates

import (
	"cmp"
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/predicates"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// workers is the number of requests that are decided concurrently, and of namespaces whose trust is published.
const workers = 4

// byPod finds requests by the uid of their Pod.
const byPod = "request.pod"

// SetupWithManager registers the controller, which runs at the start, when the configuration changes, and in time.
func (a *Authorities) SetupWithManager(mgr manager.Manager) error {
	return requests.Controller(mgr, "certificate-authorities", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&operatorv1alpha1.ListenerOperator{}, requests.Only(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, requests.Only()). // of this name only, see package cache
		Complete(requests.Requeue(mgr, "certificate-authorities", a))
}

// source is a source of these requests for each change of the authorities.
func (a *Authorities) source(all func(context.Context) []reconcile.Request) source.Source {
	changed := make(chan event.GenericEvent, 1)
	a.changed = append(a.changed, changed)
	return source.Channel(changed, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return all(ctx) }))
}

// SetupWithManager registers the controller and its watches.
func (s *Signer) SetupWithManager(mgr manager.Manager) (err error) {
	all := func(ctx context.Context) []reconcile.Request { return s.undecided(ctx) }
	s.requests, err = s.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: &certificatesv1.PodCertificateRequest{},
		Cache: cache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", names.Signer), Transform: trim},
		Indexes: map[string]client.IndexerFunc{byPod: func(o client.Object) []string {
			if request := o.(*certificatesv1.PodCertificateRequest); !decided(request) {
				return []string{string(request.Spec.PodUID)}
			}
			return nil
		}},
		Handler: &handler.EnqueueRequestForObject{},
		Changed: all,
	})
	if err != nil {
		return err
	}
	return requests.Controller(mgr, "certificates", workers).
		WatchesRawSource(s.requests).
		WatchesRawSource(s.source(all)).
		Watches(&listenersv1alpha1.PodListeners{}, handler.EnqueueRequestsFromMapFunc(s.podListenersToRequests)).
		Complete(requests.Requeue(mgr, "certificates", s))
}

// trim keeps of a request that is decided no more than that.
func trim(o any) (any, error) {
	request, ok := o.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return o, nil // a tombstone of what was trimmed before
	}
	request.ManagedFields = nil
	if decided(request) {
		request.Spec = certificatesv1.PodCertificateRequestSpec{}
		request.Status = certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{Type: request.Status.Conditions[0].Type}}}
	}
	return request, nil
}

// podListenersToRequests maps PodListeners to the requests of their Pod that wait for an address.
func (s *Signer) podListenersToRequests(ctx context.Context, o client.Object) []reconcile.Request {
	return s.undecided(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{byPod: string(listenersv1alpha1.PodUID(o.GetName()))})
}

// undecided returns requests that are not decided. While the kind is not served, there are none.
func (s *Signer) undecided(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var all certificatesv1.PodCertificateRequestList
	if s.requests.Version() == "" || s.requests.List(ctx, &all, options...) != nil {
		return nil // each is enqueued when it becomes known
	}
	var found []reconcile.Request
	for i := range all.Items {
		if !decided(&all.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}

// SetupWithManager registers the controller and its watches.
func (t *Trust) SetupWithManager(mgr manager.Manager) (err error) {
	namespaces := handler.EnqueueRequestsFromMapFunc(toNamespace)
	t.bundles, err = t.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: &certificatesv1.ClusterTrustBundle{},
		Cache:   cache.ByObject{Field: fields.OneTermEqualSelector("spec.signerName", names.Signer)},
		Handler: namespaces,
		Changed: t.all,
	})
	if err != nil {
		return err
	}
	return requests.Controller(mgr, "certificate-trust", workers).
		WatchesRawSource(t.bundles).
		WatchesRawSource(t.source(t.all)).
		Watches(&corev1.ConfigMap{}, namespaces). // of this name only, see package cache
		Watches(tenancy.Namespace(), namespaces, builder.WithPredicates(predicates.ExistenceChanged())).
		Complete(requests.Requeue(mgr, "certificate-trust", t))
}

// toNamespace maps a Namespace, or what is published for one, to the namespace.
func toNamespace(_ context.Context, o client.Object) []reconcile.Request {
	name := cmp.Or(o.GetNamespace(), strings.TrimPrefix(o.GetName(), names.TrustBundlePrefix))
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// all returns the namespaces for which something is published.
func (t *Trust) all(ctx context.Context) []reconcile.Request {
	found := index.Requests[corev1.ConfigMapList](ctx, t.Client, toNamespace)
	if t.bundles.Version() != "" {
		found = append(found, index.Requests[certificatesv1.ClusterTrustBundleList](ctx, t.bundles, toNamespace)...)
	}
	return found
}
