package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/names"
)

// effectiveManagementState returns Removed for a configuration that is being deleted, whatever it sets: otherwise the
// garbage collector would delete the components, in no order and while volumes are in use.
func effectiveManagementState(config *operatorv1alpha1.ListenerOperator) operatorv1alpha1.ManagementState {
	if !config.DeletionTimestamp.IsZero() {
		return operatorv1alpha1.Removed
	}
	return config.Spec.ManagementState
}

// remove deletes the components, one at a time and in reverse order, unless volumes are in use: without an agent, their
// Pods could neither start nor terminate. After the StorageClass, the first one, no new volumes can appear. The policy
// that confines the agents is deleted after their last Pod. Objects that another installation controls stay.
func (r *Reconciler) remove(ctx context.Context, o *observed) outcome {
	owned := o.owned()
	switch {
	case len(owned) == 0 && !controllerutil.ContainsFinalizer(o.config, operatorv1alpha1.FinalizerNodeAgent):
		return outcome{}
	case controllerutil.ContainsFinalizer(o.config, metav1.FinalizerOrphanDependents):
		return outcome{} // kubectl delete --cascade=orphan: the garbage collector removes all owner references
	case len(owned) == 0 && slices.ContainsFunc(o.components, func(c component) bool { return c.isOrphan(o.config) }):
		return outcome{err: r.removeFinalizer(ctx, o.config)}
	}
	users, err := r.users(ctx)
	switch {
	case err != nil:
		return outcome{err: err}
	case users.any():
		return outcome{users: users, err: r.maintain(ctx, o)}
	case len(owned) > 0:
		return outcome{err: r.deleteLast(ctx, owned)} // its deletion triggers the next reconciliation
	}
	if moving, err := r.deleteOtherAgents(ctx, o); err != nil || moving != "" {
		return outcome{moving: moving, err: err}
	}
	if err := r.prune(ctx, o); err != nil {
		return outcome{err: err}
	}
	return outcome{err: r.removeFinalizer(ctx, o.config)}
}

func (r *Reconciler) deleteLast(ctx context.Context, owned []component) error {
	for _, c := range slices.Backward(owned) {
		if err := r.delete(ctx, c.Kind, c.object); err != nil || !c.Extra {
			return err
		}
	}
	return nil
}

// maintain repairs the components that volumes in use need while their removal waits, which the StorageClass is not.
// With foreground deletion, the garbage collector deletes components before the finalizer is removed.
func (r *Reconciler) maintain(ctx context.Context, o *observed) error {
	if o.config.Spec.ManagementState == operatorv1alpha1.Unmanaged || o.foreignMessage() != "" {
		return nil
	}
	return r.applyAll(ctx, o, func(c component) bool {
		return !c.Extra && c.Kind != "StorageClass" && !c.isOrphan(o.config)
	}).err
}

func (o *observed) owned() []component {
	return slices.DeleteFunc(slices.Clone(o.components), func(c component) bool {
		return c.object == nil || !metav1.IsControlledBy(c.object, o.config)
	})
}

func (c component) isOrphan(config *operatorv1alpha1.ListenerOperator) bool {
	return c.object != nil && !metav1.IsControlledBy(c.object, config) && c.ForeignMessage(config, c.object) == ""
}

// delete deletes an object. A DaemonSet exists until its Pods are deleted.
func (r *Reconciler) delete(ctx context.Context, kind string, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	var options []client.DeleteOption
	if kind == "DaemonSet" {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if err := r.applier.Delete(ctx, object, options...); err != nil {
		return err
	}
	delete(r.replacements, kind+"/"+object.GetName()) // to create it again is no repair
	log.FromContext(ctx).Info("Deleted", kind, object.GetName())
	return nil
}

// addFinalizer adds the operator's finalizer. Server-side apply preserves others, even those that the cache lacks yet.
func (r *Reconciler) addFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	if controllerutil.ContainsFinalizer(config, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	desired := apply.Object(operatorv1alpha1.GroupVersion.WithKind("ListenerOperator"),
		client.ObjectKeyFromObject(config))
	desired.SetFinalizers([]string{operatorv1alpha1.FinalizerNodeAgent})
	if _, err := r.applier.Apply(ctx, desired, config); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	controllerutil.AddFinalizer(config, operatorv1alpha1.FinalizerNodeAgent)
	return nil
}

// removeFinalizer removes the operator's finalizer when nothing is installed any more. Server-side apply would keep it
// if another field manager, for example a backup that was restored, had applied it as well.
func (r *Reconciler) removeFinalizer(ctx context.Context, config *operatorv1alpha1.ListenerOperator) error {
	released := config.DeepCopy()
	if !controllerutil.RemoveFinalizer(released, operatorv1alpha1.FinalizerNodeAgent) {
		return nil
	}
	unchanged := client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, released, unchanged,
		client.FieldOwner(names.FieldManagerOperator))); err != nil {
		return fmt.Errorf("removing the finalizer from ListenerOperator %s: %w", config.Name, err)
	}
	config.Finalizers = released.Finalizers
	log.FromContext(ctx).Info("Removed all components")
	return nil
}

// deleteOtherAgents deletes agents of the configuration in other namespaces, where the operator was uninstalled without
// them, and returns the namespaced name of a DaemonSet that still exists, or "". Two agents on a node would replace
// each other's socket, and the old ones are of no use: their tokens became invalid with their ServiceAccount. While
// that exists, the operator may still be installed there, and would create them again.
func (r *Reconciler) deleteOtherAgents(ctx context.Context, o *observed) (moving string, _ error) {
	var all appsv1.DaemonSetList
	if err := r.Client.List(ctx, &all); err != nil {
		return "", fmt.Errorf("listing the node agents of all namespaces: %w", err)
	}
	for i := range all.Items {
		agents := &all.Items[i]
		if agents.Name != names.NodeAgent || agents.Namespace == r.Namespace ||
			!metav1.IsControlledBy(agents, o.config) {
			continue
		}
		moving = client.ObjectKeyFromObject(agents).String()
		account, err := r.serviceAccount(ctx, agents.Namespace)
		if err != nil {
			return "", err
		}
		if account != "" {
			return "", fmt.Errorf("DaemonSet %s exists already, and so does its ServiceAccount: if the operator is "+
				"still installed in namespace %s, uninstall it there; otherwise delete this ServiceAccount or this "+
				"DaemonSet", moving, agents.Namespace)
		}
		if err := r.delete(ctx, "DaemonSet", agents); err != nil {
			return "", err
		}
	}
	return moving, nil
}

// prune deletes what an earlier version, or an earlier configuration, installed and this one does not: objects with the
// label of managed objects that the configuration controls, of the kinds of the components. While such objects may
// exist, their kind has to stay among the components, and their name in the operator's RBAC rules.
func (r *Reconciler) prune(ctx context.Context, o *observed) error {
	desired, kinds := sets.New[string](), map[string]component{}
	for _, c := range o.components {
		if c.Optional.Empty() { // others may only be read by name
			desired.Insert(c.Kind + "/" + c.Name)
			kinds[c.Kind] = c
		}
	}
	var errs []error
	for kind, c := range kinds {
		objects, err := r.managed(ctx, c.Component)
		errs = append(errs, err)
		for _, item := range objects {
			if object := item.(client.Object); !desired.Has(kind+"/"+object.GetName()) &&
				metav1.IsControlledBy(object, o.config) {
				errs = append(errs, r.delete(ctx, kind, object))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) managed(ctx context.Context, c installation.Component) ([]runtime.Object, error) {
	kind, err := apiutil.GVKForObject(c.Empty(), r.Client.Scheme())
	list, listErr := r.Client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := errors.Join(err, listErr); err != nil {
		return nil, fmt.Errorf("looking up the kind %s: %w", c.Kind, err)
	}
	labels, namespace := client.MatchingLabels{names.LabelManagedBy: names.Operator},
		client.InNamespace(c.Key(r.Namespace).Namespace)
	if err := r.Client.List(ctx, list.(client.ObjectList), labels, namespace); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", c.Kind, err)
	}
	return meta.ExtractList(list)
}

type users struct {
	// pods are the namespaced names of Pods that use a volume, each with the name of its node, or "".
	pods map[string]string
	// claims are the namespaced names of claims that have a volume which no Pod uses, sorted.
	claims []string
}

func (u users) any() bool { return len(u.pods)+len(u.claims) > 0 }

func (u users) String() string {
	return joined(listed("Pods ", slices.Sorted(maps.Keys(u.pods))), listed("claims without a Pod ", u.claims))
}

// users returns the users of listener volumes. Until the next reconciliation, every change of them triggers one. It
// lists volumes without the cache, which may lack the latest one.
func (r *Reconciler) users(ctx context.Context) (users, error) {
	r.waitingForUsers.Store(true)
	var volumes corev1.PersistentVolumeList
	if err := r.apiReader.List(ctx, &volumes); err != nil {
		return users{}, fmt.Errorf("listing volumes: %w", err)
	}
	found := users{pods: map[string]string{}}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		if !inUse(volume) {
			continue
		}
		ref := volume.Spec.ClaimRef
		pods, err := index.PodsOfClaim(ctx, r.Client, ref.Namespace, ref.Name)
		if err != nil {
			return users{}, err
		}
		for j := range pods {
			found.pods[pods[j].Namespace+"/"+pods[j].Name] = pods[j].Spec.NodeName
		}
		if len(pods) == 0 {
			found.claims = append(found.claims, ref.Namespace+"/"+ref.Name)
		}
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return users{}, fmt.Errorf("listing the pods with inline volumes: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !claim.PodFinished(pod) && slices.ContainsFunc(pod.Spec.Volumes,
			func(v corev1.Volume) bool { return claim.IsInline(&v) }) {
			found.pods[pod.Namespace+"/"+pod.Name] = pod.Spec.NodeName
		}
	}
	slices.Sort(found.claims)
	return found, nil
}

// inUse reports whether a volume is a listener volume with a claim. A new volume has a claim before it is Bound.
func inUse(volume *corev1.PersistentVolume) bool {
	if !claim.IsListenerVolume(volume) || volume.Spec.ClaimRef == nil {
		return false
	}
	return volume.Status.Phase != corev1.VolumeReleased && volume.Status.Phase != corev1.VolumeFailed
}

// keepPlacement keeps the placement of the agents if the desired one would remove an agent from a node where Pods use
// volumes, and returns these Pods: without an agent, they could not even terminate.
func (r *Reconciler) keepPlacement(ctx context.Context, o *observed) (users, error) {
	desired := installation.DesiredPlacement(o.config.Spec.NodeAgent, o.settings.OperatorPod)
	current := installation.PlacementOf(o.agents())
	if o.agents().Name == "" || equality.Semantic.DeepEqual(desired, current) {
		return users{}, nil
	}
	all, err := r.users(ctx)
	if err != nil {
		return users{}, err
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		return users{}, fmt.Errorf("listing nodes: %w", err)
	}
	losing := map[string]bool{} // nodes that lose their agent
	for i := range nodes.Items {
		has, err := current.Selects(&nodes.Items[i])
		keeps, desiredErr := desired.Selects(&nodes.Items[i])
		if err := errors.Join(err, desiredErr); err != nil {
			return users{}, fmt.Errorf("evaluating the placement of agents for node %s: %w", nodes.Items[i].Name, err)
		}
		losing[nodes.Items[i].Name] = has && !keeps && installation.Unsuitable(&nodes.Items[i]) == ""
	}
	maps.DeleteFunc(all.pods, func(_, node string) bool { return !losing[node] })
	deselected := users{pods: all.pods}
	if deselected.any() {
		o.settings.Placement = &current
	}
	return deselected, nil
}
