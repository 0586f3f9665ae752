package lostnodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/names"
)

const (
	// finalizerProtection keeps a bound PersistentVolume. Only this package removes it: the claim gets a new volume.
	finalizerProtection = "kubernetes.io/pv-protection"
	// finalizerProvisioner is on volumes of Stackable's listener operator; package volume removes it.
	finalizerProvisioner = volume.PVDeletionProtectionFinalizer
)

// release replaces the volume of a claim by one without a node affinity, if the API server confirms the decision and
// nothing forbids it. Each step leaves a state from which the next Reconcile continues:
//
//  1. The claim becomes an owner of the Listener. Of a Listener that Stackable's listener operator created, only the
//     volume is one, and the garbage collector would delete Listener, Service and node ports with it.
//  2. An annotation marks the volume as being released. From now on the release is completed, even if its reason ends.
//  3. The volume is deleted. It still exists, because of its finalizer.
//  4. The finalizer is removed. Now the claim is Lost, as it is when a volume was deleted by hand.
//  5. The new volume is created.
func (r *Reconciler) release(ctx context.Context, key types.NamespacedName, cached *observed, decided decision) error {
	o, err := r.observe(ctx, r.APIReader, key)
	if err != nil || o == nil || o.pv == nil || o.pv.UID != cached.pv.UID {
		return err // the cache follows
	}
	o.displaced = cached.displaced
	if o.decide(r.Clock.Now()).release == "" || slices.Contains(o.pv.Finalizers, finalizerProvisioner) {
		return nil // the change is watched
	}
	if why := o.forbidden(); why != "" {
		r.warn(o, listenersv1alpha1.ReasonReleaseRefused,
			fmt.Sprintf("PersistentVolume %s is not released, although %s: %s", o.pv.Name, decided.release, why))
		return r.report(ctx, cached)
	}
	if err := r.adopt(ctx, o); err != nil {
		return err
	}
	if err := r.annotate(ctx, o, names.AnnotationReleasedFrom, o.pinned()); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Releasing a volume", "PersistentVolume", o.pv.Name, "node", o.pinned(), "why",
		decided.release)
	if o.pv.DeletionTimestamp == nil {
		if err := r.Client.Delete(ctx, o.pv, client.Preconditions{UID: &o.pv.UID,
			ResourceVersion: &o.pv.ResourceVersion}); err != nil {
			return fmt.Errorf("deleting PersistentVolume %s, to release it from node %s: %w", o.pv.Name, o.pinned(),
				err)
		}
	}
	return r.replace(ctx, key)
}

func (o *observed) forbidden() string {
	_, otherListener := o.selector.Follow(o.claim.Annotations)
	_, err := claim.VolumeSelector(claim.Volume(o.claim, ""))
	switch users := o.users(); {
	case o.pinned() == "":
		return "the operator did not set its node affinity"
	case len(users) > 0:
		return fmt.Sprintf("Pod %s on node %s uses it", users[0].Name, users[0].Spec.NodeName)
	case foreignFinalizers(o.pv) != "":
		return "its finalizers " + foreignFinalizers(o.pv) + " belong to others, who have to remove them"
	case err != nil || otherListener:
		return "the annotations of the claim do not select the same Listener any more; restore them"
	case o.claim.Spec.VolumeName != claim.VolumeName(o.claim):
		return "the operator did not provision it"
	}
	return ""
}

// foreignFinalizers returns the finalizers of a volume that neither Kubernetes nor the provisioner removes, or "".
func foreignFinalizers(pv *corev1.PersistentVolume) string {
	foreign := slices.DeleteFunc(slices.Clone(pv.Finalizers),
		func(f string) bool { return f == finalizerProtection || f == finalizerProvisioner })
	return strings.Join(foreign, ", ")
}

// replace completes the release of a volume, or creates the volume of a claim that has none. If a Pod on an existing
// node uses the claim of a pinned class, the volume is pinned to that node, because its address may be known.
func (r *Reconciler) replace(ctx context.Context, key types.NamespacedName) error {
	o, err := r.observe(ctx, r.APIReader, key)
	if err != nil || o == nil || o.pv != nil && !o.interrupted() {
		return err // the cache follows
	}
	desired, why, err := r.desiredVolume(ctx, o)
	if err != nil {
		return err
	}
	r.warn(o, listenersv1alpha1.ReasonVolumeNotRestored, why)
	if why != "" {
		return nil
	}
	if err := r.adopt(ctx, o); err != nil {
		return err
	}
	if o.pv != nil {
		if gone, err := r.unprotect(ctx, o); err != nil || !gone {
			return err
		}
	}
	return r.create(ctx, o, desired)
}

func (r *Reconciler) create(ctx context.Context, o *observed, created *corev1.PersistentVolume) error {
	err := r.Client.Create(ctx, created, client.FieldOwner(names.FieldManagerLostNodes))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("creating PersistentVolume %s again: %w", created.Name, err)
	}
	from := created.Annotations[names.AnnotationReleasedFrom]
	reason, text := listenersv1alpha1.ReasonVolumeRestored,
		fmt.Sprintf("PersistentVolume %s did not exist any more, and was created again from its claim", created.Name)
	if from != "" {
		reason, text = listenersv1alpha1.ReasonVolumeReleased,
			fmt.Sprintf("PersistentVolume %s is released from node %s: its Pod can start on another node", created.Name,
				from)
	}
	r.emit(o, reason, text)
	return nil
}

// desiredVolume returns the volume that replaces the one of a claim, or why there cannot be one.
func (r *Reconciler) desiredVolume(ctx context.Context,
	o *observed) (desired *corev1.PersistentVolume, why string, err error) {
	listener := o.selector.ListenerName(o.claim.Name)
	switch {
	case claim.OtherVolume(o.claim) != "":
		return nil, claim.OtherVolume(o.claim), nil
	case listener == "":
		return nil, fmt.Sprintf("PersistentVolume %s does not exist, and cannot be created again, because %s",
			o.claim.Spec.VolumeName, claim.ErrNoSelector), nil
	case claim.ListenerNameProblem(listener) != "":
		return nil, fmt.Sprintf("PersistentVolume %s does not exist, and cannot be created again, because %s",
			o.claim.Spec.VolumeName, claim.ListenerNameProblem(listener)), nil
	}
	desired = claim.Volume(o.claim, listener)
	desired.Spec.NodeAffinity = o.affinity()
	if o.pv != nil {
		desired.Annotations[names.AnnotationReleasedFrom] = o.pv.Annotations[names.AnnotationReleasedFrom]
		desired.Spec.PersistentVolumeReclaimPolicy = o.pv.Spec.PersistentVolumeReclaimPolicy
		return desired, "", nil
	}
	class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: desired.Spec.StorageClassName},
		&storagev1.StorageClass{})
	if err == nil && class != nil && class.ReclaimPolicy != nil {
		desired.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
	return desired, "", err
}

func (o *observed) affinity() *corev1.VolumeNodeAffinity {
	nodes := sets.New[string]()
	for _, pod := range o.users() {
		nodes.Insert(pod.Spec.NodeName)
	}
	if nodes.Len() != 1 || o.class == nil || o.class.Pinning() == nil {
		return nil
	}
	return claim.NodeAffinity(nodes.UnsortedList()[0])
}

func (r *Reconciler) adopt(ctx context.Context, o *observed) error {
	l := o.listener
	if l == nil || l.DeletionTimestamp != nil || !claim.OwnsListener(l) || claim.HasOwner(l, o.claim.UID) ||
		o.selector.Class == "" {
		return nil // a Listener that the claim names is not the claim's
	}
	desired := claim.OfClaim(o.claim, nil).Listener(cmp.Or(l.Class(), o.selector.Class), l.Spec.Ports, l.Labels)
	_, err := r.Applier.Apply(ctx, claim.KeepOf(l).Apply(desired), l)
	return err
}

// unprotect removes Kubernetes' own finalizer of a volume that is being deleted. It reports whether the volume is gone.
// It is an update, because an update names a UID: after a patch that removes the last finalizer, the API server deletes
// whatever has the name by then, such as the new volume, created by another replica while leadership changes.
func (r *Reconciler) unprotect(ctx context.Context, o *observed) (bool, error) {
	if foreign := foreignFinalizers(o.pv); foreign != "" {
		r.warn(o, listenersv1alpha1.ReasonReleaseRefused,
			fmt.Sprintf("PersistentVolume %s is being deleted, to release it from node %s, "+
				"but has finalizers of others, who have to remove them: %s", o.pv.Name,
				o.pv.Annotations[names.AnnotationReleasedFrom], foreign))
		return false, nil
	}
	controllerutil.RemoveFinalizer(o.pv, finalizerProtection)
	if err := r.Client.Update(ctx, o.pv, client.FieldOwner(names.FieldManagerLostNodes)); err != nil {
		return false, fmt.Errorf("removing the finalizer %s of PersistentVolume %s: %w", finalizerProtection, o.pv.Name,
			err)
	}
	return len(o.pv.Finalizers) == 0, nil
}

// annotate changes an annotation of the observed version of a volume, or removes it if the value is nil.
func (r *Reconciler) annotate(ctx context.Context, o *observed, key string, value any) error {
	o.pv = o.pv.DeepCopy() // the cache's object must not change
	return apply.PatchMetadata(ctx, r.Client, o.pv, names.FieldManagerLostNodes, map[string]any{
		"resourceVersion": o.pv.ResourceVersion, "annotations": map[string]any{key: value},
	})
}
