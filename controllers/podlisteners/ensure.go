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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
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

// ensureMounts applies the Listeners of class-based claims, labels the Pod and its volumes with them, and pins volumes.
// A volume whose Listener a ResourceQuota does not permit waits; the other volumes of the Pod do not.
func (r *Reconciler) ensureMounts(ctx context.Context, p *pass, mounts []*mount) error {
	var errs []error
	labels := map[string]any{}
	for _, m := range mounts {
		if m.isCopy {
			m.warnCopy()
			labels[names.PodMountLabel(m.listener.UID)] = nil
			continue
		}
		err := r.ensureListener(ctx, m)
		if rejection := requests.ExceededQuota(err); rejection != "" && m.listener == nil {
			m.warnQuota(rejection)
			p.overQuota, err = errors.Join(p.overQuota, err), nil
		}
		errs = append(errs, err, r.ensureVolume(ctx, m))
		if m.listener != nil {
			labels[names.PodMountLabel(m.listener.UID)] = names.ListenerLabel(m.listener.Name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.labelPod(ctx, p.pod, labels)
}

// ensureVolume labels a volume with its Listener. If the class is pinned, it pins the volume to the node of the Pod
// before an address is published: no later Pod may run elsewhere. Otherwise it records the node at a new mount.
func (r *Reconciler) ensureVolume(ctx context.Context, m *mount) error {
	if m.isInline() {
		return nil
	}
	own := labels.Set{names.LabelListenerNamespace: m.pod.Namespace, names.LabelListenerName: names.ListenerLabel(m.listenerName())}
	affinity, annotations := m.reservation()
	if affinity == m.pv.Spec.NodeAffinity && own.AsSelector().Matches(labels.Set(m.pv.Labels)) && labels.Set(annotations).AsSelector().Matches(labels.Set(m.pv.Annotations)) {
		return nil
	}
	desired := apply.Object(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), client.ObjectKeyFromObject(m.pv))
	desired.SetLabels(own)
	desired.SetAnnotations(annotations)
	if affinity != nil { // even if it is not new: it is immutable, and an apply without it would try to remove it
		content, err := apply.Unstructured(affinity)
		if err != nil {
			return err
		}
		desired.Object["spec"] = map[string]any{"nodeAffinity": content.Object}
	}
	_, err := r.Applier.Apply(ctx, desired, m.pv)
	return err
}

// labelPod adds the labels of Listeners that a Pod lacks, and keeps those of its other mounts (contract: the labels),
// but removes the labels, which are nil, that it has as the copy of another Pod.
func (r *Reconciler) labelPod(ctx context.Context, pod *corev1.Pod, labels map[string]any) error {
	w, has := r.writtenFor(listenersv1alpha1.PodListenersName(pod.UID)), pod.Labels
	if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, w.version); err == nil && order < 0 {
		has = w.labels // there is an event of that version, so it does not matter if the Pod has lost them since
	} else {
		w.labels, w.version = nil, ""
	}
	maps.DeleteFunc(labels, func(key string, value any) bool {
		label, _ := value.(string)
		return has[key] == label
	})
	if len(labels) == 0 {
		return nil
	}
	labelled := pod.DeepCopy() // the client decodes the response into it
	if err := apply.PatchMetadata(ctx, r.Client, labelled, names.FieldManagerDefault, map[string]any{"labels": labels}); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.labels, w.version = labelled.Labels, labelled.ResourceVersion
	return nil
}

// ensureListener applies the Listener of a class-based claim, with the ports, the name and the index of the Pod, unless
// it was not created for the claim. A mount that is not new only adds owners and follows the class: Pods that share a
// claim may have different ports, and must not overwrite each other's.
func (r *Reconciler) ensureListener(ctx context.Context, m *mount) error {
	if m.selector.Class == "" {
		return nil
	}
	ports, problem := claim.Ports(m.claim, m.pod)
	labels := m.pod.Labels
	if m.listener == nil || m.isNew {
		m.warnPorts(problem)
	} else {
		ports, labels = m.listener.Spec.Ports, m.listener.Labels
	}
	switch {
	case m.listener == nil:
	case m.listener.DeletionTimestamp != nil:
		return nil // it is created again when it is deleted
	case !claim.OwnsListener(m.listener), claim.BelongsToOther(m.listener, m.claim):
		return r.withoutListener(ctx, m)
	}
	class, err := r.classOfListener(ctx, m)
	keeper := claim.Keeper(m.pod, m.claim.Name)
	if err != nil || !m.isNew && class == m.listener.Class() && m.ownsListener(keeper) {
		return err
	}
	return r.applyListener(ctx, claim.KeptBy(claim.Listener(m.claim, m.pv, class, ports, labels), keeper), m)
}

// withoutListener takes a Listener that was not created for the claim from the mount, and warns unless it is leaving.
func (r *Reconciler) withoutListener(ctx context.Context, m *mount) error {
	leaving, err := r.isLeaving(ctx, m)
	if err == nil && !leaving {
		m.warn(listenersv1alpha1.ReasonForeignListener, actionMount,
			"Listener %s exists but was not created for %s, so it is not changed; rename one of the two", m.listener.Name, m.source())
	}
	m.listener = nil
	return err
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

// classOfListener returns the class that the claim names now. If it does not exist, or does not allow the namespace, an
// existing Listener keeps its class, whose addresses work.
func (r *Reconciler) classOfListener(ctx context.Context, m *mount) (string, error) {
	kept := m.listener.Class()
	if kept == "" || kept == m.selector.Class {
		return m.selector.Class, nil
	}
	reason := listenersv1alpha1.ReasonClassNotFound
	problem := fmt.Sprintf("ListenerClass %q does not exist", message.Printable(m.selector.Class, validation.DNS1123SubdomainMaxLength))
	class, err := lookup.Get(ctx, r.Client, types.NamespacedName{Name: m.selector.Class}, &listenersv1alpha1.ListenerClass{})
	if class != nil {
		reason = listenersv1alpha1.ReasonNamespaceNotAllowed
		problem, err = tenancy.Check(ctx, r.Client, class, m.claim.Namespace)
	}
	if err != nil || problem == "" {
		return m.selector.Class, err
	}
	m.warnClaim(reason, "%s, so Listener %s keeps class %s; name another class in the %s %s",
		problem, m.listener.Name, kept, claim.Field(m.claim), names.AnnotationListenerClass)
	return kept, nil
}

// ownsListener reports whether a Listener has its annotation and its owners. It lacks some if another operator, an
// earlier version or an earlier claim created it. The garbage collector removes a keeper that is being deleted.
func (m *mount) ownsListener(keeper *metav1.OwnerReference) bool {
	return m.listener.Annotations[names.AnnotationClaim] == m.claim.Name && claim.HasOwner(m.listener, m.claim.UID) &&
		(m.isInline() || claim.HasOwner(m.listener, m.pv.UID)) &&
		(keeper == nil || m.pod.DeletionTimestamp != nil || claim.HasOwner(m.listener, keeper.UID))
}

// applyListener applies the Listener of a class-based claim, and makes the result, with its uid and generation, that of
// the mount. An event says to those who change the class that the claim decides.
func (r *Reconciler) applyListener(ctx context.Context, desired *unstructured.Unstructured, m *mount) error {
	before := m.listener
	var err error
	if m.listener, err = apply.Typed(ctx, r.Applier, desired, before); err != nil {
		return err
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

// schedulingTimeout is how long the scheduler may take until it has noticed that the claims of a Pod are bound.
const schedulingTimeout = 10 * time.Second

// prepare applies the Listeners of the inline volumes of a Pod while it waits for a node, so that they have addresses
// then, and reminds the scheduler of the Pod. wait is when to look again, or 0.
func (r *Reconciler) prepare(ctx context.Context, p *pass) (wait time.Duration, _ error) {
	mounts, err := r.mounts(ctx, p, nil)
	if err != nil {
		return 0, err
	}
	var inline []*mount
	for _, m := range mounts {
		if m.isInline() {
			inline = append(inline, m)
			continue
		}
		left, err := r.remindScheduler(ctx, m)
		if err != nil {
			return 0, err
		}
		wait = max(wait, left)
	}
	return wait, r.ensureMounts(ctx, p, inline)
}

// remindScheduler changes the bound volume of a Pod, once for all of its Pods: the scheduler of Kubernetes 1.33 and
// 1.34 may look at the Pod before its own cache has the bound claim, and then again only after five minutes, or when a
// PersistentVolume changes (kubernetes/kubernetes#73216). left is when to look again, or 0.
func (r *Reconciler) remindScheduler(ctx context.Context, m *mount) (left time.Duration, _ error) {
	left = requests.Left(m.pv.CreationTimestamp, schedulingTimeout, r.Clock.Now())
	takesForUnbound := strings.Contains(claim.Unschedulable(m.pod), "unbound immediate PersistentVolumeClaims")
	if left > 0 || m.pv.Annotations[names.AnnotationReminded] != "" || !takesForUnbound {
		return left, nil
	}
	log.FromContext(ctx).Info("The scheduler has not noticed that the claims of a Pod are bound: changing its volume", "Pod", m.pod.Name, "volume", m.pv.Name)
	return 0, client.IgnoreNotFound(apply.PatchMetadata(ctx, r.Client, m.pv.DeepCopy(), names.FieldManagerDefault, map[string]any{
		"annotations": map[string]any{names.AnnotationReminded: m.pod.UID},
	}))
}
