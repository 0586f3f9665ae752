package certmanager

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// workers is the number of Certificates that are reconciled concurrently.
const workers = 4

// SetupWithManager registers the controller and its watches.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) (err error) {
	r.certificates, err = r.Platform.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: apply.Object(names.KindCertificate, types.NamespacedName{}),
		Cache:   cache.ByObject{Transform: trim},
		Handler: handler.EnqueueRequestsFromMapFunc(certificateToRequest),
		Changed: func(ctx context.Context) []reconcile.Request {
			return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, listenerToRequest)
		},
	})
	if err != nil {
		return err
	}
	return requests.Controller(mgr, "cert-manager", workers).
		WatchesRawSource(r.certificates).
		Watches(&listenersv1alpha1.Listener{}, handler.EnqueueRequestsFromMapFunc(listenerToRequest)).
		Watches(&listenersv1alpha1.ListenerClass{}, handler.EnqueueRequestsFromMapFunc(r.classToRequests),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(requests.Requeue(mgr, "cert-manager", r))
}

// trim keeps of a Certificate what the operator writes, or the name alone if others created it.
func trim(o any) (any, error) {
	certificate, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // a tombstone of what was trimmed before
	}
	kept := apply.Object(names.KindCertificate, client.ObjectKeyFromObject(certificate))
	kept.SetUID(certificate.GetUID())
	kept.SetResourceVersion(certificate.GetResourceVersion())
	if names.IsOwn(certificate) {
		kept.SetLabels(certificate.GetLabels())
		kept.SetOwnerReferences(certificate.GetOwnerReferences())
		kept.Object["spec"] = certificate.Object["spec"]
	}
	return kept, nil
}

func certificateToRequest(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := strings.CutSuffix(o.GetName(), names.CertificateSuffix)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

func listenerToRequest(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := o.GetLabels()[names.LabelCertificate]
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

func (r *Reconciler) classToRequests(ctx context.Context, o client.Object) []reconcile.Request {
	return index.Requests[listenersv1alpha1.ListenerList](ctx, r.Client, listenerToRequest, client.MatchingFields{index.ListenersByClass: o.GetName()})
}
