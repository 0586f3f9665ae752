package podlisteners

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

// ensureListener applies the Listener of a class-based claim, with the ports, the name and the index of the Pod, unless
// it was not created for the claim. A mount that is not new only adds owners and follows the class: Pods that share a
// claim may have different ports, and must not overwrite each other's.
func (r *Reconciler) ensureListener(ctx context.Context, m *mount) error {
	if m.selector.Class == "" || m.awaitsKubelet() {
		return nil
	}
	if waits, err := r.awaitsRestore(ctx, m); waits || err != nil {
		return err
	}
	like, err := r.like(ctx, m)
	switch {
	case err != nil || like == nil:
		return err
	case m.listener == nil:
	case m.listener.DeletionTimestamp != nil:
		return nil // it is created again when it is deleted
	case m.request.OtherUser(m.listener, m.pod) != "":
		return r.withoutListener(ctx, m)
	}
	return r.followListener(ctx, m, like)
}

// awaitsRestore reports whether the Pod of an inline volume waits for its Listener, because the Pod, or the StatefulSet
// that has created it again, comes from a backup.
func (r *Reconciler) awaitsRestore(ctx context.Context, m *mount) (bool, error) {
	if m.listener != nil || !m.request.Inline {
		return false, nil
	}
	left := requests.Restoring(m.pod, r.Clock.Now())
	if left == 0 {
		set, err := r.keepingSet(ctx, m, claim.KeepFor(m.pod, m.request.Name, nil))
		if set == nil || err != nil {
			return false, err
		}
		left = requests.Restoring(set, r.Clock.Now())
	}
	if left == 0 {
		return false, nil
	}
	m.warn(listenersv1alpha1.ReasonWaitingForRestore, actionMount, "Volume %q: the Pod comes from a backup, and waits "+
		"up to a minute for Listener %s, which may have the previous ports", m.volume, m.listenerKey())
	m.again.Add(left, "the Pod comes from a backup, and its Listener may, too")
	return true, nil
}

// followListener applies the Listener of a mount with the ports and labels of another one, if the mount is new, and
// otherwise if its class or owners have changed.
func (r *Reconciler) followListener(ctx context.Context, m *mount, like *listenersv1alpha1.Listener) error {
	class, err := r.classOfListener(ctx, m)
	keep := claim.KeepFor(m.pod, m.request.Name, m.listener)
	if err != nil || !m.isNew && class == m.listener.Class() && m.ownsListener(keep) {
		return err
	}
	set, err := r.keepingSet(ctx, m, keep)
	if err != nil {
		return err
	}
	if set != nil { // what controls it may delete it and create it again
		keep = keep.With(metav1.GetControllerOf(set))
	}
	return r.applyListener(ctx, keep.Apply(m.request.Listener(class, like.Spec.Ports, like.Labels)), m)
}

// like returns what has the ports and the labels of the Listener: the Listener that exists or, if the mount is new,
// what follows from the Pod. It warns about ports that are not exposed. A Listener with too many is not created: it is
// nil.
func (r *Reconciler) like(ctx context.Context, m *mount) (*listenersv1alpha1.Listener, error) {
	if m.listener != nil && !m.isNew {
		return m.listener, nil
	}
	class, err := r.class(ctx, m.selector.Class)
	if err != nil {
		return nil, err
	}
	class = cmp.Or(class, &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: m.selector.Class}})
	ports, problem := m.request.Ports(m.pod)
	if refusal := exposure.CheckPorts(class, ports); refusal != nil {
		m.warn(refusal.Reason, actionMount, "Volume %q: %s", m.volume, refusal.Message)
		return m.listener, nil
	}
	m.warnPorts(problem)
	return &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Labels: m.pod.Labels}, Spec: listenersv1alpha1.ListenerSpec{Ports: ports},
	}, nil
}

// keepingSet returns the StatefulSet of a Pod whose Listener is kept, or nil. Where the operator may not restart Pods,
// it cannot read that. It is read once for a mount.
func (r *Reconciler) keepingSet(ctx context.Context, m *mount, keep claim.Keep) (*metav1.PartialObjectMetadata, error) {
	owner := metav1.GetControllerOf(m.pod)
	if m.set != nil || keep.Pod == "" || owner == nil || owner.Kind != "StatefulSet" {
		return m.set, nil
	}
	set := lookup.Metadata(appsv1.SchemeGroupVersion.WithKind(owner.Kind))
	set, err := lookup.WithUID(ctx, r.APIReader, types.NamespacedName{Namespace: m.pod.Namespace, Name: owner.Name},
		owner.UID, set)
	if apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // as if there were none
	}
	m.set = set
	return set, err
}

// withoutListener takes a Listener that another has from the mount, and warns unless it is leaving. One that the Pod
// was given, and has the label of, stays.
func (r *Reconciler) withoutListener(ctx context.Context, m *mount) error {
	leaving, err := r.isLeaving(ctx, m)
	label := r.labels(m.pod)[names.PodMountLabel(m.listener.UID)]
	m.admitted = m.admitted && label == names.ListenerLabel(m.listener.Name)
	problem := fmt.Sprintf("Listener %s exists but %s, so it is not changed for %s; rename one of the two",
		m.listener.Name, m.request.OtherUser(m.listener, m.pod), m.source())
	if err != nil || leaving || m.refuse(listenersv1alpha1.ReasonForeignListener, problem) {
		m.listener = nil
	}
	return err
}

// isLeaving reports whether the Listener of an inline volume is that of an ephemeral claim that an earlier Pod of the
// same name had, before its template was changed. The garbage collector deletes it, or removes the claim as its owner.
func (r *Reconciler) isLeaving(ctx context.Context, m *mount) (bool, error) {
	ofClaim := func(o metav1.OwnerReference) bool { return o.Kind == "PersistentVolumeClaim" }
	if !m.request.Inline || !claim.OwnsListener(m.listener) ||
		!slices.ContainsFunc(m.listener.OwnerReferences, ofClaim) {
		return false, nil
	}
	key := types.NamespacedName{Namespace: m.pod.Namespace, Name: m.request.Name}
	pvc, err := lookup.Get(ctx, r.Client, key, &corev1.PersistentVolumeClaim{})
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
	problem := fmt.Sprintf("ListenerClass %q does not exist",
		message.Printable(m.selector.Class, validation.DNS1123SubdomainMaxLength))
	class, err := r.class(ctx, m.selector.Class)
	if class != nil {
		reason = listenersv1alpha1.ReasonNamespaceNotAllowed
		problem, err = tenancy.Check(ctx, r.Client, class, m.pod.Namespace)
	}
	if err != nil || problem == "" {
		return m.selector.Class, err
	}
	m.warnClaim(reason, "%s, so Listener %s keeps class %s; name another class in the %s %s",
		problem, m.listener.Name, kept, m.request.Field(), names.AnnotationListenerClass)
	return kept, nil
}

// ownsListener reports whether a Listener has its annotation and its owners. It lacks some if another operator, an
// earlier version or an earlier claim created it. The garbage collector removes a keeper that is being deleted.
func (m *mount) ownsListener(keep claim.Keep) bool {
	annotations := m.listener.Annotations
	if annotations[names.AnnotationClaim] != m.request.Name || annotations[names.AnnotationKeptFor] != keep.Pod {
		return false
	}
	if keep.Pod != "" && len(keep.Owners) == 0 {
		return len(m.listener.OwnerReferences) == 0
	}
	lacks := func(o metav1.OwnerReference) bool { return !claim.HasOwner(m.listener, o.UID) }
	return !slices.ContainsFunc(m.request.Owners, lacks) &&
		(m.pod.DeletionTimestamp != nil || !slices.ContainsFunc(keep.Owners, lacks))
}

// applyListener applies the Listener of a class-based claim, and makes the result, with its uid and generation, that of
// the mount. An event says to those who change the class that the claim decides.
func (r *Reconciler) applyListener(ctx context.Context, desired *unstructured.Unstructured, m *mount) (err error) {
	before := m.listener
	if m.listener, err = apply.Typed(ctx, r.Applier, desired, before); err != nil {
		return err
	}
	if before != nil && before.Class() != m.listener.Class() {
		const reason = listenersv1alpha1.ReasonClassOfClaim
		text := fmt.Sprintf("spec.className was %q, and is %q now, as %s says", before.Class(), m.listener.Class(),
			m.source())
		if !m.request.Inline {
			text += fmt.Sprintf("; to use another class, change the claim: kubectl annotate pvc %s --namespace %s "+
				"%s=CLASS --overwrite", m.request.Name, m.request.Namespace, names.AnnotationListenerClass)
		}
		r.Events.Eventf(m.listener, m.object, reasons.EventType(reason), reason, actionMount, "%s",
			message.Printable(text, message.MaxEvent))
	}
	return r.observeClass(ctx, m)
}
