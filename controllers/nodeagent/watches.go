package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
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

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// SetupWithManager registers the controller, its watches, and the step that creates ListenerOperator/cluster when the
// operator starts for the first time.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.apiReader = mgr.GetAPIReader()
	r.applier = apply.New(r.Client, names.FieldManagerOperator)
	r.events = mgr.GetEventRecorder(names.EventReporter)
	r.serves = r.APIs.Serves
	r.stackable = func(ctx context.Context) (stackable.Installation, error) {
		return stackable.Running(ctx, r.Client, r.Clock.Now())
	}
	if err := mgr.Add(&firstStart{writer: r.Client, apiReader: r.apiReader, namespace: r.Namespace, clusterDomain: r.ClusterDomain, spec: r.FirstSpec}); err != nil {
		return fmt.Errorf("adding the step of the first start: %w", err)
	}
	b := requests.Controller(mgr, "nodeagent", 1).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, finalizersChanged()))).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(toListenerOperator), builder.WithPredicates(r.operatorSpecChanged())).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.toWaitingListenerOperator), builder.WithPredicates(volumeUseChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.toWaitingListenerOperator), builder.WithPredicates(podWithClaimsCreatedOrDeleted())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(toListenerOperator), builder.WithPredicates(stackable.Pods())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, handler.EnqueueRequestsFromMapFunc(toListenerOperator), builder.WithPredicates(isConfinement())).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, handler.EnqueueRequestsFromMapFunc(toListenerOperator), builder.WithPredicates(isConfinement())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.toWaitingListenerOperator), builder.WithPredicates(nodeLabelsOrTaintsChanged()))
	for _, c := range installation.Components() {
		// By name, not by owner: the deletion of a foreign object has to trigger a reconciliation, too.
		if !c.Optional.Empty() {
			source, err := r.optionalSource(mgr, c)
			if err != nil {
				return err
			}
			b = b.WatchesRawSource(source)
			continue
		}
		b = b.Watches(c.Empty(), handler.EnqueueRequestsFromMapFunc(toListenerOperator), builder.WithPredicates(r.isComponent(c)))
	}
	return b.Complete(requests.Requeue("nodeagent", reconcile.AsReconciler(r.Client, r)))
}

// optionalSource watches a component of an optional kind. Its cache holds metadata alone.
func (r *Reconciler) optionalSource(mgr manager.Manager, c installation.Component) (*platform.View, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(c.Optional)
	only := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name)}
	if c.Namespaced {
		only.Namespaces = map[string]cache.Config{r.Namespace: {}}
	}
	return r.APIs.View(platform.ViewOptions{
		Scheme: mgr.GetScheme(), Object: object, Cache: only,
		Handler: handler.EnqueueRequestsFromMapFunc(toListenerOperator),
		Changed: func(ctx context.Context) []reconcile.Request { return toListenerOperator(ctx, nil) },
	})
}

// isComponent passes the object of the component, and agents in other namespaces.
func (r *Reconciler) isComponent(c installation.Component) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == c.Key(r.Namespace) || c.Kind == "DaemonSet" && o.GetName() == c.Name
	})
}

func toListenerOperator(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}}}
}

// finalizersChanged passes configurations whose finalizers change, which does not change the generation.
func finalizersChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
}

// operatorSpecChanged passes the operator's own Deployment when its spec changes.
func (r *Reconciler) operatorSpecChanged() predicate.Predicate {
	return predicate.And[client.Object](predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace && o.GetName() == names.Operator
	}))
}

// volumeUseChanged passes volumes that start or stop being in use.
func volumeUseChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return inUse(e.Object.(*corev1.PersistentVolume)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return inUse(e.ObjectOld.(*corev1.PersistentVolume)) != inUse(e.ObjectNew.(*corev1.PersistentVolume))
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return inUse(e.Object.(*corev1.PersistentVolume)) },
	}
}

// podWithClaimsCreatedOrDeleted passes Pods with claims that are created or deleted, because conditions name them.
func podWithClaimsCreatedOrDeleted() predicate.Predicate {
	return predicate.And(predicate.NewPredicateFuncs(func(o client.Object) bool { return len(index.PodClaims(o)) > 0 }),
		predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
}

// nodeLabelsOrTaintsChanged passes Nodes that a placement may start or stop selecting.
func nodeLabelsOrTaintsChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return !maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Spec.Taints, after.Spec.Taints)
		},
	}
}

// toWaitingListenerOperator maps to ListenerOperator/cluster if a change may wait for volumes that are in use.
func (r *Reconciler) toWaitingListenerOperator(ctx context.Context, o client.Object) []reconcile.Request {
	if !r.waitingForUsers.Load() {
		return nil
	}
	return toListenerOperator(ctx, o)
}

// readOperatorPod returns the template of the operator's own Pods. If its Deployment no longer exists, it returns the
// last template: then the operator is being uninstalled, which must not change the agents.
func (r *Reconciler) readOperatorPod(ctx context.Context) (corev1.PodSpec, error) {
	var deployment appsv1.Deployment
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: names.Operator}, &deployment)
	if client.IgnoreNotFound(err) != nil {
		return corev1.PodSpec{}, fmt.Errorf("reading deployment %s/%s: %w", r.Namespace, names.Operator, err)
	}
	if err == nil {
		r.operatorPod = deployment.Spec.Template.Spec
	}
	return r.operatorPod, nil
}
