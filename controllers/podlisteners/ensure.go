package podlisteners

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// ensureMounts applies the Listeners of class-based claims, labels the Pod and its volumes with their Listeners, and
// pins the volumes of pinned classes. overQuota joins the errors about Listeners that a ResourceQuota does not permit:
// their volumes wait, and the other volumes of the Pod do not.
func (r *Reconciler) ensureMounts(ctx context.Context, pod *corev1.Pod, mounts []*mount) (warnings []warning, overQuota, _ error) {
	var errs []error
	labels, ofCopy := map[string]string{}, map[string]any{}
	for _, m := range mounts {
		if warnings = append(warnings, m.copied()); m.isCopy {
			ofCopy[names.PodMountLabel(m.listener.UID)] = nil
			continue
		}
		isNew, rejection := m.isNew(), ""
		ensured, err := r.ensureListener(ctx, m, isNew)
		if m.listener == nil {
			rejection = requests.ExceededQuota(err)
		}
		if rejection != "" {
			overQuota, err = errors.Join(overQuota, err), nil
		}
		warnings = append(append(warnings, ensured...), m.quotaExceeded(rejection)...)
		errs = append(errs, err, r.ensureVolume(ctx, m, isNew))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = names.ListenerLabel(m.listener.Name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return warnings, nil, err
	}
	return warnings, overQuota, r.labelPod(ctx, pod, labels, ofCopy)
}

// ensureVolume labels a PersistentVolume with its Listener. If the class is pinned, it pins the volume to the node of
// the Pod before the first address is published, so that no Pod is scheduled to another node than that of a published
// address. Otherwise it records the node at a new mount.
func (r *Reconciler) ensureVolume(ctx context.Context, m *mount, isNew bool) error {
	if m.isInline() {
		return nil
	}
	labels := map[string]string{names.LabelListenerNamespace: m.pod.Namespace, names.LabelListenerName: names.ListenerLabel(m.listenerName())}
	affinity, annotations := m.reservation(isNew)
	pinning := affinity != m.pv.Spec.NodeAffinity
	if !pinning && len(missingEntries(m.pv.Labels, labels))+len(missingEntries(m.pv.Annotations, annotations)) == 0 {
		return nil
	}
	desired, err := apply.Unstructured(corev1ac.PersistentVolume(m.pv.Name).WithLabels(labels).WithAnnotations(annotations))
	if err != nil {
		return err
	}
	if affinity != nil { // even if it is not new: it is immutable, and an apply without it would try to remove it
		content, err := apply.Unstructured(affinity)
		if err != nil {
			return err
		}
		desired.Object["spec"] = map[string]any{"nodeAffinity": content.Object}
	}
	if _, err := r.Applier.Apply(ctx, desired, m.pv); err != nil {
		return err
	}
	if pinning {
		m.pv = m.pv.DeepCopy()
		m.pv.Spec.NodeAffinity = affinity
	}
	return nil
}

// labelPod adds the labels of Listeners that a Pod lacks, and keeps those of its other mounts (contract: the labels),
// but removes the labels, which are nil, that it has as the copy of another Pod.
func (r *Reconciler) labelPod(ctx context.Context, pod *corev1.Pod, labels map[string]string, patch map[string]any) error {
	labels = missingEntries(r.labels(pod), labels)
	maps.DeleteFunc(patch, func(key string, _ any) bool { return pod.Labels[key] == "" })
	for key, value := range labels {
		patch[key] = value
	}
	if len(patch) == 0 {
		return nil
	}
	labelled := pod.DeepCopy() // the client decodes the response into it
	if err := apply.PatchMetadata(ctx, r.Client, labelled, names.FieldManagerDefault, map[string]any{"labels": patch}); err != nil {
		return client.IgnoreNotFound(err)
	}
	w := r.writtenFor(listenersv1alpha1.PodListenersName(pod.UID))
	w.labels, w.version = labels, labelled.ResourceVersion
	return nil
}

// labels returns the labels of a Pod, with those that were added to a later version of it. There is an event of that
// version, so it does not matter if it has lost them since.
func (r *Reconciler) labels(pod *corev1.Pod) map[string]string {
	w := r.writtenFor(listenersv1alpha1.PodListenersName(pod.UID))
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, w.version); err != nil || order >= 0 {
		w.labels, w.version = nil, ""
		return pod.Labels
	}
	labels := maps.Clone(w.labels)
	maps.Copy(labels, pod.Labels)
	return labels
}

// ensureListener applies the Listener of a class-based claim, with the ports, the name and the index of the Pod, owned
// by claim and volume, unless the Listener was not created for the claim. A mount that is not new only adds owners, and
// sets the class that the claim names now: Pods that share a claim may have different ports, and must not overwrite
// each other's.
func (r *Reconciler) ensureListener(ctx context.Context, m *mount, isNew bool) (warnings []warning, _ error) {
	if m.selector.Class == "" {
		return nil, nil
	}
	ports, problem := claim.Ports(m.claim, m.pod)
	labels := m.pod.Labels
	if m.listener == nil || isNew {
		warnings = m.unexposedPorts(problem)
	} else {
		ports, labels = m.listener.Spec.Ports, m.listener.Labels
	}
	keeper := claim.Keeper(m.pod, m.claim.Name)
	desired := func(class string) *unstructured.Unstructured {
		return claim.KeptBy(claim.Listener(m.claim, m.pv, class, ports, labels), keeper)
	}
	switch {
	case m.listener == nil:
		return warnings, r.applyListener(ctx, desired(m.selector.Class), m)
	case m.listener.DeletionTimestamp != nil:
		return warnings, nil // it is created again when it is deleted
	case !claim.OwnsListener(m.listener), claim.BelongsToOther(m.listener, m.claim):
		return r.withoutListener(ctx, m, warnings)
	}
	class, unusable, err := r.classOfListener(ctx, m)
	if warnings = append(warnings, m.keptClass(unusable)...); err != nil {
		return warnings, err
	}
	if !isNew && class == m.listener.Class() && m.ownsListener(keeper) {
		return warnings, nil
	}
	return warnings, r.applyListener(ctx, desired(class), m)
}

// withoutListener takes a Listener that was not created for the claim from the mount, and warns about it, unless it is
// leaving.
func (r *Reconciler) withoutListener(ctx context.Context, m *mount, warnings []warning) ([]warning, error) {
	leaving, err := r.isLeaving(ctx, m)
	if err == nil && !leaving {
		warnings = append(warnings, m.warning(listenersv1alpha1.ReasonForeignListener, actionMount,
			fmt.Sprintf("Listener %s exists but was not created for %s, so it is not changed; rename one of the two", m.listener.Name, m.source())))
	}
	m.listener = nil
	return warnings, err
}

// isLeaving reports whether the Listener of an inline volume is that of an ephemeral claim that an earlier Pod of the
// same name had, before its template was changed. The garbage collector deletes it, or removes the claim as its owner.
func (r *Reconciler) isLeaving(ctx context.Context, m *mount) (bool, error) {
	ofClaim := func(o metav1.OwnerReference) bool { return o.Kind == "PersistentVolumeClaim" }
	if !m.isInline() || !claim.OwnsListener(m.listener) || !slices.ContainsFunc(m.listener.OwnerReferences, ofClaim) {
		return false, nil
	}
	pvc, err := lookup.Get(ctx, r.Client, client.ObjectKeyFromObject(m.claim), &corev1.PersistentVolumeClaim{})
	if err != nil || pvc == nil {
		return err == nil, err
	}
	owner := claim.EphemeralPod(pvc)
	return owner != nil && owner.Name == m.pod.Name && owner.UID != m.pod.UID, nil
}

// classOfListener returns the class that the existing Listener of a class-based claim should have: the one that the
// claim names now. If that does not exist, or does not allow the namespace, which unusable says by the reason, the
// Listener keeps its class, whose addresses work.
func (r *Reconciler) classOfListener(ctx context.Context, m *mount) (class string, unusable map[string]string, _ error) {
	if m.listener.Class() == "" || m.listener.Class() == m.selector.Class {
		return m.selector.Class, nil, nil
	}
	object, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.selector.Class}, &listenersv1alpha1.ListenerClass{})
	if err != nil {
		return "", nil, err
	}
	if object == nil {
		text := fmt.Sprintf("ListenerClass %q does not exist", message.Printable(m.selector.Class, validation.DNS1123SubdomainMaxLength))
		return m.listener.Class(), map[string]string{listenersv1alpha1.ReasonClassNotFound: text}, nil
	}
	if text, err := tenancy.Check(ctx, r.Client, object, m.claim.Namespace); err != nil || text != "" {
		return m.listener.Class(), map[string]string{listenersv1alpha1.ReasonNamespaceNotAllowed: text}, err
	}
	return m.selector.Class, nil, nil
}

// ownsListener reports whether the Listener of a class-based claim has its annotation and its owners. It lacks some if
// another operator, or an earlier version of this one, created it, or if it belongs to an earlier claim. The garbage
// collector removes a keeper that is being deleted, and the Pod with it.
func (m *mount) ownsListener(keeper *metav1.OwnerReference) bool {
	return m.listener.Annotations[names.AnnotationClaim] == m.claim.Name && claim.HasOwner(m.listener, m.claim.UID) &&
		(m.isInline() || claim.HasOwner(m.listener, m.pv.UID)) &&
		(keeper == nil || m.pod.DeletionTimestamp != nil || claim.HasOwner(m.listener, keeper.UID))
}

// applyListener applies the Listener of a class-based claim, and makes the result that of the mount: with the uid, with
// which the Pod is labelled, and with the generation, which shows that the status is about earlier ports. An event says
// to those who change the class of the Listener that the claim decides.
func (r *Reconciler) applyListener(ctx context.Context, desired *unstructured.Unstructured, m *mount) error {
	before := m.listener
	if sent, err := r.Applier.Apply(ctx, desired, m.listener); err != nil || !sent {
		return err
	}
	m.listener = &listenersv1alpha1.Listener{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, m.listener); err != nil {
		return fmt.Errorf("decoding Listener %s: %w", client.ObjectKeyFromObject(desired), err)
	}
	if before != nil && before.Class() != m.listener.Class() {
		const reason = listenersv1alpha1.ReasonClassOfClaim
		text := fmt.Sprintf("spec.className was %q, and is %q now, as %s says", before.Class(), m.listener.Class(), m.source())
		if !m.isInline() {
			text += fmt.Sprintf("; to use another class, change the claim: kubectl annotate pvc %s --namespace %s %s=CLASS --overwrite",
				m.claim.Name, m.claim.Namespace, names.AnnotationListenerClass)
		}
		r.Events.Eventf(m.listener, m.object(), reasons.EventType(reason), reason, actionMount, "%s", message.Printable(text, message.MaxEvent))
	}
	return r.observeClass(ctx, m)
}

// missingEntries returns the desired entries that the observed map does not have.
func missingEntries(observed, desired map[string]string) map[string]string {
	missing := map[string]string{}
	for key, value := range desired {
		if has, ok := observed[key]; !ok || has != value {
			missing[key] = value
		}
	}
	return missing
}

const (
	// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
	schedulingTimeout = 10 * time.Second
	// unboundClaims is a part of the scheduler's message about a Pod with claims that it takes for unbound.
	unboundClaims = "unbound immediate PersistentVolumeClaims"
)

// prepare applies the Listeners of the inline volumes of a Pod while it waits for a node, so that they have addresses
// then. wait is when to look again, or 0.
func (r *Reconciler) prepare(ctx context.Context, pod *corev1.Pod) (wait time.Duration, _ error) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return claim.IsInline(&v) }) {
		return r.remindScheduler(ctx, pod)
	}
	mounts, warnings, err := r.mounts(ctx, pod, nil)
	if err != nil {
		return 0, err
	}
	inline := slices.DeleteFunc(mounts, func(m *mount) bool { return !m.isInline() })
	ensured, overQuota, err := r.ensureMounts(ctx, pod, inline)
	r.report(pod, append(append(warnings, ensured...), rejected(pod, err)))
	if err := errors.Join(err, overQuota); err != nil {
		return 0, err
	}
	return r.remindScheduler(ctx, pod)
}

// remindScheduler changes the bound volumes of a Pod that the scheduler leaves alone. The scheduler of Kubernetes 1.33
// and 1.34 may look at the Pod before its own cache has the bound claim, and then again only after five minutes, or
// when a PersistentVolume changes (kubernetes/kubernetes#73216). A volume is changed once for all of its Pods. wait is
// when to look again, or 0.
func (r *Reconciler) remindScheduler(ctx context.Context, pod *corev1.Pod) (wait time.Duration, _ error) {
	volumes, err := r.volumes(ctx, pod)
	if err != nil {
		return 0, err
	}
	for _, m := range volumes {
		if m.isInline() {
			continue
		}
		if left := requests.Left(m.pv.CreationTimestamp, schedulingTimeout, r.Clock.Now()); left > 0 {
			wait = max(wait, left)
		} else if m.pv.Annotations[names.AnnotationReminded] == "" && strings.Contains(claim.Unschedulable(pod), unboundClaims) {
			log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume", "Pod", pod.Name, "volume", m.pv.Name)
			err := apply.PatchMetadata(ctx, r.Client, m.pv.DeepCopy(), names.FieldManagerDefault, map[string]any{
				"annotations": map[string]any{names.AnnotationReminded: pod.UID},
			})
			if client.IgnoreNotFound(err) != nil {
				return 0, err
			}
		}
	}
	return wait, nil
}
