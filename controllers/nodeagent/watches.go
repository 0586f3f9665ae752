package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/retry"
)

// SetupWithManager registers the controller and everything that it waits for, and the step that creates
// ListenerOperator/cluster when the operator first starts.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	r.live = mgr.GetAPIReader()
	r.applier = apply.New(r.Client, names.FieldManagerOperator)
	r.events = mgr.GetEventRecorder(names.EventReporter)
	r.clock = clock.RealClock{}
	r.serves = r.APIs.Serves
	if err := mgr.Add(&firstStart{writer: r.Client, live: r.live, namespace: r.Namespace}); err != nil {
		return fmt.Errorf("adding the first start's step: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("nodeagent").
		WithOptions(controller.Options{RateLimiter: retry.Limiter[reconcile.Request]()}).
		For(&operatorv1alpha1.ListenerOperator{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, refinalized()))).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(theConfiguration), builder.WithPredicates(r.ownDeployment())).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.whileWaiting), builder.WithPredicates(useChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.whileWaiting), builder.WithPredicates(comesOrGoes())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.whileWaiting), builder.WithPredicates(placeChanged()))
	for _, c := range slices.Concat(confinement(), components()) {
		// By name, not by owner: a foreign object that makes way has to be noticed, too.
		if !c.optional.Empty() {
			kind, err := r.optionalKind(mgr, c)
			if err != nil {
				return err
			}
			b = b.WatchesRawSource(kind)
			continue
		}
		b = b.Watches(c.empty(), handler.EnqueueRequestsFromMapFunc(theConfiguration), builder.WithPredicates(r.at(c)))
	}
	return b.Complete(reconcile.AsReconciler(r.Client, r))
}

// optionalKind watches an optional component, of which nothing is kept but its version.
func (r *Reconciler) optionalKind(mgr manager.Manager, c component) (*platform.Kind, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(c.optional)
	only := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, c.name)}
	if c.namespaced {
		only.Namespaces = map[string]cache.Config{r.Namespace: {}}
	}
	return r.APIs.Kind(platform.KindOptions{
		Scheme: mgr.GetScheme(), Object: object, Cache: only,
		Handler: handler.EnqueueRequestsFromMapFunc(theConfiguration),
		Changed: func(ctx context.Context) []reconcile.Request { return theConfiguration(ctx, nil) },
	})
}

// at passes the one object that is the component, and agents of other namespaces.
func (r *Reconciler) at(c component) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == c.key(r.Namespace) || c.kind == "DaemonSet" && o.GetName() == c.name
	})
}

func theConfiguration(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: operatorv1alpha1.ListenerOperatorName}}}
}

// refinalized passes configurations whose finalizers change, which is no new generation.
func refinalized() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
}

// ownDeployment passes the operator's own Deployment when its specification changes.
func (r *Reconciler) ownDeployment() predicate.Predicate {
	return predicate.And[client.Object](predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace && o.GetName() == names.Operator
	}))
}

// useChanged passes volumes that come into use, or stop being in use.
func useChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return inUse(e.Object.(*corev1.PersistentVolume)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return inUse(e.ObjectOld.(*corev1.PersistentVolume)) != inUse(e.ObjectNew.(*corev1.PersistentVolume))
		},
		DeleteFunc: func(e event.DeleteEvent) bool { return inUse(e.Object.(*corev1.PersistentVolume)) },
	}
}

// comesOrGoes passes Pods with claims that come or go, for their names are told.
func comesOrGoes() predicate.Predicate {
	return predicate.And(predicate.NewPredicateFuncs(func(o client.Object) bool { return len(index.PodClaims(o)) > 0 }),
		predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
}

// placeChanged passes Nodes that agents may come to or leave for what the Node is now.
func placeChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return !maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Spec.Taints, after.Spec.Taints)
		},
	}
}

// whileWaiting asks for the configuration if something may be waiting for volumes to be out of use.
func (r *Reconciler) whileWaiting(ctx context.Context, o client.Object) []reconcile.Request {
	if !r.waiting.Load() {
		return nil
	}
	return theConfiguration(ctx, o)
}

// ownPod returns the template of the operator's own Pods. Without a Deployment it is the one that was last there: the
// operator is being uninstalled then, which must not change the agents.
func (r *Reconciler) ownPod(ctx context.Context) (corev1.PodSpec, error) {
	var deployment appsv1.Deployment
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: names.Operator}, &deployment)
	if client.IgnoreNotFound(err) != nil {
		return corev1.PodSpec{}, fmt.Errorf("reading deployment %s/%s: %w", r.Namespace, names.Operator, err)
	}
	if err == nil {
		r.operator = deployment.Spec.Template.Spec
	}
	return r.operator, nil
}
